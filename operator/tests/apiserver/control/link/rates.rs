//! A rate that the pods of an agent share.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use toolcrib_mediation::{BudgetCounts, ClawId, Denial, DirectCall, PresentedTools};

use super::{Mediator, ours};
use crate::support::harness::Harness;
use crate::support::pods;
use crate::tools;

/// More than a test makes while it waits.
const LIMIT: u64 = 5_000;

impl Mediator {
    /// Decides about a call of the tool as a dispatch does, and counts it.
    fn call(&self) -> Result<(), Denial> {
        let (now, at) = (self.current.now(), Timestamp::now());
        let presented = PresentedTools::alone(&now.authority, at);
        let claw_id = ClawId {
            name: "otter".into(),
            namespace: "pond".into(),
        };
        let mut call = DirectCall::new(&presented, &claw_id, "reed.read", "{}");
        let call = call.start(Duration::ZERO).unwrap();
        let budgets = BudgetCounts::default();
        let permitted = now.authority.permits(&call, &self.rates, &budgets, at);
        permitted.map(drop)
    }

    /// This pod's calls that count.
    fn own(&self) -> u64 {
        let now = self.current.now();
        let own = self
            .rates
            .own(now.authority.rated_rules(), Timestamp::now());
        let counts = own.iter().flat_map(|used| &used.counts);
        counts.flat_map(|count| count.calls.values()).sum()
    }
}

/// The calls in an answer, by tool.
fn told(answer: &Value) -> Vec<(&str, u64)> {
    let rates = answer["rates"].as_array().map_or(&[][..], Vec::as_slice);
    let told = rates.iter().map(|used| {
        let counts = used["counts"].as_array().unwrap().iter();
        let calls = counts.flat_map(|count| count["calls"].as_object().unwrap().values());
        let calls = calls.map(|calls| calls.as_u64().unwrap()).sum();
        (used["tool"].as_str().unwrap(), calls)
    });
    told.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_refused_after_another_one_has_used_the_rate() {
    let harness = Harness::running().await;
    let tool = json!({"name": "read", "inputSchema": {"type": "object"},
        "http": {"method": "GET", "path": "/read"}, "annotations": {"readOnly": true}});
    let surface =
        json!({"url": "https://reed.example", "descriptor": {"version": 2, "tools": [tool]}});
    let entry = json!({"surface": {"name": "reed"}, "allow": ["*"],
        "rate": [{"calls": LIMIT, "per": "24h"}]});
    for (kind, name, spec) in [
        ("Surface", "reed", surface),
        ("Agent", "otter", json!({"surfaces": [{"name": "reed"}]})),
        (
            "ToolGrant",
            "reed",
            json!({"agents": ["otter"], "tools": [entry]}),
        ),
    ] {
        harness.apply(ours(kind, &harness.pond, name, spec)).await;
    }
    let files = harness
        .files("otter", "the tool", |files| tools(files) == ["reed.read"])
        .await;
    let first = pods::create(&harness, "otter-1", "otter").await;
    let second = pods::create(&harness, "otter-2", "otter").await;
    let [first_mediator, second_mediator] = [
        Mediator::start(&harness, &first, &files).await,
        Mediator::start(&harness, &second, &files).await,
    ];
    for mediator in [&first_mediator, &second_mediator] {
        mediator.until("it is linked", |now| now.seen > 0).await;
    }
    assert_eq!(second_mediator.call(), Ok(()));
    for _ in 0..LIMIT {
        assert_eq!(first_mediator.call(), Ok(()));
    }
    assert!(matches!(
        first_mediator.call(),
        Err(Denial::RateLimited { .. })
    ));
    let refused = || async { second_mediator.call().err() };
    let refused = harness
        .eventually("the second pod is refused", refused)
        .await;
    assert!(matches!(refused, Denial::RateLimited { .. }), "{refused:?}");
    assert_eq!(first_mediator.own(), LIMIT);
    let own = second_mediator.own();
    assert!(own < LIMIT, "{own}");

    // A mediator of an older release reports no rates, and ignores those in the answer.
    let third = pods::create(&harness, "otter-3", "otter").await;
    let older = json!({"epoch": "e", "version": "0", "a later field": [{}]});
    let all_are_told = || async {
        let answer = pods::answered(&harness, &third, "otter", older.clone()).await;
        (told(&answer) == [("reed.read", LIMIT + own)]).then_some(())
    };
    harness
        .eventually("all calls of both pods", all_are_told)
        .await;
    // The calls of a deleted pod count on.
    drop(first_mediator);
    pods::remove(&harness, &first).await;
    let third_mediator = Mediator::start(&harness, &third, &files).await;
    let refused = || async { third_mediator.call().err() };
    let refused = harness.eventually("a new pod is refused", refused).await;
    assert!(matches!(refused, Denial::RateLimited { .. }), "{refused:?}");
    assert!(third_mediator.own() < LIMIT);
    harness.end().await;
}
