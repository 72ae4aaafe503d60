//! Declared egress becomes a NetworkPolicy.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use toolcrib_crds::{Agent, ClusterToolPolicy, Egress};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_policy_declares_the_egress_of_agents() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let policies: Api<NetworkPolicy> = harness.api(&harness.pond);
    let agents: Api<Agent> = harness.api(&harness.pond);
    let restrictions: Api<ClusterToolPolicy> = Api::all(harness.client.clone());
    // Policies have no namespace, and other tests run beside this one.
    let name = format!("closed-{}", harness.pond);
    let policy = |spec: serde_json::Value| -> ClusterToolPolicy {
        serde_json::from_value(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
            "metadata": {"name": name}, "spec": spec,
        }))
        .expect("a policy")
    };
    let named = json!([{"namespace": harness.pond, "name": "analyst"}]);
    let tried_out = policy(json!({"agents": named, "maxTier": "System",
        "egress": "Declared", "enforcement": "Audit"}));
    let refused = restrictions
        .create(&PostParams::default(), &tried_out)
        .await;
    let refused = refused.expect_err("it cannot be tried out").to_string();
    assert!(
        refused.contains("enforcement: Audit tries out"),
        "{refused}"
    );

    // The agent asks for the opposite.
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "analyst"},
            "spec": {"surfaces": [{"name": "trading-api"}], "egress": "Unrestricted"},
        }))
        .await;
    let network = |agent: Agent| agent.status?.network;
    let shown = |egress: Egress, names: Vec<String>| {
        let (agents, names) = (agents.clone(), names);
        move || {
            let (agents, names) = (agents.clone(), names.clone());
            async move {
                let network = network(agents.get("analyst").await.expect("an answer"))?;
                (network.egress == egress && network.policies == names).then_some(())
            }
        }
    };
    harness
        .eventually("an open network", shown(Egress::Unrestricted, Vec::new()))
        .await;
    let closed = policy(json!({"agents": named, "egress": "Declared"}));
    restrictions
        .create(&PostParams::default(), &closed)
        .await
        .expect("created");
    harness
        .eventually(
            "a closed network",
            shown(Egress::Declared, vec![name.clone()]),
        )
        .await;
    let written = policies.get("toolcrib-analyst").await.expect("a policy");
    let selected = written.spec.and_then(|spec| spec.pod_selector);
    let selected = selected.and_then(|selector| selector.match_labels);
    let selected = selected.expect("labels");
    assert_eq!(selected["toolcrib.dev/agent"], "analyst");
    harness
        .files("analyst", "no tools of the provider", |files| {
            files["agent.json"]["provider_tools"] == "Refuse"
        })
        .await;

    restrictions
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    harness
        .eventually(
            "an open network again",
            shown(Egress::Unrestricted, Vec::new()),
        )
        .await;
    let is_gone = || async {
        let found = policies.get_opt("toolcrib-analyst").await;
        found.expect("an answer").is_none().then_some(())
    };
    harness.eventually("no policy", is_gone).await;
    harness.end().await;
}
