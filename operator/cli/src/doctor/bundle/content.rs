//! Builds the files of a bundle from the facts, without IO.

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib_bounds::count;

use super::redact::{self, Owner};
use crate::cluster::installation::{Documents, Facts, Gap, List, Object};
use crate::doctor::finding::Finding;
use crate::doctor::report;

/// Limit on the bytes of all files.
const MOST: usize = 64 << 20;

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    /// A description of the content, which the user reads before the file is written.
    pub about: String,
    pub text: String,
}

/// A log, and the pod and container that wrote it.
pub struct Log {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub text: Result<String, Gap>,
}

/// The objects and logs that only the bundle needs.
pub struct Extras {
    pub documents: Vec<Documents>,
    pub operator_pods: List<Pod>,
    pub logs: Vec<Log>,
}

/// Returns the files, in the order of writing.
pub fn files(facts: &Facts, extras: &Extras, findings: &[Finding]) -> anyhow::Result<Vec<File>> {
    let mut content = Content::default();
    content.add(
        "findings.txt",
        &count(findings.len(), "finding"),
        report::text(findings),
    );
    content.add("findings.json", "the same, for programs", pretty(findings)?);
    let versions = json!({
        "kubectl-toolcrib": env!("CARGO_PKG_VERSION"),
        "kubernetes": facts.server,
        "time": facts.now.to_string(),
    });
    content.add("versions.json", "versions and the time", pretty(&versions)?);
    for documents in &extras.documents {
        content.objects(
            &documents.kind,
            &documents.kind,
            Owner::User,
            &documents.objects,
        )?;
    }
    content.named(
        "Deployment",
        "Deployment",
        Owner::Operator,
        &facts.deployments,
    )?;
    content.typed("Lease", &list_of(&facts.lease))?;
    content.typed(
        "MutatingWebhookConfiguration",
        &list_of(&facts.mutating_webhooks),
    )?;
    content.typed(
        "ValidatingWebhookConfiguration",
        &list_of(&facts.validating_webhooks),
    )?;
    let own = |name: &Option<String>| {
        let prefix = format!("{}-", facts.release.name);
        name.as_ref().is_some_and(|name| name.starts_with(&prefix))
    };
    let policies = facts.policies.clone().map(|mut all| {
        all.retain(|it| own(&it.metadata.name));
        all
    });
    content.typed("ValidatingAdmissionPolicy", &policies)?;
    let bindings = facts.bindings.clone().map(|mut all| {
        all.retain(|it| own(&it.metadata.name));
        all
    });
    content.typed("ValidatingAdmissionPolicyBinding", &bindings)?;
    content.typed("EndpointSlice", &facts.endpoints)?;
    content.typed("ClusterRole", &list_of(&facts.agent_role))?;
    content.typed("ClusterRoleBinding", &list_of(&facts.agent_role_binding))?;
    let role_bindings = facts.role_bindings.clone().map(|mut all| {
        all.retain(|it| own(&it.metadata.name));
        all
    });
    content.typed("RoleBinding", &role_bindings)?;
    content.typed("Pod", &facts.pods)?;
    content.named(
        "operator-pod",
        "Pod",
        Owner::Operator,
        &extras.operator_pods,
    )?;
    content.typed("NetworkPolicy", &facts.network_policies)?;
    let namespaces = facts
        .namespaces
        .values()
        .map(|it| it.clone().map(|it| it.into_iter()));
    let namespaces: Result<Vec<_>, Gap> = namespaces.collect();
    let namespaces = namespaces.map(|all| all.into_iter().flatten().collect());
    content.typed("Namespace", &namespaces)?;
    for log in &extras.logs {
        let name = format!("logs/{}_{}_{}.log", log.namespace, log.pod, log.container);
        match &log.text {
            Ok(text) => content.add(
                &name,
                "a log, without lines of the record",
                redact::log(text),
            ),
            Err(gap) => content.missing(&name, gap),
        }
    }
    Ok(content.end())
}

fn list_of<T: Clone>(object: &Object<T>) -> List<T> {
    object.clone().map(|found| found.into_iter().collect())
}

fn pretty(value: &(impl Serialize + ?Sized)) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

#[derive(Default)]
struct Content {
    files: Vec<File>,
    bytes: usize,
    missing: Vec<String>,
}

impl Content {
    fn add(&mut self, name: &str, about: &str, text: String) {
        let bytes = self.bytes.saturating_add(text.len());
        if bytes > MOST {
            let bound = MOST >> 20;
            self.missing.push(format!(
                "{name}: left out, with it the bundle has over {bound} MiB"
            ));
            return;
        }
        self.bytes = bytes;
        self.files.push(File {
            name: name.to_owned(),
            about: about.to_owned(),
            text,
        });
    }

    fn missing(&mut self, name: &str, gap: &Gap) {
        self.missing
            .push(format!("{name}: could not {}: {}", gap.question, gap.why));
    }

    fn objects(
        &mut self,
        name: &str,
        kind: &str,
        owner: Owner,
        objects: &List<Value>,
    ) -> anyhow::Result<()> {
        let name = format!("objects/{}.json", name.to_lowercase());
        match objects {
            Err(gap) => self.missing(&name, gap),
            Ok(none) if none.is_empty() => {}
            Ok(objects) => {
                let kept = objects.iter().map(|it| redact::object(kind, it, owner));
                let kept: Vec<Value> = kept.collect();
                self.add(&name, &count(kept.len(), "object"), pretty(&kept)?);
            }
        }
        Ok(())
    }

    fn typed<T: Serialize>(&mut self, kind: &str, objects: &List<T>) -> anyhow::Result<()> {
        self.named(kind, kind, Owner::User, objects)
    }

    fn named<T: Serialize>(
        &mut self,
        name: &str,
        kind: &str,
        owner: Owner,
        objects: &List<T>,
    ) -> anyhow::Result<()> {
        match objects {
            Ok(objects) => {
                let values = objects.iter().map(serde_json::to_value);
                let values: Result<Vec<Value>, _> = values.collect();
                self.objects(name, kind, owner, &Ok(values?))
            }
            Err(gap) => self.objects(name, kind, owner, &Err(gap.clone())),
        }
    }

    fn end(mut self) -> Vec<File> {
        if !self.missing.is_empty() {
            let text = self.missing.join("\n") + "\n";
            let about = "the requests that failed, and files that are too long";
            self.files.push(File {
                name: "missing.txt".to_owned(),
                about: about.to_owned(),
                text,
            });
        }
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::checks;
    use crate::doctor::checks::tests::healthy::Cluster;

    /// In every place where it must not be read from.
    const HOSTILE: &str = "s3cret-9b1f";

    fn documents(cluster: &Cluster, kinds: &[&str]) -> Vec<Documents> {
        let of = |kind: &str| {
            let own = cluster.objects.iter().filter(|it| it["kind"] == kind);
            Documents {
                kind: kind.to_owned(),
                objects: Ok(own.cloned().collect()),
            }
        };
        kinds.iter().map(|kind| of(kind)).collect()
    }

    fn hostile() -> Cluster {
        let mut cluster = Cluster::healthy();
        for object in &mut cluster.objects {
            let annotations = &mut object["metadata"]["annotations"];
            if annotations.is_null() {
                *annotations = json!({});
            }
            annotations["kubectl.kubernetes.io/last-applied-configuration"] = json!(HOSTILE);
            annotations["note"] = json!(HOSTILE);
            object["metadata"]["managedFields"] = json!([{"manager": HOSTILE}]);
        }
        let env = json!([{"name": "API_KEY", "value": HOSTILE}]);
        let pod = cluster.get("Pod", "otter-1");
        pod["spec"]["initContainers"][0]["env"] = env.clone();
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": HOSTILE}});
        pod["spec"]["containers"] = json!([
            {"name": "controller", "image": "otter", "args": ["--token", HOSTILE], "command": ["run", HOSTILE], "env": env},
        ]);
        pod["status"]["containerStatuses"] = json!([
            {"name": "agent", "ready": false, "restartCount": 1, "image": "otter", "imageID": "", "lastState": ended},
        ]);
        let controller =
            &mut cluster.get("Deployment", "toolcrib-controller")["spec"]["template"]["spec"];
        controller["containers"][0]["env"] = env;
        let endpoint = format!("--mediator-otlp-endpoint=http://otter:{HOSTILE}@collector");
        controller["containers"][0]["args"]
            .as_array_mut()
            .unwrap()
            .push(json!(endpoint));
        let configuration = cluster.get("MutatingWebhookConfiguration", "toolcrib");
        configuration["webhooks"][0]["clientConfig"]["service"]["path"] =
            json!(format!("/inject/{HOSTILE}"));
        configuration["webhooks"][0]["clientConfig"]["url"] =
            json!(format!("https://hook.test/inject/{HOSTILE}"));
        let surface = cluster.get("Surface", "fish");
        surface["spec"]["url"] = json!(format!("https://otter:{HOSTILE}@fish.test/?key={HOSTILE}"));
        cluster.get("Secret", "fish")["stringData"]["token"] = json!(HOSTILE);
        cluster.add(json!({
            "kind": "ToolApproval", "metadata": {"name": "otter-1", "namespace": "pond"},
            "spec": {"tool": "fish.dive", "arguments": format!("{{\"depth\":\"{HOSTILE}\"}}")},
        }));
        cluster.add(json!({
            "kind": "Unheard", "metadata": {"name": "of", "namespace": "pond"}, "spec": {"token": HOSTILE},
        }));
        cluster
    }

    #[test]
    fn no_secret_no_argument_and_no_variable_is_in_a_bundle() {
        let cluster = hostile();
        let facts = cluster.facts();
        let findings = checks::all(&facts);
        let kinds = ["Agent", "Surface", "ToolApproval", "Unheard"];
        let line = format!(r#"{{"kind":"turn","arguments":"{HOSTILE}"}}"#);
        let logs = vec![Log {
            namespace: "pond".into(),
            pod: "otter-1".into(),
            container: "toolcrib-mediator".into(),
            text: Ok(format!("{line}\n{HOSTILE}\n")),
        }];
        let operator = cluster.objects.iter().filter(|it| it["kind"] == "Pod");
        let operator = operator.map(|it| serde_json::from_value(it.clone()).unwrap());
        let extras = Extras {
            documents: documents(&cluster, &kinds),
            operator_pods: Ok(operator.collect()),
            logs,
        };
        let files = files(&facts, &extras, &findings).unwrap();
        for file in &files {
            assert!(
                !file.text.contains(HOSTILE),
                "{}:\n{}",
                file.name,
                file.text
            );
        }
        let names: Vec<&str> = files.iter().map(|file| &*file.name).collect();
        assert_eq!(
            names,
            [
                "findings.txt",
                "findings.json",
                "versions.json",
                "objects/agent.json",
                "objects/surface.json",
                "objects/toolapproval.json",
                "objects/unheard.json",
                "objects/deployment.json",
                "objects/lease.json",
                "objects/mutatingwebhookconfiguration.json",
                "objects/validatingwebhookconfiguration.json",
                "objects/validatingadmissionpolicy.json",
                "objects/validatingadmissionpolicybinding.json",
                "objects/endpointslice.json",
                "objects/clusterrole.json",
                "objects/rolebinding.json",
                "objects/pod.json",
                "objects/operator-pod.json",
                "objects/namespace.json",
                "logs/pond_otter-1_toolcrib-mediator.log",
            ]
        );
        let text = |name: &str| &files.iter().find(|file| file.name == name).unwrap().text;
        assert!(text("objects/agent.json").contains("manifestDigest"));
        assert!(text("objects/pod.json").contains("API_KEY"));
        assert!(text("objects/deployment.json").contains("--mediator-otlp-endpoint=…"));
        assert!(text("objects/deployment.json").contains("--secret-namespaces=pond"));
        assert!(text("objects/surface.json").contains("https://fish.test/"));
        assert!(text("objects/toolapproval.json").contains("fish.dive"));
    }

    #[test]
    fn a_bundle_says_what_could_not_be_read() {
        let mut cluster = Cluster::healthy();
        cluster.forbidden = vec!["leases"];
        let none = Extras {
            documents: Vec::new(),
            operator_pods: Ok(Vec::new()),
            logs: Vec::new(),
        };
        let files = files(&cluster.facts(), &none, &[]).unwrap();
        let last = files.last().unwrap();
        assert_eq!(last.name, "missing.txt");
        assert_eq!(
            last.text,
            "objects/lease.json: could not get leases toolcrib-system/toolcrib-controller: forbidden\n"
        );
    }
}
