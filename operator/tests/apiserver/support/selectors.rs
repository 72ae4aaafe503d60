//! The chart's policy for the labels that grants select agents by, and an account of the controller that
//! may not create ToolGrants. The harness's own may do everything, so the policy does not refuse it.

use serde_json::{Value, json};

use super::accounts::{apply_all, as_user, binding};
use super::harness::{Harness, rendered};

pub const ROLE: &str = "grants.toolcrib.dev/role";
/// All rights but those on Toolcrib's kinds, of which it has the chart's.
const ACCOUNT: &str = "system:serviceaccount:default:toolcrib-controller";

/// The policy and its binding. The guard is off, and they stand all the same.
pub fn policy() -> Vec<Value> {
    let mut objects = rendered(&["--set=guard.enabled=false"]);
    objects.retain(|object| object["metadata"]["name"] == "toolcrib-selectors");
    assert_eq!(objects.len(), 2);
    objects
}

pub fn cluster_role(name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}

/// Lets the controller run with an account that may not create ToolGrants; returns its rights, to be
/// removed.
pub async fn restrict(harness: &mut Harness) -> Vec<Value> {
    let rights = rights(&harness.system);
    apply_all(harness, &rights).await;
    harness.account = Some(as_user(ACCOUNT).await);
    rights
}

/// Roles and bindings: the chart's rights on Toolcrib's kinds, those of its Role in the namespace
/// `system`, and all rights on other kinds.
fn rights(system: &str) -> Vec<Value> {
    let chart = rendered(&[]);
    let rules_of = |kind: &str| -> Vec<Value> {
        let is = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["name"] == "toolcrib-controller"
        };
        let found = chart.iter().find(is).expect("the role");
        let rules = found["rules"].as_array().expect("rules").iter();
        rules
            .filter(|rule| rule["apiGroups"] == json!(["toolcrib.dev"]))
            .cloned()
            .collect()
    };
    let groups = json!([
        "",
        "admissionregistration.k8s.io",
        "authentication.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "networking.k8s.io",
    ]);
    let mut rules = rules_of("ClusterRole");
    rules.push(json!({"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}));
    let own = rules_of("Role");
    assert_eq!(own.len(), 2, "rules on Toolcrib's kinds: {own:?}");
    let mut bound = binding("", ACCOUNT, "toolcrib-test-controller");
    bound["kind"] = "ClusterRoleBinding".into();
    bound["metadata"] = json!({"name": "toolcrib-test-controller"});
    let mut own_bound = binding(system, ACCOUNT, "toolcrib-test-own");
    own_bound["metadata"]["name"] = "toolcrib-test-own".into();
    vec![
        cluster_role("toolcrib-test-controller", json!(rules)),
        bound,
        cluster_role("toolcrib-test-own", json!(own)),
        own_bound,
    ]
}
