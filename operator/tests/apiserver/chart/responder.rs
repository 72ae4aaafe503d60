//! The chart's role for responders, and the policy that holds it to two fields.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use toolcrib_crds::Agent;

use crate::support::accounts::{api, apply, as_user, binding};
use crate::support::harness::{Harness, rendered};

const USER: &str = "responder";
const OWNER: &str = "gitops-owner";

/// The objects of the policy and the role. The guard is off, and they stand all the same.
fn objects() -> Vec<Value> {
    let mut objects = rendered(&["--set=guard.enabled=false"]);
    objects.retain(|object| object["metadata"]["name"] == "toolcrib-responder");
    assert_eq!(objects.len(), 3);
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn a_responder_changes_the_suspension_and_nothing_else() {
    let harness = Harness::new().await;
    let installed = objects();
    for object in &installed {
        apply(&harness, object).await;
    }
    apply(
        &harness,
        &binding(&harness.pond, USER, "toolcrib-responder"),
    )
    .await;
    apply(&harness, &binding(&harness.pond, OWNER, "cluster-admin")).await;
    let otter: Agent = serde_json::from_value(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "otter", "namespace": harness.pond, "labels": {"team": "reeds"},
            "annotations": {"note": "kept"}},
        "spec": {"surfaces": [{"name": "reed"}], "native": true},
    }))
    .expect("an Agent");
    let agents: Api<Agent> = harness.api(&harness.pond);
    agents
        .create(&PostParams::default(), &otter)
        .await
        .expect("it is created");
    let responder: Api<Agent> = Api::namespaced(as_user(USER).await, &harness.pond);
    let owner: Api<Agent> = Api::namespaced(as_user(OWNER).await, &harness.pond);
    let merge = async |api: &Api<Agent>, patch: Value| {
        let written = api
            .patch("otter", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => panic!("{error}"),
        }
    };

    // The API server learns of a policy and of a right a moment later.
    let native = json!({"spec": {"native": false}});
    harness
        .eventually("the policy holds the responder", || async {
            let dry_run = PatchParams::default().dry_run();
            let answer = responder
                .patch("otter", &dry_run, &Patch::Merge(&native))
                .await;
            match answer {
                Err(kube::Error::Api(status)) => status
                    .message
                    .contains("may change only spec.suspend")
                    .then_some(()),
                Ok(_) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;

    let reason = "toolcrib.dev/suspend-reason";
    let suspend =
        json!({"metadata": {"annotations": {reason: "runaway loop"}}, "spec": {"suspend": true}});
    assert_eq!(merge(&responder, suspend.clone()).await, Ok(()));
    let resume = json!({"metadata": {"annotations": {reason: null}}, "spec": {"suspend": null}});
    assert_eq!(merge(&responder, resume.clone()).await, Ok(()));
    for (what, patch) in [
        ("a field", native.clone()),
        ("a new field", json!({"spec": {"mode": "Native"}})),
        ("a field removed", json!({"spec": {"surfaces": null}})),
        (
            "a list",
            json!({"spec": {"surfaces": [{"name": "reed"}, {"name": "more"}]}}),
        ),
        (
            "beside",
            json!({"spec": {"suspend": true, "native": false}}),
        ),
        ("a label", json!({"metadata": {"labels": {"team": "kelp"}}})),
        (
            "a new label",
            json!({"metadata": {"labels": {"grants.toolcrib.dev/a": "b"}}}),
        ),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"toolcrib.dev/rotate": "1"}}}),
        ),
        (
            "an annotation removed",
            json!({"metadata": {"annotations": {"note": null}}}),
        ),
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["reed.test/drain"]}}),
        ),
    ] {
        let refused = merge(&responder, patch.clone()).await;
        let message = refused.expect_err(what);
        assert!(
            message.contains("may change only spec.suspend"),
            "{what}: {message}"
        );
    }
    // Rights that the role does not have at all.
    let mut replaced = agents.get("otter").await.expect("the Agent");
    replaced.spec.native = None;
    let replace = responder
        .replace("otter", &PostParams::default(), &replaced)
        .await;
    assert!(replace.is_err_and(|error| error.to_string().contains("cannot update")));
    let delete = responder.delete("otter", &DeleteParams::default()).await;
    assert!(delete.is_err_and(|error| error.to_string().contains("cannot delete")));

    // Who may update is not held.
    assert_eq!(merge(&owner, native).await, Ok(()));
    let agent = agents.get("otter").await.expect("the Agent");
    assert_eq!((agent.spec.native, agent.spec.suspend), (Some(false), None));
    for object in &installed {
        let name = object["metadata"]["name"].as_str().expect("a name");
        api(&harness, object)
            .delete(name, &DeleteParams::default())
            .await
            .expect("it is removed");
    }
    harness.end().await;
}
