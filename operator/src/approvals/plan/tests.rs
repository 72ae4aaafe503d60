//! What is written about an approval, in each of its states.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcrib_crds::RuleRequirement;
use toolcrib_manifest::Tier;

use super::*;
use crate::approvals::stored::tests::{approval, decided, read};
use crate::approvals::stored::{Ending, StoredApproval};

const NOW: &str = "2026-11-27T09:30:00Z";

/// An approval of `heron`, or of two of group `wardens`.
struct World {
    object: Value,
    decisions: Vec<Value>,
    authority: Option<CallAuthority>,
    question: QuestionState,
    protection: Protection,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let mut object = approval("otter-1");
        object["spec"]["rules"] = json!([
            {"kind": "ToolGrant", "grant": "deep", "rule": "r1:deep",
                "approval": {"approvers": {"users": ["heron"]}}},
            {"kind": "ToolGrant", "grant": "wide", "rule": "r1:wide",
                "approval": {"approvers": {"groups": ["wardens"]}, "minimum": 2}},
        ]);
        Self {
            object,
            decisions: Vec::new(),
            authority: None,
            question: QuestionState::Open,
            protection: Protection::Holds,
            now: NOW.parse().expect("a time"),
        }
    }

    /// Adds a decision: `heron/wardens Approve`.
    fn decides(&mut self, text: &str) -> &mut Self {
        let (who, verdict) = text.split_once(' ').expect("a verdict");
        let mut names = who.split('/');
        let user = names.next().expect("a user");
        let number = self.decisions.len();
        let decision = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
            "metadata": {"name": format!("d{number}"), "namespace": "pond", "uid": format!("d{number}"),
                "resourceVersion": "1", "creationTimestamp": "2026-11-27T09:10:00Z"},
            "spec": {
                "approval": {"name": "otter-1", "uid": "uid-otter-1"}, "callDigest": "c1:call",
                "verdict": verdict, "reason": format!("{user} says so"),
                "decidedBy": {"username": user, "groups": names.collect::<Vec<_>>()},
            },
        });
        self.decisions.push(decision);
        self
    }

    fn plan(&self) -> Plan {
        let approval: StoredApproval = read(&self.object);
        let body = approval.body.as_deref().expect("a body");
        let decisions = self.decisions.iter().map(|it| Arc::new(read(it)));
        let decisions: Vec<Arc<StoredDecision>> = decisions.collect();
        let stands = stands(body.rules.clone());
        let situation = Situation {
            uid: approval.uid(),
            body,
            decisions: &decisions,
            authority: self.authority.clone().unwrap_or(stands),
            question: self.question.clone(),
            protection: self.protection.clone(),
            retention: SignedDuration::from_hours(1),
            now: self.now,
        };
        situation.plan()
    }

    /// Writes the plan, as the API server would keep it.
    fn write(&mut self) -> Plan {
        let plan = self.plan();
        if let Some(status) = &plan.status {
            self.object["status"] = json!(status);
        }
        for (at, CountedCondition { reason, message }) in &plan.counted {
            let status = if *reason == StateReason::Counted {
                "True"
            } else {
                "False"
            };
            self.decisions[*at]["status"] = json!({"conditions": [{
                "type": "Counted", "status": status, "reason": reason.as_str(),
                "message": message, "lastTransitionTime": NOW,
            }]});
        }
        let mut at = 0..;
        self.decisions
            .retain(|_| !at.next().is_some_and(|at| plan.surplus.contains(&at)));
        plan
    }

    /// Writes until there is nothing left to write; returns the phase, and the reason of each decision.
    #[track_caller]
    fn settles(&mut self) -> (String, Vec<String>) {
        self.write();
        let left = self.write();
        assert_eq!(
            (left.status, left.counted, left.surplus),
            (None, BTreeMap::new(), BTreeSet::new()),
            "the second plan is empty"
        );
        let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
        let phase = text(&self.object["status"]["phase"]);
        let reasons = self
            .decisions
            .iter()
            .map(|it| text(&it["status"]["conditions"][0]["reason"]));
        (phase, reasons.collect())
    }
}

fn stands(rules: Vec<RuleRequirement>) -> CallAuthority {
    CallAuthority::Granted(CallRequirements {
        tier: Tier::System,
        rules,
        policies: Vec::new(),
    })
}

#[track_caller]
fn check(decisions: &[&str], expected: &str, counted: &[&str]) {
    let mut world = World::new();
    for decision in decisions {
        world.decides(decision);
    }
    let (phase, reasons) = world.settles();
    assert_eq!(
        (phase.as_str(), reasons),
        (
            expected,
            counted.iter().map(|it| (*it).to_owned()).collect()
        )
    );
}

#[test]
fn approvers_decide_and_others_do_not() {
    check(&[], "Pending", &[]);
    check(&["heron Approve"], "Approved", &["Counted"]);
    check(&["newt Approve"], "Pending", &["NotAnApprover"]);
    check(&["newt/wardens Approve"], "Pending", &["Counted"]);
    check(
        &["newt/wardens Approve", "newt/wardens Approve"],
        "Pending",
        &["Counted", "Counted"],
    );
    check(
        &["newt/wardens Approve", "pike/wardens Approve"],
        "Approved",
        &["Counted", "Counted"],
    );
    check(
        &["heron Approve", "newt/wardens Deny"],
        "Denied",
        &["Counted", "Counted"],
    );
    check(
        &["heron Approve", "newt Deny"],
        "Approved",
        &["Counted", "NotAnApprover"],
    );
}

#[test]
fn a_decision_after_the_first_yes_changes_nothing() {
    let mut world = World::new();
    world.decides("heron Approve").settles();
    let before = world.object["status"].clone();
    world.decides("heron Deny");
    assert_eq!(
        world.settles(),
        (
            "Approved".into(),
            vec!["Counted".into(), "AlreadyDecided".into()]
        )
    );
    assert_eq!(world.object["status"], before);
}

#[test]
fn a_leader_that_ends_after_the_status_leaves_the_rest_to_the_next() {
    let mut world = World::new();
    let plan = world.decides("heron Approve").plan();
    world.object["status"] = json!(plan.status.expect("a status"));
    // The decision is not marked yet, and a later one is there.
    world.decides("newt/wardens Deny");
    assert_eq!(
        world.settles(),
        (
            "Approved".into(),
            vec!["Counted".into(), "AlreadyDecided".into()]
        )
    );
}

#[test]
fn a_decision_about_another_call_counts_for_nothing() {
    let change = |field: &str, value: &str, reason: &str| {
        let mut world = World::new();
        world.decides("heron Approve");
        let decision = &mut world.decisions[0]["spec"];
        *decision.pointer_mut(field).expect("a field") = json!(value);
        assert_eq!(world.settles(), ("Pending".into(), vec![reason.to_owned()]));
    };
    change("/callDigest", "c1:other", "OtherDigest");
    // Copied from an earlier approval of the same name.
    change("/approval/uid", "uid-of-before", "Gone");
}

#[test]
fn what_ends_a_question_comes_before_decisions() {
    let end = |change: &dyn Fn(&mut World), phase: &str, word: &str| {
        let mut world = World::new();
        world.decides("heron Approve");
        change(&mut world);
        let settled = world.settles();
        assert_eq!(
            settled,
            (phase.to_owned(), vec!["AlreadyDecided".to_owned()])
        );
        let message = world.object["status"]["conditions"][0]["message"].to_string();
        assert!(message.contains(word), "{message}");
    };
    end(
        &|it| it.authority = Some(CallAuthority::PodGone),
        "Withdrawn",
        "PodGone",
    );
    let gone = || CallAuthority::Revoked("the agent is suspended".into());
    end(
        &|it| it.authority = Some(gone()),
        "Withdrawn",
        "Revoked: the agent is suspended",
    );
    end(
        &|it| it.question = QuestionState::Gone,
        "Withdrawn",
        "does not hold",
    );
    end(
        &|it| it.question = QuestionState::Used(CallResult::Succeeded),
        "Withdrawn",
        "nobody approved",
    );
    let late = || "2026-11-27T10:00:00Z".parse().expect("a time");
    end(&|it| it.now = late(), "Expired", "in time");
}

#[test]
fn a_rule_that_is_gone_satisfies_nobody() {
    let mut world = World::new();
    world.decides("heron Approve");
    let approval: StoredApproval = read(&world.object);
    let rules = approval.body.expect("a body").rules;
    world.authority = Some(stands(rules[1..].to_vec()));
    assert_eq!(
        world.settles(),
        ("Pending".into(), vec!["NotAnApprover".into()])
    );
}

#[test]
fn nothing_is_decided_while_the_leader_does_not_know_enough() {
    let wait = |change: &dyn Fn(&mut World)| {
        let mut world = World::new();
        world.decides("heron Approve");
        change(&mut world);
        let plan = world.plan();
        assert_eq!((plan.status, plan.counted), (None, BTreeMap::new()));
    };
    wait(&|it| it.authority = Some(CallAuthority::Unknown));
    wait(&|it| it.protection = Protection::Unknown);
}

#[test]
fn without_policies_no_decision_counts_and_the_status_says_why() {
    let mut world = World::new();
    world.protection = Protection::Missing("no policy".into());
    world.decides("heron Approve");
    assert_eq!(
        world.settles(),
        ("Pending".into(), vec!["NotProtected".into()])
    );
    let condition = &world.object["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("NotProtected"))
    );
    // The policies are back: the person decides once more.
    world.protection = Protection::Holds;
    assert_eq!(world.settles().0, "Pending");
    assert_eq!(world.object["status"]["conditions"], Value::Null);
    world.decides("heron Approve");
    assert_eq!(
        world.settles(),
        (
            "Approved".into(),
            vec!["NotProtected".into(), "Counted".into()]
        )
    );
}

#[test]
fn an_approved_call_is_noted_once_it_was_made() {
    let used = |question, phase: &str| {
        let mut world = World::new();
        world.decides("heron Approve").settles();
        world.question = question;
        assert_eq!(world.settles().0, phase);
        // Whatever is reported later.
        for later in [
            QuestionState::Gone,
            QuestionState::Used(CallResult::Failed),
            QuestionState::Unknown,
        ] {
            world.question = later;
            assert_eq!(world.settles().0, phase);
        }
        world.object["status"]["conditions"][0]["message"].to_string()
    };
    used(QuestionState::Used(CallResult::Succeeded), "Succeeded");
    used(QuestionState::Used(CallResult::Failed), "Failed");
    used(QuestionState::Used(CallResult::Unknown), "Unknown");
    used(QuestionState::Used(CallResult::Refused(None)), "Withdrawn");
    let refused = CallResult::Refused(Some("rate_limited".into()));
    let why = used(QuestionState::Used(refused), "Withdrawn");
    assert!(why.contains("refused it with rate_limited;"), "{why}");
    used(QuestionState::Gone, "Withdrawn");

    let mut world = World::new();
    world.decides("heron Approve").settles();
    world.question = QuestionState::Unknown;
    world.now = "2026-11-27T23:00:00Z".parse().expect("a time");
    assert_eq!(
        world.settles().0,
        "Approved",
        "the mediator may have made the call"
    );
    world.authority = Some(CallAuthority::PodGone);
    assert_eq!(world.settles().0, "Unknown");
}

#[test]
fn a_yes_that_was_not_protected_is_withdrawn_for_ever() {
    let mut world = World::new();
    world.decides("heron Approve").settles();
    world.protection = Protection::Unknown;
    assert_eq!(world.settles().0, "Approved");
    world.protection = Protection::Missing("no policy".into());
    assert_eq!(world.settles().0, "Withdrawn");
    world.protection = Protection::Holds;
    assert_eq!(world.settles().0, "Withdrawn");
}

/// The reasons of a world's decisions, with their numbers.
fn numbers(reasons: Vec<String>) -> BTreeMap<String, usize> {
    let mut numbers = BTreeMap::new();
    for reason in reasons {
        *numbers.entry(reason).or_default() += 1;
    }
    numbers
}

#[test]
fn decisions_of_others_do_not_displace_those_that_count() {
    let flooded = || {
        let mut world = World::new();
        world.decides("newt/wardens Approve");
        for _ in 0..1_000 {
            world.decides("perch Deny");
        }
        world
    };
    let check = |mut world: World, phase: &str, counted: usize| {
        let (found, reasons) = world.settles();
        assert_eq!(found, phase);
        let expected = [
            ("Counted".to_owned(), counted),
            ("NotAnApprover".to_owned(), MOST_DECISIONS - counted),
        ];
        assert_eq!(numbers(reasons), expected.into());
        world
    };
    // The flood comes between the two of one rule.
    let mut world = check(flooded(), "Pending", 1);
    world.decides("pike/wardens Approve");
    assert_eq!(world.settles().0, "Approved");

    for (decision, phase) in [("heron Approve", "Approved"), ("heron Deny", "Denied")] {
        let mut world = flooded();
        world.decides(decision);
        let mut world = check(world, phase, 2);
        for _ in 0..100 {
            world.decides("perch Deny");
        }
        let (found, reasons) = world.settles();
        assert_eq!((found.as_str(), reasons.len()), (phase, MOST_DECISIONS));
        assert_eq!(numbers(reasons)["Counted"], 2);
    }
}

#[test]
fn a_decision_that_is_not_looked_at_yet_is_not_deleted() {
    let mut world = World::new();
    for _ in 0..100 {
        world.decides("perch Deny");
    }
    world.settles();
    world.protection = Protection::Unknown;
    for _ in 0..100 {
        world.decides("heron Approve");
    }
    let plan = world.write();
    assert_eq!(
        (plan.counted, plan.surplus),
        (BTreeMap::new(), BTreeSet::new())
    );
    world.protection = Protection::Holds;
    let (phase, reasons) = world.settles();
    assert_eq!(phase, "Approved");
    assert_eq!(reasons.len(), MOST_DECISIONS);
}

#[test]
fn an_approver_displaces_no_other() {
    let mut world = World::new();
    for _ in 0..100 {
        world.decides("pike/wardens Approve");
    }
    let (phase, reasons) = world.settles();
    assert_eq!((phase.as_str(), reasons.len()), ("Pending", MOST_DECISIONS));
    world.decides("newt/wardens Approve");
    assert_eq!(world.settles().0, "Approved");
    assert_eq!(world.object["status"]["decidedBy"], "pike, newt");
}

#[test]
fn the_status_lists_the_decision_that_denies() {
    let mut world = World::new();
    for number in 0..MOST_LISTED {
        world.decides(&format!("pike-{number}/wardens Approve"));
    }
    world.decides("heron Deny");
    assert_eq!(world.settles().0, "Denied");
    let approval: StoredApproval = read(&world.object);
    let status = approval.body.expect("a body").status;
    assert_eq!(status.decisions.len(), MOST_LISTED);
    assert_eq!(denial(&status).map(|it| &*it.username), Some("heron"));
}

#[test]
fn a_finished_approval_is_deleted_after_an_hour() {
    let mut world = World::new();
    world.object["status"] = decided("Denied");
    world.now = "2026-11-27T10:01:59Z".parse().expect("a time");
    let plan = world.plan();
    assert_eq!(
        (plan.delete, plan.again),
        (false, Some(SignedDuration::from_secs(1)))
    );
    world.now = "2026-11-27T10:02:00Z".parse().expect("a time");
    assert!(world.plan().delete);
}

#[derive(Clone, Debug)]
enum Step {
    Decide(&'static str),
    Question(QuestionState),
    Stand(bool),
    Pod(bool),
    Protect(u8),
    Minutes(i64),
    /// Only the status is written, then the leader changes.
    Half,
    Write,
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::sample::select(vec![
            "heron Approve",
            "heron Deny",
            "newt/wardens Approve",
            "pike/wardens Approve",
            "pike/wardens Deny",
            "perch Approve",
        ])
        .prop_map(Step::Decide),
        prop::sample::select(vec![
            QuestionState::Unknown,
            QuestionState::Open,
            QuestionState::Gone,
            QuestionState::Used(CallResult::Succeeded),
            QuestionState::Used(CallResult::Refused(None)),
            QuestionState::Used(CallResult::Unknown),
        ])
        .prop_map(Step::Question),
        any::<bool>().prop_map(Step::Stand),
        any::<bool>().prop_map(Step::Pod),
        (0..3_u8).prop_map(Step::Protect),
        (0..40_i64).prop_map(Step::Minutes),
        Just(Step::Half),
        Just(Step::Write),
    ]
}

proptest! {
    /// Whatever happens in whatever order: what is finished stays, a yes comes from nothing but enough
    /// decisions, and a yes is never taken for a no of a person.
    #[test]
    fn an_end_is_final(steps in prop::collection::vec(some_step(), 0..30)) {
        let mut world = World::new();
        let mut ended: Option<(Ending, Timestamp)> = None;
        let mut was_approved = false;
        for step in steps {
            match step {
                Step::Decide(text) => drop(world.decides(text)),
                Step::Question(question) => world.question = question,
                Step::Stand(true) => world.authority = None,
                Step::Stand(false) => world.authority = Some(CallAuthority::Revoked("the tool is gone".into())),
                Step::Pod(true) => world.authority = Some(CallAuthority::PodGone),
                Step::Pod(false) => world.authority = Some(CallAuthority::Unknown),
                Step::Protect(0) => world.protection = Protection::Holds,
                Step::Protect(1) => world.protection = Protection::Unknown,
                Step::Protect(_) => world.protection = Protection::Missing("none".into()),
                Step::Minutes(minutes) => world.now += SignedDuration::from_mins(minutes),
                Step::Half => {
                    if let Some(status) = world.plan().status {
                        world.object["status"] = json!(status);
                    }
                }
                Step::Write => drop(world.write()),
            }
            let approval: StoredApproval = read(&world.object);
            let body = approval.body.expect("a body");
            let progress = body.progress();
            let approving = body.status.decisions.iter().filter(|it| it.verdict == DecisionVerdict::Approve);
            let users: BTreeSet<&str> = approving.map(|it| &*it.username).collect();
            let is_enough = users.contains("heron") || users.len() >= 2;
            match (ended, progress) {
                (Some((ending, since)), Progress::Finished(now, at)) => prop_assert_eq!((ending, since), (now, at)),
                (Some(_), _) => prop_assert!(false, "it is open again"),
                (None, Progress::Finished(ending, since)) => {
                    prop_assert!(!(was_approved && matches!(ending, Ending::Denied | Ending::Expired)));
                    prop_assert!(ending != Ending::Used || was_approved);
                    ended = Some((ending, since));
                }
                (None, Progress::Approved) => {
                    prop_assert!(is_enough);
                    was_approved = true;
                }
                (None, Progress::Pending) => prop_assert!(!was_approved),
            }
        }
    }
}
