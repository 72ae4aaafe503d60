//! Budgets over the pods of an agent, their deletion, and a change of leaders.

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{Timestamp, tz::TimeZone};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::{Agent, BudgetStatus};

use crate::support::harness::Harness;
use crate::support::pods;
use crate::{READS, tools};

/// The pods of one agent with a budget of calls for each month.
struct Pods<'h> {
    harness: &'h Harness,
    month: String,
}

impl Pods<'_> {
    /// Reports what a pod has used; returns what it is told of the others.
    async fn used(&self, pod: &Pod, used: u64) -> u64 {
        let budget = json!({"unit": "Calls", "per": "Month", "since": self.month, "used": used});
        let report = json!({"epoch": "e", "version": "0", "budgets": [budget]});
        let answer = pods::answered(self.harness, pod, "analyst", report).await;
        let others = answer["budgets"].as_array().unwrap();
        assert_eq!(others.len(), 1, "{answer}");
        assert_eq!(others[0]["since"], json!(self.month));
        others[0]["used"].as_u64().unwrap()
    }

    async fn status(&self, what: &str, is_shown: impl Fn(&BudgetStatus) -> bool) {
        let agents: Api<Agent> = self.harness.api(&self.harness.pond);
        let shown = || async {
            let status = agents.get("analyst").await.unwrap().status.unwrap();
            let [budget] = &status.budgets[..] else {
                return None;
            };
            is_shown(budget).then_some(())
        };
        self.harness.eventually(what, shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_budget_over_deleted_pods_and_leaders() {
    let mut harness = Harness::running().await;
    harness.apply_example().await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let limit = |limit: u64| {
        let budgets = json!([{"unit": "Calls", "limit": limit, "per": "Month"}]);
        Patch::Merge(json!({"spec": {"budgets": budgets}}))
    };
    let twice = json!([{"unit": "Calls", "limit": 1, "per": "Day"}, {"unit": "Calls", "limit": 2, "per": "Day"}]);
    let twice = Patch::Merge(json!({"spec": {"budgets": twice}}));
    let refused = agents
        .patch("analyst", &PatchParams::default(), &twice)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("two budgets have the same unit and period"),
        "{refused}"
    );
    agents
        .patch("analyst", &PatchParams::default(), &limit(100))
        .await
        .unwrap();
    let files = harness
        .files("analyst", "the budget is compiled", |files| {
            tools(files) == READS && files["agent.json"]["budgets"][0]["limit"] == 100
        })
        .await;
    assert_eq!(files["agent.json"]["requires"], json!(["budgets/1"]));

    let first = pods::create(&harness, "analyst-1", "analyst").await;
    let second = pods::create(&harness, "analyst-2", "analyst").await;
    let date = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let pods = Pods {
        month: format!("{}T00:00:00Z", date.first_of_month()),
        harness: &harness,
    };
    pods.status("the budget is shown", |it| (it.limit, it.used) == (100, 0))
        .await;
    assert_eq!(pods.used(&first, 30).await, 0);
    assert_eq!(pods.used(&second, 20).await, 30);
    assert_eq!(pods.used(&first, 31).await, 20);
    // A repeated report counts once.
    assert_eq!(pods.used(&second, 20).await, 31);
    pods::remove(&harness, &second).await;
    pods.status("the deleted pod's use is kept", |it| {
        (it.used, it.used_by_deleted_pods) == (51, 20)
    })
    .await;
    assert_eq!(pods.used(&first, 79).await, 20);
    assert_eq!(pods.used(&first, 80).await, 20);
    pods.status("shown at once when nothing is left", |it| it.used == 100)
        .await;
    let message = harness
        .condition::<Agent>("analyst", "Ready", "True/BudgetUsedUp")
        .await;
    assert!(message.contains("100 calls per month"), "{message}");
    harness.event("analyst", "BudgetUsedUp").await;

    // The next leader knows what deleted pods have used, and what it has not heard of yet.
    let month = pods.month.clone();
    harness.stop().await;
    harness.start("heron");
    let pods = Pods {
        month,
        harness: &harness,
    };
    let third = pods::create(&harness, "analyst-3", "analyst").await;
    assert_eq!(pods.used(&third, 0).await, 100);
    assert_eq!(pods.used(&first, 85).await, 20);
    assert_eq!(pods.used(&third, 1).await, 105);
    // Another limit keeps what is used.
    let agents: Api<Agent> = harness.api(&harness.pond);
    agents
        .patch("analyst", &PatchParams::default(), &limit(200))
        .await
        .unwrap();
    pods.status("the new limit is shown", |it| {
        (it.limit, it.used) == (200, 106)
    })
    .await;
    let without: Value = json!({"spec": {"budgets": null}});
    agents
        .patch("analyst", &PatchParams::default(), &Patch::Merge(&without))
        .await
        .unwrap();
    let is_gone = || async {
        let status = agents.get("analyst").await.unwrap().status.unwrap();
        status.budgets.is_empty().then_some(())
    };
    harness.eventually("the budget is gone", is_gone).await;
    harness.end().await;
}
