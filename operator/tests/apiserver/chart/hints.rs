//! Refresh hints, and the policy that holds the controller's right on pods to them.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::ToolGrant;

use crate::support::accounts::{apply, as_user, binding, remove};
use crate::support::harness::{Harness, rendered};
use crate::support::pods;
use crate::{READS, tools};

/// The chart's account of the controller, as `helm template` names it.
const ACCOUNT: &str = "system:serviceaccount:default:toolcrib-controller";
const REFRESH: &str = "toolcrib.dev/refresh";
const REFUSED: &str = "the controller may change nothing of a pod but";

/// The policy and its binding.
fn policy() -> Vec<Value> {
    let mut objects = rendered(&[]);
    objects.retain(|object| object["metadata"]["name"] == "toolcrib-hints");
    assert_eq!(objects.len(), 2);
    objects
}

fn refresh_of(pod: &Pod) -> Option<&String> {
    pod.annotations().get(REFRESH)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_changes_one_annotation_of_agents_pods_and_nothing_else() {
    let harness = Harness::new().await;
    let policy = policy();
    for object in &policy {
        apply(&harness, object).await;
    }
    apply(&harness, &binding(&harness.pond, ACCOUNT, "cluster-admin")).await;
    pods::create(&harness, "otter-1", "otter").await;
    let mine: Api<Pod> = Api::namespaced(as_user(ACCOUNT).await, &harness.pond);
    let merge = async |patch: Value| {
        let params = PatchParams::default();
        match mine
            .patch("otter-1", &params, &Patch::Strategic(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => panic!("{error}"),
        }
    };
    // The API server learns of a policy and of a right a moment later.
    let label = json!({"metadata": {"labels": {"team": "reeds"}}});
    harness
        .eventually("the policy holds", || async {
            let dry_run = PatchParams::default().dry_run();
            match mine.patch("otter-1", &dry_run, &Patch::Merge(&label)).await {
                Err(kube::Error::Api(status)) => status.message.contains(REFUSED).then_some(()),
                Ok(_) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;

    assert_eq!(
        merge(json!({"metadata": {"annotations": {REFRESH: "a.1.1"}}})).await,
        Ok(())
    );
    assert_eq!(
        merge(json!({"metadata": {"annotations": {REFRESH: "a.1.2"}}})).await,
        Ok(())
    );
    for (what, patch) in [
        ("a label", label),
        (
            "the agent's label",
            json!({"metadata": {"labels": {"toolcrib.dev/agent": "newt"}}}),
        ),
        (
            "the leader's label, elsewhere",
            json!({"metadata": {"labels": {"toolcrib.dev/leader": "true"}}}),
        ),
        (
            "another annotation",
            json!({"metadata": {"annotations": {"note": "x"}}}),
        ),
        (
            "an annotation removed",
            json!({"metadata": {"annotations": {"toolcrib.dev/injected": null}}}),
        ),
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["reed.test/drain"]}}),
        ),
        (
            "an owner",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}}),
        ),
        (
            "an image",
            json!({"spec": {"containers": [{"name": "runner", "image": "evil"}]}}),
        ),
        ("a deadline", json!({"spec": {"activeDeadlineSeconds": 1}})),
    ] {
        let message = merge(patch).await.expect_err(what);
        assert!(message.contains(REFUSED), "{what}: {message}");
    }
    let status = json!({"status": {"phase": "Failed"}});
    let params = PatchParams::default();
    let failed = mine
        .patch_status("otter-1", &params, &Patch::Merge(&status))
        .await;
    assert!(failed.is_err_and(|error| error.to_string().contains(REFUSED)));
    remove(&harness, &policy).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_annotates_running_pods_and_a_revocation_does_not() {
    let mut harness = Harness::new().await;
    harness.refresh_hints = true;
    harness.account = Some(as_user(ACCOUNT).await);
    let policy = policy();
    for object in &policy {
        apply(&harness, object).await;
    }
    let mut admin = binding(&harness.pond, ACCOUNT, "cluster-admin");
    admin["kind"] = "ClusterRoleBinding".into();
    admin["metadata"] = json!({"name": "toolcrib-test-hints"});
    apply(&harness, &admin).await;
    harness.start("heron");
    harness.apply_example().await;
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let pod = pods::create(&harness, "analyst-1", "analyst").await;
    assert_eq!(refresh_of(&pod), None);
    let api: Api<Pod> = harness.api(&harness.pond);
    let changed = async |before: Option<String>| {
        harness
            .eventually("a hint", || async {
                let pod = api.get("analyst-1").await.expect("the pod");
                refresh_of(&pod)
                    .filter(|value| Some(*value) != before.as_ref())
                    .cloned()
            })
            .await
    };

    // The pod's creation time has whole seconds, and only older pods get a hint.
    let created = pod.creation_timestamp().expect("a time").0;
    harness
        .eventually("the next second", || async {
            let now = k8s_openapi::jiff::Timestamp::now();
            (now.as_second() > created.as_second()).then_some(())
        })
        .await;
    let more = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": "more", "namespace": harness.pond},
        "spec": {"agents": ["analyst"], "tools": [{"surface": {"name": "trading-api"}, "allow": ["execute_trade"]}]},
    });
    apply(&harness, &more).await;
    // The pod reports nothing, so three hints follow, and no fourth.
    let third = harness
        .eventually("three hints", || async {
            let pod = api.get("analyst-1").await.expect("the pod");
            refresh_of(&pod)
                .filter(|value| value.ends_with(".3"))
                .cloned()
        })
        .await;

    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    grants
        .delete("more", &DeleteParams::default())
        .await
        .expect("deleted");
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    // Given once more, a hint has a new value; the deletion had none of its own.
    apply(&harness, &more).await;
    let later = changed(Some(third)).await;
    assert!(later.ends_with(".1"), "{later}");
    remove(&harness, &policy).await;
    remove(&harness, &[admin]).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policy_no_pod_is_annotated() {
    let mut harness = Harness::new().await;
    harness.refresh_hints = true;
    harness.start("heron");
    harness.apply_example().await;
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let pod = pods::create(&harness, "analyst-1", "analyst").await;
    let created = pod.creation_timestamp().expect("a time").0;
    harness
        .eventually("the next second", || async {
            let now = k8s_openapi::jiff::Timestamp::now();
            (now.as_second() > created.as_second()).then_some(())
        })
        .await;
    let more = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": "more", "namespace": harness.pond},
        "spec": {"agents": ["analyst"], "tools": [{"surface": {"name": "trading-api"}, "allow": ["execute_trade"]}]},
    });
    apply(&harness, &more).await;
    // The dry run is the only patch; the metric counts it.
    harness
        .eventually("hints are off", || async {
            let running = harness.metric("refresh_hints_off").await;
            (running >= 1.0).then_some(())
        })
        .await;
    let api: Api<Pod> = harness.api(&harness.pond);
    let pod = api.get("analyst-1").await.expect("the pod");
    assert_eq!(refresh_of(&pod), None);
    harness.end().await;
}
