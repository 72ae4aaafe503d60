//! Declared egress becomes a NetworkPolicy.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::support::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn declared_egress_creates_updates_and_deletes_a_network_policy() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let policies: Api<NetworkPolicy> = harness.api(&harness.pond);
    let spec = |found: &NetworkPolicy| serde_json::to_value(&found.spec).expect("a spec");
    let analyst = |egress: &str| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "analyst"},
            "spec": {"surfaces": [{"name": "trading-api"}], "egress": egress},
        })
    };
    harness.apply(analyst("Declared")).await;
    let declared = harness
        .eventually("a policy of the Service's pods", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer")?;
            let text = spec(&found).to_string();
            // The Service's target port, which has a name in the pods.
            (text.contains(r#""port":"http""#) && text.contains(r#""toolcrib.dev/leader":"true""#))
                .then_some(found)
        })
        .await;
    assert_eq!(
        spec(&declared)["podSelector"],
        json!({"matchLabels": {"toolcrib.dev/agent": "analyst"}})
    );

    // Another writer changed the policy: it is restored.
    let edit =
        json!({"spec": {"egress": [{}], "podSelector": {"matchLabels": {"never": "there"}}}});
    policies
        .patch(
            "toolcrib-analyst",
            &PatchParams::default(),
            &Patch::Merge(&edit),
        )
        .await
        .expect("edited");
    harness
        .eventually("the policy as it was", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer")?;
            (spec(&found) == spec(&declared)).then_some(())
        })
        .await;

    harness.apply(analyst("Unrestricted")).await;
    harness
        .eventually("no policy", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer");
            found.is_none().then_some(())
        })
        .await;
    harness.end().await;
}
