//! Labels that grants select agents by, and the policy that protects them.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use toolcrib_crds::{Agent, ToolGrant};

use crate::support::accounts::{apply, apply_all, as_user, binding, remove};
use crate::support::harness::Harness;
use crate::support::selectors::{ROLE, cluster_role, policy, restrict};
use crate::{READS, tools};

const DEPLOYER: &str = "deployer";
const ADMIN: &str = "grant-admin";
const REFUSED: &str = "only who may create ToolGrants in this namespace may set";

fn agent(namespace: &str, name: &str, labels: Value) -> Agent {
    serde_json::from_value(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"surfaces": [{"name": "reed"}]},
    }))
    .expect("an Agent")
}

/// The message of a refusal.
fn refusal<T>(answer: Result<T, kube::Error>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_users_who_may_create_grants_write_the_labels_that_grants_select_by() {
    let harness = Harness::new().await;
    let policy = policy();
    let all = json!(["*"]);
    let agents = json!({"apiGroups": ["toolcrib.dev"], "resources": ["agents", "agents/status"], "verbs": all});
    let grants =
        json!({"apiGroups": ["toolcrib.dev"], "resources": ["toolgrants"], "verbs": ["create"]});
    let roles = [
        cluster_role("toolcrib-test-deployer", json!([agents])),
        cluster_role("toolcrib-test-grants", json!([agents, grants])),
    ];
    apply_all(&harness, &policy).await;
    apply_all(&harness, &roles).await;
    for (user, role) in [
        (DEPLOYER, "toolcrib-test-deployer"),
        (ADMIN, "toolcrib-test-grants"),
    ] {
        apply(&harness, &binding(&harness.pond, user, role)).await;
    }
    let deployer: Api<Agent> = Api::namespaced(as_user(DEPLOYER).await, &harness.pond);
    let admin: Api<Agent> = Api::namespaced(as_user(ADMIN).await, &harness.pond);
    let stored: Api<Agent> = harness.api(&harness.pond);
    let create = PostParams::default();
    let armed = agent(
        &harness.pond,
        "armed",
        json!({ROLE: "reader", "team": "reeds"}),
    );
    // The API server learns of a policy and of a right a moment later.
    harness
        .eventually("the policy and the rights are known", || async {
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let refused = refusal(deployer.create(&dry_run, &armed).await);
            let allowed = refusal(admin.create(&dry_run, &armed).await);
            let is_known = refused.is_err_and(|why| why.contains(REFUSED)) && allowed.is_ok();
            is_known.then_some(())
        })
        .await;

    // By create; without the label it is created, and other labels are the deployer's.
    let refused = |what: &str, answer: Result<(), String>| {
        let message = answer.expect_err(what);
        assert!(message.contains(REFUSED), "{what}: {message}");
    };
    refused("create", refusal(deployer.create(&create, &armed).await));
    refused(
        "create by apply",
        refusal(
            deployer
                .patch(
                    "armed",
                    &PatchParams::apply("deployer"),
                    &Patch::Apply(&armed),
                )
                .await,
        ),
    );
    let plain = agent(
        &harness.pond,
        "plain",
        json!({"team": "reeds", "toolcrib.dev/role": "x"}),
    );
    assert_eq!(refusal(deployer.create(&create, &plain).await), Ok(()));
    assert_eq!(refusal(admin.create(&create, &armed).await), Ok(()));

    // By every kind of write, in every direction.
    let merge = |labels: Value| Patch::Merge(json!({"metadata": {"labels": labels}}));
    let json_patch =
        |patch: Value| Patch::Json::<Value>(serde_json::from_value(patch).expect("a JSON patch"));
    let applied = |name: &str, labels: Value| {
        Patch::Apply(serde_json::to_value(agent(&harness.pond, name, labels)).expect("JSON"))
    };
    let path = "/metadata/labels/grants.toolcrib.dev~1role";
    let plainly = PatchParams::default();
    let by_apply = PatchParams::apply("deployer").force();
    for (what, name, params, patch) in [
        (
            "set, merge",
            "plain",
            &plainly,
            merge(json!({ROLE: "reader"})),
        ),
        (
            "set another, merge",
            "armed",
            &plainly,
            merge(json!({"grants.toolcrib.dev/team": ""})),
        ),
        (
            "change, merge",
            "armed",
            &plainly,
            merge(json!({ROLE: "writer"})),
        ),
        (
            "remove, merge",
            "armed",
            &plainly,
            merge(json!({ROLE: null})),
        ),
        ("remove all, merge", "armed", &plainly, merge(Value::Null)),
        (
            "set, JSON patch",
            "plain",
            &plainly,
            json_patch(json!([{"op": "add", "path": path, "value": "reader"}])),
        ),
        (
            "change, JSON patch",
            "armed",
            &plainly,
            json_patch(json!([{"op": "replace", "path": path, "value": "writer"}])),
        ),
        (
            "remove, JSON patch",
            "armed",
            &plainly,
            json_patch(json!([{"op": "remove", "path": path}])),
        ),
        (
            "set, apply",
            "plain",
            &by_apply,
            applied("plain", json!({ROLE: "reader"})),
        ),
        (
            "change, apply",
            "armed",
            &by_apply,
            applied("armed", json!({ROLE: "writer"})),
        ),
    ] {
        let answer = deployer.patch(name, params, &patch).await;
        refused(what, refusal(answer));
    }
    for (name, label) in [("plain", Some("reader")), ("armed", None)] {
        let mut object = stored.get(name).await.expect("the Agent");
        let labels = object.metadata.labels.get_or_insert_default();
        match label {
            Some(value) => drop(labels.insert(ROLE.to_owned(), value.to_owned())),
            None => drop(labels.remove(ROLE)),
        }
        refused(
            "replace",
            refusal(deployer.replace(name, &create, &object).await),
        );
    }
    // A status takes no labels.
    let status = json!({"metadata": {"labels": {ROLE: "reader"}}, "status": {"toolCount": 1}});
    let written = deployer
        .patch_status("plain", &plainly, &Patch::Merge(&status))
        .await;
    assert_eq!(refusal(written), Ok(()));
    let label_of = async |name: &str| {
        let found = stored.get(name).await.expect("the Agent");
        found.metadata.labels.unwrap_or_default().remove(ROLE)
    };
    assert_eq!(label_of("plain").await, None);
    assert_eq!(label_of("armed").await.as_deref(), Some("reader"));

    // Everything else of a labelled Agent is the deployer's, and the labels are the grant admin's.
    let more = json!({"metadata": {"labels": {"team": "kelp"}, "annotations": {"toolcrib.dev/suspend-reason": "x"}}, "spec": {"suspend": true}});
    let changed = deployer
        .patch("armed", &plainly, &Patch::Merge(&more))
        .await;
    assert_eq!(refusal(changed), Ok(()));
    for patch in [
        merge(json!({ROLE: "writer"})),
        merge(json!({ROLE: null})),
        merge(json!({ROLE: "reader"})),
    ] {
        assert_eq!(
            refusal(admin.patch("armed", &plainly, &patch).await),
            Ok(())
        );
    }
    let many: serde_json::Map<String, Value> = (0..33)
        .map(|at| (format!("grants.toolcrib.dev/l{at}"), json!("")))
        .collect();
    let many = admin.patch("plain", &plainly, &merge(many.into())).await;
    let many = refusal(many).expect_err("too many");
    assert!(many.contains("at most 32 labels"), "{many}");
    assert_eq!(
        refusal(deployer.delete("armed", &DeleteParams::default()).await),
        Ok(())
    );
    remove(&harness, &policy).await;
    remove(&harness, &roles).await;
    harness.end().await;
}

/// Waits until the status of the grant `selecting` counts so many agents.
async fn matched(harness: &Harness, expected: u32) {
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    harness
        .eventually("the number of agents", || async {
            let grant = grants.get("selecting").await.expect("the grant");
            (grant.status?.matched_agents == Some(expected)).then_some(())
        })
        .await;
}

/// A policy that refuses every labelled Agent of a namespace with its label's value, and the binding.
fn other_policy(namespace: &str) -> [Value; 2] {
    let name = "toolcrib-test-other-policy";
    let api_version = "admissionregistration.k8s.io/v1";
    let label = "object.metadata.labels['grants.toolcrib.dev/check']";
    [
        json!({
            "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [{
                        "apiGroups": ["toolcrib.dev"], "apiVersions": ["*"], "resources": ["agents"],
                        "operations": ["CREATE", "UPDATE"],
                    }],
                },
                "validations": [{
                    "expression": "false",
                    "messageExpression": format!("'no labels here: ' + {label}"),
                }],
            },
        }),
        json!({
            "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_select_agents_only_while_the_policy_is_in_force() {
    let mut harness = Harness::new().await;
    let rights = restrict(&mut harness).await;
    harness.apply_example().await;
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    let selecting = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": "selecting", "namespace": harness.pond},
        "spec": {"agentSelector": {"matchLabels": {ROLE: "trader"}},
            "tools": [{"surface": {"name": "trading-api"}, "allow": ["execute_trade"]}]},
    });
    apply(&harness, &selecting).await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let label = async |value: Value| {
        let patch = json!({"metadata": {"labels": {ROLE: value}}});
        agents
            .patch("analyst", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("it is labelled");
    };
    // Written before there is a policy.
    label(json!("trader")).await;
    harness.start("heron");
    let off = harness
        .condition::<ToolGrant>("selecting", "Resolved", "False/SelectorsOff")
        .await;
    assert!(off.contains("no admission policy refuses"), "{off}");
    assert!(off.contains("install the chart's policy"), "{off}");
    matched(&harness, 0).await;
    let has = |files: &crate::Files| tools(files).len() == 2;
    harness
        .files("analyst", "without the tool", |files| tools(files) == READS)
        .await;

    let policy = policy();
    apply_all(&harness, &policy).await;
    harness.files("analyst", "the policy came", has).await;
    harness
        .condition::<ToolGrant>("selecting", "Resolved", "True/Resolved")
        .await;
    matched(&harness, 1).await;
    assert_eq!(harness.metric("agent_selectors_off").await, 0.0);

    // The label alone takes the tool, and gives it back.
    label(Value::Null).await;
    harness
        .files("analyst", "the label went", |files| tools(files) == READS)
        .await;
    matched(&harness, 0).await;
    label(json!("trader")).await;
    harness.files("analyst", "the label came", has).await;

    // A new leader asks before it compiles, so nothing is taken meanwhile.
    harness.stop().await;
    let version = async || {
        let grant = grants.get("selecting").await.expect("the grant");
        grant.metadata.resource_version
    };
    matched(&harness, 1).await;
    let before = version().await;
    harness.start("egret");
    harness
        .eventually("the new leader is done", || async {
            let is_idle = harness.metric("leader").await == 1.0
                && harness.metric("reconciles").await > 0.0
                && harness.metric("unsettled_objects").await == 0.0;
            is_idle.then_some(())
        })
        .await;
    assert_eq!(version().await, before);
    harness.files("analyst", "it keeps the tool", has).await;

    // Without the binding, the policy refuses nothing.
    remove(&harness, &policy[1..]).await;
    harness
        .files("analyst", "the binding went", |files| tools(files) == READS)
        .await;
    harness
        .condition::<ToolGrant>("selecting", "Resolved", "False/SelectorsOff")
        .await;
    assert_eq!(harness.metric("agent_selectors_off").await, 1.0);
    // The refusal of another policy proves nothing. Its text may have the label's value, which is new
    // in each question, and the status stays the same.
    let other = other_policy(&harness.system);
    apply_all(&harness, &other).await;
    harness
        .eventually("the other policy's refusal", || async {
            let off = harness
                .condition::<ToolGrant>("selecting", "Resolved", "False/SelectorsOff")
                .await;
            off.contains("no labels here: VALUE").then_some(())
        })
        .await;
    remove(&harness, &other).await;
    // The question created no Agent.
    let own: Api<Agent> = harness.api(&harness.system);
    assert_eq!(
        own.list(&Default::default())
            .await
            .expect("a list")
            .items
            .len(),
        0
    );
    remove(&harness, &policy[..1]).await;
    remove(&harness, &rights).await;
    harness.end().await;
}
