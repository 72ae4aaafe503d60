//! The names and settings of an installation, from the arguments of its controller.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt as _;

use crate::operator;

/// An installed release of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name of Helm's release.
    pub instance: String,
    /// The prefix of the chart's objects, and the name of its webhook configurations.
    pub name: String,
    pub namespace: String,
    /// The ServiceAccount of the controller.
    pub account: String,
    pub lease: String,
    pub webhook_service: String,
    pub link_service: String,
    pub certificate_secret: String,
    pub secrets: SecretScope,
    /// Whether running pods get refresh hints.
    pub has_hints: bool,
}

/// The namespaces whose Secrets the controller may use, by its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretScope {
    All,
    Namespaces(BTreeSet<String>),
}

impl SecretScope {
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(named) => named.contains(namespace),
        }
    }
}

impl Release {
    /// The release that the chart's documentation installs, for a user who may not read its
    /// Deployments.
    pub fn assumed(namespace: &str) -> Self {
        const NAME: &str = "toolcrib";
        Self {
            instance: NAME.to_owned(),
            name: NAME.to_owned(),
            namespace: namespace.to_owned(),
            account: format!("{NAME}-controller"),
            lease: format!("{NAME}-controller"),
            webhook_service: format!("{NAME}-webhook"),
            link_service: format!("{NAME}-link"),
            certificate_secret: format!("{NAME}-certificates"),
            secrets: SecretScope::Namespaces(BTreeSet::new()),
            has_hints: true,
        }
    }

    /// Reads the Deployment of the controller. Missing flags have the chart's defaults.
    pub fn of(controller: &Deployment) -> Self {
        let mut release = Self::assumed(&controller.namespace().unwrap_or_default());
        let flags = operator::flags(controller);
        for (flag, field) in [
            ("--webhook-config-name", &mut release.name),
            ("--lease", &mut release.lease),
            ("--webhook-service", &mut release.webhook_service),
            ("--link-service", &mut release.link_service),
            ("--certificate-secret", &mut release.certificate_secret),
        ] {
            if let Some(value) = flags.get(flag) {
                field.clone_from(value);
            }
        }
        let pod = controller
            .spec
            .as_ref()
            .and_then(|it| it.template.spec.as_ref());
        if let Some(account) = pod.and_then(|pod| pod.service_account_name.clone()) {
            release.account = account;
        }
        if let Some(instance) = controller.labels().get(INSTANCE_LABEL) {
            release.instance.clone_from(instance);
        }
        let containers: &[Container] = pod.map_or(&[], |pod| &pod.containers);
        let arguments = || containers.iter().flat_map(|it| it.args.iter().flatten());
        release.has_hints = arguments().any(|argument| argument == "--refresh-hints");
        release.secrets = match arguments().any(|argument| argument == "--cluster-wide-secrets") {
            true => SecretScope::All,
            false => {
                let named = flags.get("--secret-namespaces").map(String::as_str);
                let named = named.unwrap_or_default().split(',');
                let named = named.filter(|name| !name.is_empty());
                SecretScope::Namespaces(named.map(str::to_owned).collect())
            }
        };
        release
    }

    /// The name of the role with the rights where agents live, and of its bindings.
    pub fn agent_role(&self) -> String {
        format!("{}-materials", self.name)
    }

    /// The command that installs missing objects of the chart again.
    pub fn upgrade(&self) -> String {
        format!(
            "helm upgrade {} CHART -n {} --reset-then-reuse-values",
            self.instance, self.namespace
        )
    }
}

/// Label with the name of Helm's release.
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_controller_s_arguments_have_the_names() {
        let arguments = [
            "controller",
            "--webhook-config-name=den",
            "--lease=den-lease",
            "--webhook-service=den-hook",
            "--link-service=den-line",
            "--certificate-secret=den-keys",
            "--secret-namespaces=pond,lake",
        ];
        let deployment = |arguments: &[&str]| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "crib", "labels": {"app.kubernetes.io/instance": "shed"}},
                "spec": {"selector": {}, "template": {"spec": {
                    "serviceAccountName": "den-account",
                    "containers": [{"name": "controller", "args": arguments}],
                }}},
            }))
            .unwrap()
        };
        let expected = Release {
            instance: "shed".into(),
            name: "den".into(),
            namespace: "crib".into(),
            account: "den-account".into(),
            lease: "den-lease".into(),
            webhook_service: "den-hook".into(),
            link_service: "den-line".into(),
            certificate_secret: "den-keys".into(),
            secrets: SecretScope::Namespaces(["pond", "lake"].map(str::to_owned).into()),
            has_hints: false,
        };
        assert_eq!(Release::of(&deployment(&arguments)), expected);
        let wide = Release::of(&deployment(&["--cluster-wide-secrets", "--refresh-hints"]));
        assert!(wide.secrets.includes("reef") && wide.has_hints);
        assert!(!expected.secrets.includes("reef"));
    }
}
