//! The controller's rights in each namespace with agents.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, RoleRef, Subject};
use toolcrib_bounds::count;

use crate::cluster::installation::{CONTROLLER, Facts, Release, SecretScope};
use crate::doctor::finding::{Check, Finding, Findings};

/// The resources and verbs that the controller needs in a namespace with agents. The chart's role has more.
const NEEDED: [(&str, &str); 4] = [
    ("secrets", "list"),
    ("secrets", "create"),
    ("configmaps", "patch"),
    ("networkpolicies", "create"),
];

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Rights);
    let gaps = [
        facts.deployments.as_ref().err(),
        facts.agents.as_ref().err(),
        facts.pods.as_ref().err(),
        facts.agent_role.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    let has_controller = facts.deployment(CONTROLLER).is_some();
    if !has_controller {
        // The check of the operator says so. Without its account, no binding can be judged.
        return findings.finish("no controller, so no right is needed");
    }
    let release = &facts.release;
    let role = release.agent_role();
    match &facts.agent_role {
        Ok(None) => findings.absent(
            facts,
            format!("ClusterRole {role} does not exist, so the controller has no right to any agent's Secrets"),
            format!("install it again: {}", release.upgrade()),
        ),
        Ok(Some(found)) if !NEEDED.into_iter().all(|(resource, verb)| allows(found, resource, verb)) => findings.error(
            format!("ClusterRole {role} lacks rights on secrets, configmaps or networkpolicies"),
            format!("install it again: {}", release.upgrade()),
        ),
        Ok(Some(_)) | Err(_) => {}
    }
    let namespaces = facts.agent_namespaces();
    let bindings = facts.role_bindings.iter().flatten();
    let bound: BTreeSet<&str> = bindings
        .filter(|it| is_ours(release, &it.role_ref, it.subjects.as_deref()))
        .filter_map(|it| it.metadata.namespace.as_deref())
        .collect();
    for namespace in &namespaces {
        namespace_rights(facts, namespace, bound.contains(namespace), &mut findings);
    }
    findings.finish(match namespaces.len() {
        0 => "no agent, so no right is needed".to_owned(),
        many => format!(
            "the controller may write the files of agents in {}",
            count(many, "namespace")
        ),
    })
}

/// Whether a rule of the role gives the verb on the resource.
pub(super) fn allows(role: &ClusterRole, resource: &str, verb: &str) -> bool {
    role.rules.iter().flatten().any(|rule| {
        let has = |words: &[String], word: &str| words.iter().any(|it| it == word || it == "*");
        has(rule.resources.as_deref().unwrap_or_default(), resource) && has(&rule.verbs, verb)
    })
}

/// `is_bound`: a RoleBinding of the namespace gives the controller its role there.
fn namespace_rights(facts: &Facts, namespace: &str, is_bound: bool, findings: &mut Findings) {
    let release = &facts.release;
    if !release.secrets.includes(namespace) {
        findings.error(
            format!("namespace {namespace} has agents, and the chart does not serve it: it is not among secretNamespaces"),
            format!("run {} --set 'secretNamespaces={{{}}}'", release.upgrade(), widened(release, namespace)),
        );
        return;
    }
    let is_everywhere = matches!(&facts.agent_role_binding, Ok(Some(binding)) if is_ours(release, &binding.role_ref, binding.subjects.as_deref()));
    if is_everywhere || is_bound {
        return;
    }
    let gaps = [
        facts.agent_role_binding.as_ref().err(),
        facts.role_bindings.as_ref().err(),
    ];
    if gaps.iter().any(Option::is_some) {
        for gap in gaps.into_iter().flatten() {
            findings.gap(gap);
        }
    } else {
        findings.error(
            format!(
                "namespace {namespace} has agents, and no RoleBinding gives ServiceAccount {}/{} the ClusterRole {} there",
                release.namespace, release.account, release.agent_role()
            ),
            format!("apply this RoleBinding, or install it again ({}):\n{}", release.upgrade(), binding(release, namespace)),
        );
    }
}

/// The value of `secretNamespaces` with one more.
fn widened(release: &Release, namespace: &str) -> String {
    match &release.secrets {
        SecretScope::All => namespace.to_owned(),
        SecretScope::Namespaces(named) => {
            let all = named.iter().map(String::as_str).chain([namespace]);
            all.collect::<Vec<_>>().join(",")
        }
    }
}

fn is_ours(release: &Release, role: &RoleRef, subjects: Option<&[Subject]>) -> bool {
    let is_account = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == release.account
            && subject.namespace.as_ref() == Some(&release.namespace)
    };
    role.kind == "ClusterRole"
        && role.name == release.agent_role()
        && subjects.unwrap_or_default().iter().any(is_account)
}

/// The RoleBinding as the chart writes it. Helm takes it over in the next upgrade, since it names the release.
fn binding(release: &Release, namespace: &str) -> String {
    let Release {
        instance,
        namespace: system,
        account,
        ..
    } = release;
    let role = release.agent_role();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {role}
  namespace: {namespace}
  labels: {{app.kubernetes.io/managed-by: Helm}}
  annotations: {{meta.helm.sh/release-name: {instance}, meta.helm.sh/release-namespace: {system}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}
subjects:
- {{kind: ServiceAccount, name: {account}, namespace: {system}}}"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::RoleBinding;
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn the_printed_binding_is_one_that_counts() {
        let release = Release {
            secrets: SecretScope::Namespaces(BTreeSet::from(["lake".to_owned()])),
            ..Release::assumed("crib")
        };
        let printed: RoleBinding = serde_yaml::from_str(&binding(&release, "pond")).unwrap();
        assert!(is_ours(
            &release,
            &printed.role_ref,
            printed.subjects.as_deref()
        ));
        assert_eq!(printed.namespace().as_deref(), Some("pond"));
        assert_eq!(
            printed.annotations()["meta.helm.sh/release-name"],
            "toolcrib"
        );
        assert_eq!(widened(&release, "pond"), "lake,pond");
    }
}
