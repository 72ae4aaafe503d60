//! Bounds: how many questions may be open, how fast they come, and what is refused.

use std::collections::HashMap;

use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Duration, Instant};
use toolcrib_crds::ToolDecision;
use toolcrib_manifest::{MOST_QUESTIONS, Question, QuestionRefusal, Verdict};

use super::{Desk, HERON, NEWT, WARDENS};
use crate::support::accounts::as_user;
use crate::support::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_asks_without_end_has_eight_open_questions() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let begun = Instant::now();
    let mut questions = Vec::new();
    for number in 0..MOST_QUESTIONS as u32 {
        let question = mediator.question(number, "{}");
        mediator.asked(harness, &question).await;
        questions.push(question);
    }
    // One a second.
    let fastest = Duration::from_secs(MOST_QUESTIONS as u64 - 1);
    assert!(begun.elapsed() >= fastest, "{:?}", begun.elapsed());
    assert_eq!(desk.approvals().await.len(), MOST_QUESTIONS);
    let question = mediator.question(100, "{}");
    assert_eq!(
        mediator.refused(harness, &question).await,
        QuestionRefusal::TooManyPending
    );

    // Five denials, and the agent may not ask for an hour.
    let open: Vec<_> = questions.iter().map(|question| (question, None)).collect();
    let approvals = desk.approvals().await;
    for approval in approvals.iter().take(5) {
        desk.decide(approval, HERON, "Deny").await;
    }
    harness
        .eventually("five are denied", || async {
            let told = mediator.report(harness, &open).await;
            let denied = told.iter().filter(|it| it.verdict == Verdict::Denied);
            (denied.count() == 5).then_some(())
        })
        .await;
    let question = mediator.question(1_000, "{}");
    assert_eq!(
        mediator.refused(harness, &question).await,
        QuestionRefusal::TooManyDenied
    );
    // A question from before has its ToolApproval still.
    mediator.asked(harness, &questions[0]).await;
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_questions_of_one_agent_disturb_no_other() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    desk.add_agents(&["newt".to_owned()]).await;
    let mediator = desk.mediator("otter-0").await;
    let other = desk.mediator_of("newt", "newt-0").await;
    for number in 0..MOST_QUESTIONS as u32 {
        mediator
            .asked(harness, &mediator.question(number, "{}"))
            .await;
    }
    let asked = other.asked(harness, &other.question(0, "{}")).await;
    // Until the phase of each is written.
    desk.phase(&asked.name, "Pending").await;
    let writes = harness.metric("writes").await;
    let (stored, memory) = (stored(harness).await, memory());
    let flood = async {
        let numbers: Vec<u32> = (1_000..11_000).collect();
        let halves = numbers.chunks(5_000).map(async |numbers| {
            for number in numbers {
                let question = mediator.question(*number, "{\"depth\":40}");
                let refused = mediator.refused(harness, &question).await;
                assert_eq!(refused, QuestionRefusal::TooManyPending);
            }
        });
        futures::future::join_all(halves).await;
    };
    let begun = Instant::now();
    let undisturbed = async {
        let question = other.question(1, "{}");
        let asked = other.asked(harness, &question).await;
        let asking = begun.elapsed();
        let approval = desk.approval(&asked.name).await.unwrap();
        desk.decide(&approval, HERON, "Approve").await;
        let told = other.decision(harness, &question).await;
        assert_eq!(told.verdict, Verdict::Approved);
        (asking, begun.elapsed())
    };
    let ((), (asking, decided)) = tokio::join!(flood, undisturbed);
    eprintln!(
        "10,000 questions took {:?}; the other agent's was asked after {asking:?} and approved after {decided:?}",
        begun.elapsed()
    );
    assert!(decided < Duration::from_secs(10), "{decided:?}");
    assert_eq!(desk.approvals().await.len(), MOST_QUESTIONS + 2);
    let (stored_more, memory_more) = (
        self::stored(harness).await - stored,
        self::memory() - memory,
    );
    eprintln!(
        "10,000 questions: etcd grew by {stored_more} bytes, the controller's process by {memory_more} KiB"
    );
    assert!(stored_more < 1024.0 * 1024.0, "{stored_more}");
    // Of the other agent's question alone: the object, its status twice, the decision twice, two Events.
    let wrote = harness.metric("writes").await - writes;
    assert!(wrote <= 12.0, "{wrote}");
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_decisions_of_another_user_displace_no_approver() {
    const MOST: usize = 64;
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let question = mediator.question(1, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.approval(&asked.name).await.unwrap();
    // May create decisions, and is no approver.
    desk.decide(&approval, NEWT, "Deny").await;
    let decision: ToolDecision = serde_json::from_value(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
        "metadata": {"generateName": "newt-", "namespace": harness.pond},
        "spec": {"approval": {"name": asked.name, "uid": asked.uid},
            "callDigest": question.call_digest, "verdict": "Deny",
            "decidedBy": {"username": NEWT}},
    }))
    .unwrap();
    let newt: Api<ToolDecision> = Api::namespaced(as_user(NEWT).await, &harness.pond);
    let creating = (0..8).map(async |_| {
        for _ in 0..125 {
            newt.create(&PostParams::default(), &decision)
                .await
                .unwrap();
        }
    });
    futures::future::join_all(creating).await;
    // The first of two must not be forgotten until the second decides.
    let begun = Instant::now();
    let first = desk.decide(&approval, WARDENS[0], "Approve").await;
    assert_eq!(desk.counted(&first).await, "Counted");
    let decisions: Api<ToolDecision> = harness.api(&harness.pond);
    let kept = async || {
        let kept = decisions.list(&ListParams::default()).await.unwrap().items;
        (kept.len() <= MOST).then_some(kept)
    };
    harness.eventually("the others are deleted", kept).await;
    let second = desk.decide(&approval, WARDENS[1], "Approve").await;
    let told = mediator.decision(harness, &question).await;
    eprintln!("approved after {:?}", begun.elapsed());
    assert_eq!(told.verdict, Verdict::Approved);
    assert_eq!(told.decided_by, ["perch", "pike"]);
    assert_eq!(desk.counted(&second).await, "Counted");
    let kept = harness.eventually("the others are deleted", kept).await;
    let kept: Vec<String> = kept.iter().map(|it| it.name_any()).collect();
    assert!(kept.contains(&first) && kept.contains(&second), "{kept:?}");
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_questions_of_fifty_agents_are_asked_and_decided() {
    const AGENTS: usize = 50;
    const EACH: usize = 4;
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let names: Vec<String> = (0..AGENTS).map(|number| format!("newt-{number}")).collect();
    desk.add_agents(&names).await;
    let mut mediators = Vec::new();
    for name in &names {
        mediators.push(desk.mediator_of(name, &format!("{name}-0")).await);
    }
    let questions: Vec<(&super::Mediator, Question)> = mediators
        .iter()
        .flat_map(|mediator| {
            (0..EACH as u32).map(move |it| (mediator, mediator.question(it, "{}")))
        })
        .collect();
    let begun = Instant::now();
    let asked = questions.iter().map(async |(mediator, question)| {
        let approval = mediator.asked(harness, question).await;
        (approval, begun.elapsed())
    });
    let asked = futures::future::join_all(asked).await;
    report(
        "question to object, all at once",
        asked.iter().map(|(_, took)| *took),
    );
    assert_eq!(desk.approvals().await.len(), AGENTS * EACH);

    // Each pod polls as a mediator does, while one person approves call after call.
    let told: parking_lot::Mutex<HashMap<String, Instant>> = parking_lot::Mutex::default();
    let polls = mediators.iter().map(async |mediator| {
        let own: Vec<Question> = (0..EACH as u32)
            .map(|it| mediator.question(it, "{}"))
            .collect();
        let mut open: Vec<&Question> = own.iter().collect();
        let mut seen = 0;
        while !open.is_empty() {
            let named: Vec<_> = open.iter().map(|question| (*question, None)).collect();
            let answer = mediator.try_report(&named, seen, 15_000).await.unwrap();
            seen = answer.seq;
            for decision in answer.decisions {
                assert_eq!(decision.verdict, Verdict::Approved);
                told.lock()
                    .insert(decision.id.clone() + &mediator.agent, Instant::now());
                open.retain(|question| question.id != decision.id);
            }
        }
    });
    let approving = async {
        let mut created = Vec::new();
        for ((mediator, question), (approval, _)) in questions.iter().zip(&asked) {
            let approval = desk.approval(&approval.name).await.unwrap();
            desk.decide(&approval, HERON, "Approve").await;
            created.push((question.id.clone() + &mediator.agent, Instant::now()));
        }
        created
    };
    let (_, created) = tokio::join!(futures::future::join_all(polls), approving);
    let told = told.into_inner();
    let took = created
        .iter()
        .map(|(id, at)| told[id].saturating_duration_since(*at));
    let slowest = report("decision to answer", took);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    desk.end().await;
}

/// The bytes of etcd's file.
async fn stored(harness: &Harness) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = harness.client.request_text(request).await.unwrap();
    let size = |line: &str| {
        let value = line.strip_prefix("apiserver_storage_size_bytes{")?;
        value.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let sizes: Vec<f64> = metrics.lines().filter_map(size).collect();
    assert_eq!(sizes.len(), 1, "one etcd");
    sizes[0]
}

/// The memory of this process, in which the controller runs, in KiB.
fn memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse().unwrap()
}

/// Prints the median and the 99th percentile; returns the latter.
fn report(what: &str, took: impl Iterator<Item = Duration>) -> Duration {
    let mut took: Vec<Duration> = took.collect();
    took.sort_unstable();
    let (median, high) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    eprintln!("{what}: p50 {median:?}, p99 {high:?}");
    high
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_not_one_is_refused() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let good = mediator.question(1, "{\"depth\":40}");
    mediator.asked(harness, &good).await;
    let status = async |change: &dyn Fn(&mut toolcrib_manifest::Question)| {
        let mut question = mediator.question(2, "{\"depth\":40}");
        change(&mut question);
        mediator
            .try_ask(&question)
            .await
            .map_err(|(status, _)| status)
    };
    // Another call than the one of the digest.
    assert_eq!(
        status(&|it| it.arguments = "{\"depth\":41}".into()).await,
        Err(400)
    );
    assert_eq!(status(&|it| it.id = "../x".into()).await, Err(400));
    let long = |it: &mut toolcrib_manifest::Question| it.arguments = "x".repeat(40 * 1024);
    assert_eq!(status(&long).await, Err(413));
    let url = format!("{}/v1/questions", mediator.url);
    let body = serde_json::to_string(&good).unwrap();
    let answer = mediator
        .http
        .post(&url)
        .body(body.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
    let answer = mediator
        .http
        .post(&url)
        .bearer_auth("x")
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
    // Tools and rules that the agent does not have.
    let refusal = async |change: &dyn Fn(&mut toolcrib_manifest::Question)| {
        let mut question = mediator.question(3, "{}");
        change(&mut question);
        // The digest is not looked at before the grant.
        mediator.refused(harness, &question).await
    };
    let not_granted = QuestionRefusal::NotGranted;
    assert_eq!(
        refusal(&|it| it.tool = "kelp.cut".into()).await,
        not_granted
    );
    assert_eq!(
        refusal(&|it| it.entry = "v1:other".into()).await,
        not_granted
    );
    let made_up = |it: &mut toolcrib_manifest::Question| {
        it.rules.truncate(1);
        it.rules[0].rule = "r1:made-up".into();
    };
    assert_eq!(refusal(&made_up).await, not_granted);
    assert_eq!(desk.approvals().await.len(), 1);
    desk.end().await;
}
