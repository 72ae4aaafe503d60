//! The controller's rights in each namespace with agents.

use k8s_openapi::api::rbac::v1::{ClusterRole, RoleRef, Subject};
use kube::ResourceExt as _;
use toolcrib_bounds::count;

use crate::cluster::installation::{CONTROLLER, Facts, Release, SecretScope};
use crate::doctor::finding::{Check, Finding, Findings};

/// What the controller does where agents live: resource and verb. The chart's role has more.
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
        facts.materials.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    let has_controller = facts.deployment(CONTROLLER).is_some();
    if !has_controller {
        // The check of the operator says so. Without its account, no binding can be judged.
        return findings.or_ok("no controller, so no right is needed");
    }
    let release = &facts.release;
    let role = release.materials();
    match &facts.materials {
        Ok(None) => findings.absent(
            facts,
            format!("ClusterRole {role} does not exist, so the controller has no right to any agent's Secrets"),
            format!("install it again: {}", release.upgrade()),
        ),
        Ok(Some(found)) if !gives(found) => findings.error(
            format!("ClusterRole {role} lacks rights on secrets, configmaps or networkpolicies"),
            format!("install it again: {}", release.upgrade()),
        ),
        Ok(Some(_)) | Err(_) => {}
    }
    let namespaces = facts.inhabited();
    for namespace in &namespaces {
        namespace_rights(facts, namespace, &mut findings);
    }
    findings.or_ok(match namespaces.len() {
        0 => "no agent, so no right is needed".to_owned(),
        many => format!(
            "the controller may write the files of agents in {}",
            count(many, "namespace")
        ),
    })
}

fn gives(role: &ClusterRole) -> bool {
    let rules = role.rules.as_deref().unwrap_or_default();
    NEEDED.into_iter().all(|(resource, verb)| {
        rules.iter().any(|rule| {
            let has = |list: &Option<Vec<String>>, word: &str| {
                let mut words = list.iter().flatten();
                words.any(|it| it == word || it == "*")
            };
            has(&rule.resources, resource) && has(&Some(rule.verbs.clone()), verb)
        })
    })
}

fn namespace_rights(facts: &Facts, namespace: &str, findings: &mut Findings) {
    let release = &facts.release;
    if !release.secrets.includes(namespace) {
        findings.error(
            format!("namespace {namespace} has agents, and the chart does not serve it: it is not among secretNamespaces"),
            format!("run {} --set 'secretNamespaces={{{}}}'", release.upgrade(), widened(release, namespace)),
        );
        return;
    }
    let is_everywhere = matches!(&facts.everywhere, Ok(Some(binding)) if is_ours(release, &binding.role_ref, binding.subjects.as_deref()));
    if is_everywhere {
        return;
    }
    let bindings = match &facts.role_bindings {
        Ok(bindings) => bindings,
        Err(gap) => return findings.gap(gap),
    };
    let mut own = bindings
        .iter()
        .filter(|it| it.namespace().as_deref() == Some(namespace));
    if !own.any(|binding| is_ours(release, &binding.role_ref, binding.subjects.as_deref())) {
        findings.error(
            format!(
                "namespace {namespace} has agents, and no RoleBinding gives ServiceAccount {}/{} the ClusterRole {} there",
                release.namespace, release.account, release.materials()
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
        && role.name == release.materials()
        && subjects.unwrap_or_default().iter().any(is_account)
}

/// The RoleBinding as the chart writes it.
fn binding(release: &Release, namespace: &str) -> String {
    let Release {
        namespace: system,
        account,
        ..
    } = release;
    let role = release.materials();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {role}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}
subjects:
- {{kind: ServiceAccount, name: {account}, namespace: {system}}}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::rbac::v1::RoleBinding;

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
        assert_eq!(widened(&release, "pond"), "lake,pond");
    }
}
