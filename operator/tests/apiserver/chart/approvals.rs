//! Forged approvals and decisions. The API server alone refuses them: nothing of ours runs here.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use toolcrib_crds::{ToolApproval, ToolDecision};

use crate::support::accounts::{apply, apply_all, as_member, as_user, binding, remove};
use crate::support::approvals::{APPROVER, CONTROLLER, approval, controller, decision, objects};
use crate::support::harness::{Harness, rendered};

const HERON: &str = "heron";
/// A service account that holds the role of approvers, as a pod of the agent would run as it.
const POD: &str = "system:serviceaccount:pond:otter";
const BRIDGE: &str = "system:serviceaccount:chat:bridge";
const NODE: &str = "system:node:reef";

fn message<T>(answer: Result<T, kube::Error>) -> Result<(), String> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused(what: &str, answer: Result<(), String>, words: &str) {
    let message = answer.expect_err(what);
    assert!(message.contains(words), "{what}: {message}");
}

fn typed<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}

fn approvals(client: Client, pond: &str) -> Api<ToolApproval> {
    Api::namespaced(client, pond)
}

fn decisions(client: Client, pond: &str) -> Api<ToolDecision> {
    Api::namespaced(client, pond)
}

/// Policies and rights: `heron`, a pod, a bridge and a node hold the approver's role; `admin` and the
/// controller may do everything in the pond.
async fn install(harness: &Harness, settings: &[&str]) -> Vec<Value> {
    let installed = objects(settings);
    apply_all(harness, &installed).await;
    for user in [HERON, POD, BRIDGE, NODE] {
        apply(harness, &binding(&harness.pond, user, APPROVER)).await;
    }
    for user in ["admin", CONTROLLER] {
        apply(harness, &binding(&harness.pond, user, "cluster-admin")).await;
    }
    // The API server learns of policies and rights a moment later.
    let by_admin = approvals(as_user("admin").await, &harness.pond);
    let by_heron = decisions(as_user(HERON).await, &harness.pond);
    let by_controller = approvals(controller().await, &harness.pond);
    let asked = approval(&harness.pond, "otter-probe");
    let forged = decision(&asked, "probe", "x", json!({"username": "newt"}));
    harness
        .eventually("policies and rights are known", || async {
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let made = message(by_admin.create(&dry_run, &typed(asked.clone())).await);
            let own = message(by_controller.create(&dry_run, &typed(asked.clone())).await);
            let named = message(by_heron.create(&dry_run, &typed(forged.clone())).await);
            let is_known = made.is_err_and(|why| why.contains("only the controller creates"))
                && named.is_err_and(|why| why.contains("must be the user who creates"))
                && own.is_ok();
            is_known.then_some(())
        })
        .await;
    installed
}

/// A ToolApproval that the controller created.
async fn ask(harness: &Harness, name: &str) -> (Value, String) {
    let asked = approval(&harness.pond, name);
    let api = approvals(controller().await, &harness.pond);
    let created = api
        .create(&PostParams::default(), &typed(asked.clone()))
        .await;
    (asked, created.expect("it is created").uid().expect("a uid"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_names_the_user_who_creates_it() {
    let harness = Harness::new().await;
    let installed = install(&harness, &[]).await;
    let (asked, uid) = ask(&harness, "otter-0123456789ab").await;
    let create = async |client: Client, name: &str, by: Value| {
        let decision = decision(&asked, name, &uid, by);
        let api = decisions(client, &harness.pond);
        message(api.create(&PostParams::default(), &typed(decision)).await)
    };
    let heron = || as_user(HERON);
    let warden = || as_member(HERON, &["wardens", "anglers"]);

    let by_another = "must be the user who creates";
    let answer = create(heron().await, "newts", json!({"username": "newt"})).await;
    refused("another's name", answer, by_another);
    let answer = create(
        heron().await,
        "uid",
        json!({"username": HERON, "uid": "17"}),
    )
    .await;
    refused("another's uid", answer, by_another);
    let of_others = json!({"username": HERON, "groups": ["wardens"]});
    let answer = create(heron().await, "groups", of_others.clone()).await;
    refused("a group of others", answer, "has a group that the user");
    let more = json!({"username": HERON, "groups": ["wardens", "keepers"]});
    let answer = create(warden().await, "more-groups", more).await;
    refused("one group of others", answer, "has a group that the user");
    for (account, name) in [(POD, "pod"), (BRIDGE, "bridge"), (NODE, "node")] {
        let answer = create(as_user(account).await, name, json!({"username": account})).await;
        refused(account, answer, "only if approvals.accounts");
    }
    // Who may create decisions and is nobody else may do so, in the groups that they are in.
    assert_eq!(
        create(heron().await, "own", json!({"username": HERON})).await,
        Ok(())
    );
    assert_eq!(create(warden().await, "warden", of_others).await, Ok(()));
    // Without the role, nobody may, and a namespace's admin does not have it.
    let answer = create(as_user("newt").await, "newt", json!({"username": "newt"})).await;
    refused("no right", answer, "cannot create resource");
    remove(&harness, &installed).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_decide_only_if_the_chart_names_them() {
    let harness = Harness::new().await;
    let named = format!("--set=approvals.accounts={{{BRIDGE}}}");
    let installed = install(&harness, &[&named]).await;
    let (asked, uid) = ask(&harness, "otter-0123456789ab").await;
    for (account, name, is_named) in [(BRIDGE, "bridge", true), (POD, "pod", false)] {
        let decision = decision(&asked, name, &uid, json!({"username": account}));
        let api = decisions(as_user(account).await, &harness.pond);
        let answer = message(api.create(&PostParams::default(), &typed(decision)).await);
        assert_eq!(answer.is_ok(), is_named, "{answer:?}");
    }
    remove(&harness, &installed).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_stay_as_they_were_created_and_only_the_controller_counts_them() {
    let harness = Harness::new().await;
    let installed = install(&harness, &[]).await;
    let (asked, uid) = ask(&harness, "otter-0123456789ab").await;
    let own = decision(&asked, "own", &uid, json!({"username": HERON}));
    let by_heron = decisions(as_user(HERON).await, &harness.pond);
    by_heron
        .create(&PostParams::default(), &typed(own))
        .await
        .expect("it is created");
    let merge = PatchParams::default();
    let counted = json!({"status": {"conditions": [{
        "type": "Counted", "status": "True", "reason": "Counted", "message": "",
        "lastTransitionTime": "2026-11-27T09:00:00Z",
    }]}});
    for (client, is_admin) in [(as_user("admin").await, true), (controller().await, false)] {
        let api = decisions(client, &harness.pond);
        for spec in [
            json!({"verdict": "Deny"}),
            json!({"callDigest": "c1:other"}),
            json!({"approval": {"name": "otter-other", "uid": "other"}}),
            json!({"decidedBy": {"username": "newt"}}),
            json!({"reason": "written later"}),
        ] {
            let patch = Patch::Merge(json!({"spec": spec}));
            let answer = message(api.patch("own", &merge, &patch).await);
            refused(
                &format!("{spec} by an admin: {is_admin}"),
                answer,
                "cannot change",
            );
        }
        let answer = message(
            api.patch_status("own", &merge, &Patch::Merge(&counted))
                .await,
        );
        match is_admin {
            true => refused("status", answer, "only the controller writes the status"),
            false => assert_eq!(answer, Ok(())),
        }
        // What the garbage collector and GitOps tools write.
        let metadata = json!({"metadata": {"labels": {"team": "reeds"}}});
        let answer = message(api.patch("own", &merge, &Patch::Merge(&metadata)).await);
        assert_eq!(answer, Ok(()));
    }
    remove(&harness, &installed).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_controller_writes_approvals() {
    let harness = Harness::new().await;
    let installed = install(&harness, &[]).await;
    let (asked, _) = ask(&harness, "otter-0123456789ab").await;
    let admin = approvals(as_user("admin").await, &harness.pond);
    let own = approvals(controller().await, &harness.pond);
    let words = "only the controller creates ToolApprovals and writes their spec and status";
    let merge = PatchParams::default();

    // Copied from an earlier one, under another name and with other arguments.
    let mut copied = approval(&harness.pond, "otter-ba9876543210");
    copied["spec"] = asked["spec"].clone();
    let answer = message(
        admin
            .create(&PostParams::default(), &typed(copied.clone()))
            .await,
    );
    refused("a copy", answer, words);
    let name = "otter-ba9876543210";
    let applied = admin
        .patch(name, &PatchParams::apply("admin"), &Patch::Apply(&copied))
        .await;
    refused("an applied copy", message(applied), words);

    let name = "otter-0123456789ab";
    let other = Patch::Merge(json!({"spec": {"arguments": r#"{"depth":4}"#}}));
    refused(
        "another call",
        message(admin.patch(name, &merge, &other).await),
        "toolcrib",
    );
    let answer = message(own.patch(name, &merge, &other).await);
    refused(
        "another call, by the controller",
        answer,
        "its spec cannot change",
    );
    let decided = json!({"status": {"phase": "Approved", "decidedBy": "heron", "conditions": [{
        "type": "Decided", "status": "True", "reason": "Approved", "message": "",
        "lastTransitionTime": "2026-11-27T09:00:00Z",
    }]}});
    let decided = Patch::Merge(&decided);
    refused(
        "status",
        message(admin.patch_status(name, &merge, &decided).await),
        words,
    );
    assert_eq!(
        message(own.patch_status(name, &merge, &decided).await),
        Ok(())
    );
    let removed = Patch::Merge(json!({"status": null}));
    refused(
        "no status",
        message(admin.patch_status(name, &merge, &removed).await),
        words,
    );

    // The question by which the controller sees that the policy refuses.
    let check = approval(&harness.pond, "toolcrib-approval-check");
    refused(
        "the check",
        message(own.create(&PostParams::default(), &typed(check)).await),
        words,
    );

    // Metadata and deletion are the namespace's.
    let metadata = Patch::Merge(json!({"metadata": {"annotations": {"note": "seen"}}}));
    assert_eq!(message(admin.patch(name, &merge, &metadata).await), Ok(()));
    assert_eq!(
        message(admin.delete(name, &DeleteParams::default()).await),
        Ok(())
    );
    remove(&harness, &installed).await;
    harness.end().await;
}

/// Lists the rules about approvals and decisions of the chart's roles that have this label.
fn aggregated(objects: &[Value]) -> (usize, Vec<String>) {
    let mut rules = Vec::new();
    let mut roles = 0;
    for object in objects {
        let labels = object["metadata"]["labels"].as_object();
        let is_aggregated = labels.is_some_and(|labels| {
            let mut names = labels.keys();
            names.any(|name| name.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
        });
        if object["kind"] != "ClusterRole" || !is_aggregated {
            continue;
        }
        roles += 1;
        for rule in object["rules"].as_array().expect("rules") {
            let resources = rule["resources"].as_array().expect("resources").iter();
            rules.extend(resources.map(|it| it.as_str().expect("a name").to_owned()));
        }
    }
    (roles, rules)
}

#[test]
fn nobody_gets_approvals_and_decisions_by_aggregation() {
    let (roles, resources) = aggregated(&rendered(&[]));
    assert_eq!(roles, 4);
    let is_about = |name: &&String| {
        name.contains("approval") || name.contains("decision") || name.contains('*')
    };
    assert_eq!(resources.iter().find(is_about), None);
    assert!(resources.contains(&"toolgrants".to_owned()));
    let (roles, _) = aggregated(&rendered(&["--set=roles.aggregate=false"]));
    assert_eq!(roles, 1);
}
