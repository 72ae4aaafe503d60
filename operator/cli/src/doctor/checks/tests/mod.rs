//! Each check against a table: a healthy installation, one fault, and the finding with its cure.

pub(in crate::doctor) mod healthy;
mod inhabitants;
mod installation;

use toolcrib_golden::says_what_to_do;

use self::healthy::Cluster;
use crate::doctor::finding::{Finding, Level};

fn findings(breaks: impl Fn(&mut Cluster)) -> Vec<Finding> {
    let mut cluster = Cluster::healthy();
    breaks(&mut cluster);
    super::all(&cluster.facts())
}

/// Breaks the installation; expects these findings, as `check: level: message => cure`, and that all other
/// checks are in order.
#[track_caller]
fn check(breaks: impl Fn(&mut Cluster), expected: &[&str]) {
    let found = findings(breaks);
    let wrong = found.iter().filter(|it| it.level != Level::Ok);
    let lines: Vec<String> = wrong
        .map(|it| {
            format!(
                "{}: {}: {} => {}",
                it.check.name(),
                it.level.name(),
                it.message,
                it.cure
            )
        })
        .collect();
    for finding in found.iter().filter(|it| it.level != Level::Ok) {
        assert!(says_what_to_do(&finding.cure), "{finding:?}");
    }
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, parts) in lines.iter().zip(expected) {
        for part in parts.split(" … ") {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    }
}

#[test]
fn a_healthy_installation_has_one_line_per_check() {
    let found = findings(|_| {});
    let lines: Vec<String> = found
        .iter()
        .map(|it| format!("{} {}: {}", it.level.name(), it.check.name(), it.message))
        .collect();
    let own = env!("CARGO_PKG_VERSION");
    let expected = [
        format!("OK versions: Kubernetes v1.35.2, operator {own}, this command {own}, 1 mediator of this release"),
        "OK definitions: 8 definitions installed, with the fields of this release".into(),
        "OK operator: 2 controller pods and 2 webhook pods available in namespace toolcrib-system".into(),
        "OK leader: heron leads".into(),
        "OK webhook: both configurations toolcrib lead to running pods, and select every namespace with agents".into(),
        "OK certificates: valid until 2027-01-01T00:00:00Z or longer".into(),
        "OK policies: 12 policies, all bound".into(),
        "OK rights: the controller may write the files of agents in 1 namespace".into(),
        "OK agents: 1 agent in namespace pond (-A looks at all), all ready".into(),
        "OK pods: 1 pod, each with a mediator".into(),
        "OK link: 1 pod reported the current files".into(),
        "OK secrets: 1 Secret in use, with label and hosts".into(),
        "OK network: no NetworkPolicy blocks a mediator's way to the operator or the name servers (0 policy objects checked)".into(),
        "OK hints: on (hints.enabled)".into(),
    ];
    assert_eq!(lines, expected);
}

/// A user who may read the objects of one namespace.
#[test]
fn a_forbidden_read_is_reported_with_the_missing_right() {
    check(
        |it| it.forbidden = vec!["leases"],
        &[
            "leader: NOT CHECKED: you may not get leases toolcrib-system/toolcrib-controller => ask for `get` on leases in namespace toolcrib-system",
        ],
    );
    check(
        |it| it.forbidden = vec!["customresourcedefinitions"],
        &[
            "definitions: NOT CHECKED: you may not get customresourcedefinitions agents.toolcrib.dev, … and 5 more => ask for `get` on customresourcedefinitions",
        ],
    );
    let found = findings(|it| {
        it.forbidden = vec![
            "deployments",
            "leases",
            "configurations",
            "endpointslices",
            "secrets toolcrib-system",
            "validatingadmission",
            "clusterrole",
            "definitions",
            "rolebindings",
            "namespaces ",
        ];
    });
    let checked: Vec<&str> = found
        .iter()
        .filter(|it| it.level == Level::Ok)
        .map(|it| it.check.name())
        .collect();
    assert_eq!(checked, ["agents", "pods", "secrets"]);
    assert!(
        found
            .iter()
            .all(|it| matches!(it.level, Level::Ok | Level::NotChecked)),
        "{found:#?}"
    );
}

/// A user who may read all but the Deployments does not know the names of another release's objects.
#[test]
fn objects_with_guessed_names_are_not_reported_missing() {
    let found = findings(|it| {
        it.forbidden = vec!["deployments"];
        it.remove("MutatingWebhookConfiguration", "toolcrib");
        it.remove("ValidatingAdmissionPolicy", "toolcrib-guard");
        it.remove("Lease", "toolcrib-controller");
        it.remove("Secret", "toolcrib-certificates");
        it.remove("EndpointSlice", "toolcrib-link");
    });
    assert!(
        found.iter().all(|it| it.level != Level::Error),
        "{found:#?}"
    );
    let right = "ask for `list` on deployments in namespace toolcrib-system";
    for check in ["leader", "webhook", "certificates", "policies", "link"] {
        let of_check = found.iter().find(|it| it.check.name() == check).unwrap();
        assert_eq!(
            (of_check.level, &*of_check.cure),
            (Level::NotChecked, right),
            "{check}"
        );
    }
}

#[test]
fn a_namespace_without_agents_is_in_order() {
    let found = findings(|it| {
        it.remove("Agent", "otter");
        it.remove("Pod", "otter-1");
        it.remove("RoleBinding", "toolcrib-materials");
    });
    let agents = found.iter().find(|it| it.check.name() == "agents").unwrap();
    assert_eq!(
        agents.message,
        "there is no agent in namespace pond (-A looks at all)"
    );
    assert!(found.iter().all(|it| it.level == Level::Ok), "{found:#?}");
}
