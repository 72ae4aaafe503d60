//! Approvals: who asks, what a decision changes, and that an approval is used at most once.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::{NOW, ruled};
use toolcrib_manifest::{
    ApprovalRef, ApprovalUse, Budget, BudgetPeriod, BudgetUnit, Decision, MOST_QUESTIONS,
    OpenQuestion, RateCount, RateUse, Tier, ToolsFile, Verdict,
};
use toolcrib_mediation::{
    ApprovalNeed, Authority, BudgetCounts, Catalog, ClawId, Denial, DirectCall, EarlierQuestion,
    Ending, ManagedCall, PendingNeed, PresentedTools, Progress, Questions, RateCounts, ResultCode,
    Standing, WaitingCall,
};

fn authority(file: &ToolsFile) -> Authority {
    Authority::new(Arc::new(Catalog::load(file, Tier::Elevated)), None)
}

fn rule(digest: &str, conditions: Value) -> Value {
    let mut rule = json!({"digest": digest, "grant": {"namespace": "pond", "name": digest}});
    for (name, value) in conditions.as_object().unwrap() {
        rule[name] = value.clone();
    }
    rule
}

/// `pond.pay` by these rules, asked for by these policies, at this tier.
fn files(rules: &Value, policies: &[&str], tier: &str) -> ToolsFile {
    let mut file = ruled(rules);
    let extension = &mut file.tools[0].extension;
    extension.approval = policies.iter().map(|it| (*it).to_owned()).collect();
    extension.tier = Some(tier.to_owned());
    extension.requires = vec!["approval/1".to_owned()];
    file
}

fn pay(file: &ToolsFile, amount: u64) -> ManagedCall {
    paid(file, amount).unwrap()
}

/// `None`: the call is refused when it is read.
fn paid(file: &ToolsFile, amount: u64) -> Option<ManagedCall> {
    let authority = authority(file);
    let presented = PresentedTools::alone(&authority, NOW);
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let arguments = json!({"account": "A", "amount": amount}).to_string();
    let mut call = DirectCall::new(&presented, &claw_id, "pond.pay", &arguments);
    call.start(Duration::ZERO)
}

/// The need of a call that may not run without an approval now.
#[track_caller]
fn need(authority: &Authority, call: &ManagedCall, rates: &RateCounts) -> ApprovalNeed {
    match authority.permits(call, rates, &BudgetCounts::default(), NOW) {
        Err(Denial::NeedsApproval { need, .. }) => *need,
        permitted => panic!("{permitted:?}"),
    }
}

/// The rules and policies that ask for a payment of this amount; `None`: nobody does.
fn asks(file: &ToolsFile, amount: u64) -> Option<(Vec<String>, Vec<String>, bool)> {
    let call = pay(file, amount);
    let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
    let authority = authority(file);
    let need = match authority.permits(&call, &rates, &budgets, NOW) {
        Ok(_) => return None,
        Err(Denial::NeedsApproval { need, .. }) => need,
        Err(denial) => panic!("{denial:?}"),
    };
    // Only a call that may run is counted.
    assert_eq!(rates.take_all(NOW), []);
    let approved = authority.permits_approved(&call, &need, &rates, &budgets, NOW);
    assert!(approved.is_ok(), "{approved:?}");
    let rules = need.rules.into_iter().map(|it| it.rule).collect();
    Some((rules, need.policies, need.by_tier))
}

fn some(rules: &[&str], policies: &[&str], tier: bool) -> Option<(Vec<String>, Vec<String>, bool)> {
    let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    Some((owned(rules), owned(policies), tier))
}

#[test]
fn a_call_needs_an_approval_if_every_rule_that_it_meets_asks() {
    let small = json!({"properties": {"amount": {"maximum": 10}}});
    let rules = json!([
        rule("small", json!({"arguments": small})),
        rule("any", json!({"approval": true})),
        rule(
            "rated",
            json!({"approval": true, "rate": [{"calls": 1, "per_ms": 60_000}]})
        ),
    ]);
    let file = files(&rules, &[], "System");
    assert_eq!(asks(&file, 5), None);
    assert_eq!(asks(&file, 50), some(&["any", "rated"], &[], false));
    let file = files(&rules, &["two-eyes"], "System");
    assert_eq!(asks(&file, 5), some(&[], &["two-eyes"], false));
    let file = files(&rules, &["two-eyes"], "Elevated");
    assert_eq!(
        asks(&file, 50),
        some(&["any", "rated"], &["two-eyes"], true)
    );
    // A policy asks for a tool without rules.
    let file = files(&json!([]), &["two-eyes"], "System");
    assert_eq!(asks(&file, 5), some(&[], &["two-eyes"], false));
    // A rule that is tried out lets a call run that it would refuse, but not without its approval.
    let tried = json!([rule(
        "tried",
        json!({"approval": true, "audit": true, "arguments": small})
    )]);
    let file = files(&tried, &[], "System");
    assert_eq!(asks(&file, 50), some(&["tried"], &[], false));
}

#[test]
fn a_requirement_without_anybody_who_asks_withholds_the_tool() {
    let file = files(&json!([]), &[], "System");
    let catalog = Catalog::load(&file, Tier::Elevated);
    assert_eq!(catalog.withheld()[0].reason, "unsupported_requirement");
}

#[test]
fn a_rule_without_room_allows_nothing_without_an_approval() {
    let rules = json!([
        rule("free", json!({"rate": [{"calls": 1, "per_ms": 60_000}]})),
        rule("asks", json!({"approval": true})),
    ]);
    let file = files(&rules, &[], "System");
    let (call, authority) = (pay(&file, 5), authority(&file));
    let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
    let permits = || authority.permits(&call, &rates, &budgets, NOW);
    assert_eq!(permits().unwrap().allowed_by().unwrap().rule, "free");
    let Err(Denial::NeedsApproval { need, .. }) = permits() else {
        panic!("the second call needs an approval")
    };
    assert_eq!(need.rules[0].rule, "asks");
    let approved = authority.permits_approved(&call, &need, &rates, &budgets, NOW);
    assert_eq!(approved.unwrap().allowed_by().unwrap().rule, "asks");
}

#[test]
fn everything_else_is_decided_before_a_person_is_asked() {
    let rates = json!({"approval": true, "rate": [{"calls": 1, "per_ms": 60_000}]});
    let file = files(&json!([rule("rated", rates)]), &[], "System");
    let call = pay(&file, 5);
    let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
    let limit = [Budget {
        limit: 1,
        per: BudgetPeriod::Day,
        unit: BudgetUnit::Calls,
    }];
    let plain = authority(&file);
    let need = need(&plain, &call, &rates);
    let limited = plain.clone().with_budgets(&limit);
    let sent = limited.permits_approved(&call, &need, &rates, &budgets, NOW);
    assert_eq!(sent.unwrap().counted().len(), 1);
    let again = plain.permits(&call, &rates, &budgets, NOW);
    assert!(
        matches!(again, Err(Denial::RateLimited { .. })),
        "{again:?}"
    );
    let again = limited.permits(&call, &RateCounts::default(), &budgets, NOW);
    assert!(matches!(again, Err(Denial::Exhausted { .. })), "{again:?}");
    // The approval replaces nothing but the person.
    let again = plain.permits_approved(&call, &need, &rates, &budgets, NOW);
    assert!(
        matches!(again, Err(Denial::RateLimited { .. })),
        "{again:?}"
    );
    let gone = authority(&files(&json!([]), &[], "System"));
    let again = gone.permits_approved(&call, &need, &rates, &budgets, NOW);
    assert!(again.is_err(), "{again:?}");
}

#[test]
fn an_approval_is_no_approval_of_another_need() {
    let file = |rule_name: &str, policies: &[&str]| {
        files(
            &json!([rule(rule_name, json!({"approval": true}))]),
            policies,
            "System",
        )
    };
    let before = file("one", &["p"]);
    let call = pay(&before, 5);
    let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
    let need = need(&authority(&before), &call, &rates);
    for (after, is_approved) in [
        (file("one", &["p"]), true),
        (file("one", &[]), true),
        (file("one", &["p", "q"]), false),
        (file("two", &["p"]), false),
    ] {
        let permitted = authority(&after).permits_approved(&call, &need, &rates, &budgets, NOW);
        assert_eq!(permitted.is_ok(), is_approved, "{permitted:?}");
    }
}

/// Counts of other pods that use up these rules, each of one call in a minute.
fn used_up(rules: &[&str]) -> RateCounts {
    let slot = NOW.as_second();
    let used = |rule: &&str| RateUse {
        tool: "pond.pay".to_owned(),
        rule: (*rule).to_owned(),
        counts: vec![RateCount {
            calls: BTreeMap::from([(slot, 1)]),
            per_ms: 60_000,
        }],
    };
    let counts = RateCounts::default();
    let used: Vec<RateUse> = rules.iter().map(used).collect();
    counts.learn(&used, NOW);
    counts
}

#[test]
fn a_rate_that_is_used_up_does_not_end_a_wait() {
    let once = json!([{"calls": 1, "per_ms": 60_000}]);
    let free = || rule("free", json!({"rate": once}));
    let asks = || rule("asks", json!({"approval": true}));
    let rated = || rule("rated", json!({"approval": true, "rate": once}));
    // Rules; those that are used up when the call is made, and while it waits; the rules that ask.
    #[track_caller]
    fn check(file: &ToolsFile, before: &[&str], meanwhile: &[&str], asking: &[&str]) {
        let (call, authority) = (pay(file, 5), authority(file));
        let asked = need(&authority, &call, &used_up(before));
        let rules: Vec<&str> = asked.rules.iter().map(|it| it.rule.as_str()).collect();
        assert_eq!(rules, asking);
        let pending = authority.pending_need(&call, &asked, &used_up(meanwhile), NOW);
        assert_eq!(pending, Ok(PendingNeed::Asked));
    }
    let both = files(&json!([free(), asks()]), &[], "System");
    check(&both, &["free"], &["free"], &["asks"]);
    let two = files(&json!([asks(), rated()]), &[], "System");
    check(&two, &[], &["rated"], &["asks", "rated"]);
    check(&two, &["rated"], &[], &["asks"]);
    let one = files(&json!([rated()]), &[], "System");
    check(&one, &[], &["rated"], &["rated"]);
    // The tier asks, and the rule that lets the call run does not.
    let elevated = files(&json!([free(), asks()]), &[], "Elevated");
    check(&elevated, &[], &["free"], &[]);
    check(&elevated, &["free"], &[], &["asks"]);
    // The rule that does not ask has room again.
    let (call, authority) = (pay(&both, 5), authority(&both));
    let asked = need(&authority, &call, &used_up(&["free"]));
    let pending = authority.pending_need(&call, &asked, &RateCounts::default(), NOW);
    assert_eq!(pending, Ok(PendingNeed::None));
}

#[test]
fn a_budget_that_is_used_up_does_not_end_a_wait() {
    let file = files(&json!([]), &["two-eyes"], "System");
    let limit = Budget {
        limit: 0,
        per: BudgetPeriod::Day,
        unit: BudgetUnit::Calls,
    };
    let (call, plain) = (pay(&file, 5), authority(&file));
    let asked = need(&plain, &call, &RateCounts::default());
    let limited = plain.with_budgets(&[limit]);
    let pending = limited.pending_need(&call, &asked, &RateCounts::default(), NOW);
    assert_eq!(pending, Ok(PendingNeed::Asked));
}

#[test]
fn a_wait_ends_with_what_is_taken_away() {
    let ask = |digest: &str| rule(digest, json!({"approval": true}));
    let once = json!({"rate": [{"calls": 1, "per_ms": 60_000}]});
    let rules = [rule("free", once), ask("one"), ask("two")];
    let only = |names: &[usize]| {
        let left: Vec<&Value> = names.iter().map(|at| &rules[*at]).collect();
        files(&json!(left), &["p"], "System")
    };
    let rates = used_up(&["free"]);
    let before = only(&[0, 1]);
    let call = pay(&before, 5);
    let asked = need(&authority(&before), &call, &rates);
    let after = |file: &ToolsFile| authority(file).pending_need(&call, &asked, &rates, NOW);
    assert_eq!(after(&only(&[0, 1, 2])), Ok(PendingNeed::Asked));
    assert_eq!(after(&only(&[0, 2])), Ok(PendingNeed::Other));
    assert!(matches!(
        after(&only(&[0])),
        Err(Denial::RateLimited { .. })
    ));
    let mut other = before.clone();
    other.tools[0].extension.approval = vec!["q".to_owned()];
    assert_eq!(after(&other), Ok(PendingNeed::Other));
    other.tools.clear();
    assert!(matches!(after(&other), Err(Denial::Withdrawn { .. })));
}

/// A rule by its number: with or without an approval, a rate, a condition that the call does not meet,
/// and tried out.
fn numbered(at: usize, bits: u8) -> Value {
    let mut conditions = json!({"approval": bits & 1 != 0, "audit": bits & 2 != 0});
    if bits & 4 != 0 {
        conditions["rate"] = json!([{"calls": 1, "per_ms": 60_000}]);
    }
    if bits & 8 != 0 {
        conditions["arguments"] = json!({"properties": {"amount": {"maximum": 1}}});
    }
    rule(&format!("r{at}"), conditions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Otherwise the call would be asked about again and again.
    #[test]
    fn a_call_that_was_just_asked_about_waits(
        rules in proptest::collection::vec((0..16_u8, any::<bool>()), 0..5),
        policy in any::<bool>(),
        is_elevated in any::<bool>(),
    ) {
        let entries = rules.iter().enumerate().map(|(at, (bits, _))| numbered(at, *bits));
        let entries: Vec<Value> = entries.collect();
        let policies: &[&str] = if policy { &["p"] } else { &[] };
        let tier = if is_elevated { "Elevated" } else { "System" };
        let mut file = files(&json!(entries), policies, tier);
        file.tools[0].extension.requires.clear();
        let used = rules.iter().enumerate().filter(|(_, (_, is_used))| *is_used);
        let used: Vec<String> = used.map(|(at, _)| format!("r{at}")).collect();
        let rates = used_up(&used.iter().map(String::as_str).collect::<Vec<_>>());
        let authority = authority(&file);
        // A call that meets no rule is refused before its dispatch.
        let Some(call) = paid(&file, 5) else { return Ok(()) };
        let permitted = authority.permits(&call, &rates, &BudgetCounts::default(), NOW);
        if let Err(Denial::NeedsApproval { need, .. }) = permitted {
            let asked = need.for_question();
            let pending = authority.pending_need(&call, &asked, &rates, NOW);
            prop_assert_eq!(pending, Ok(PendingNeed::Asked));
        }
    }
}

#[test]
fn a_question_names_some_of_many_rules() {
    let once = json!([{"calls": 1, "per_ms": 60_000}]);
    let rules: Vec<Value> = (0..50)
        .map(|at| rule(&format!("r{at}"), json!({"approval": true, "rate": once})))
        .collect();
    let file = files(&json!(rules), &[], "System");
    let (call, authority) = (pay(&file, 5), authority(&file));
    let rates = used_up(&["r0", "r1"]);
    let asked = need(&authority, &call, &rates).for_question();
    assert_eq!(asked.rules.len(), 32);
    let pending = authority.pending_need(&call, &asked, &rates, NOW);
    assert_eq!(pending, Ok(PendingNeed::Asked));
    let approved = authority.permits_approved(&call, &asked, &rates, &BudgetCounts::default(), NOW);
    assert!(approved.is_ok(), "{approved:?}");
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

fn digest(id: &str, call: usize) -> String {
    format!("c1:{id}-{call}")
}

fn waiting(id: &str, call: usize) -> WaitingCall {
    WaitingCall {
        id: id.to_owned(),
        digest: digest(id, call),
        tool: "pond.pay".to_owned(),
        entry: "v1:pay".to_owned(),
        need: ApprovalNeed::default(),
    }
}

fn decision(id: &str, call: usize, verdict: Verdict) -> Decision {
    Decision {
        id: id.to_owned(),
        call_digest: digest(id, call),
        verdict,
        approval: Some(ApprovalRef {
            name: format!("otter-{id}"),
            uid: format!("u-{id}"),
        }),
        decided_by: vec!["ada".to_owned()],
        reason: "because".to_owned(),
    }
}

#[test]
fn a_decision_ends_only_its_own_question() {
    let check = |decision: Decision, is_taken: bool| {
        let mut questions = Questions::default();
        questions.open_one(waiting("a", 1), HOUR, SECOND);
        let taken = !questions.decide(&[decision], SECOND).is_empty();
        assert_eq!(taken, is_taken);
        let is_approved = questions.standing("a", SECOND) == Standing::Approved;
        assert_eq!(is_approved, is_taken);
        assert_eq!(questions.take("a", SECOND).is_some(), is_taken);
    };
    check(decision("a", 1, Verdict::Approved), true);
    check(decision("b", 1, Verdict::Approved), false);
    check(decision("a", 2, Verdict::Approved), false);
    // The record could not name it.
    let unnamed = Decision {
        approval: None,
        ..decision("a", 1, Verdict::Approved)
    };
    check(unnamed, false);
}

#[test]
fn the_operator_ends_a_question_of_which_it_knows_no_object() {
    let mut questions = Questions::default();
    questions.open_one(waiting("a", 1), HOUR, SECOND);
    let without = |verdict| Decision {
        call_digest: String::new(),
        ..decision("a", 1, verdict)
    };
    questions.decide(&[without(Verdict::Approved)], SECOND);
    assert!(matches!(
        questions.standing("a", SECOND),
        Standing::Open { .. }
    ));
    questions.decide(&[without(Verdict::Withdrawn)], SECOND);
    let Standing::Ended { ending, .. } = questions.standing("a", SECOND) else {
        panic!("the question has ended")
    };
    assert_eq!(ending, Ending::Withdrawn("because".to_owned()));
}

#[test]
fn a_no_stays_a_no_for_a_while() {
    let mut questions = Questions::default();
    questions.open_one(waiting("a", 1), HOUR, SECOND);
    questions.decide(&[decision("a", 1, Verdict::Denied)], SECOND);
    questions.decide(&[decision("a", 1, Verdict::Approved)], SECOND);
    assert_eq!(questions.take("a", SECOND), None);
    let find = |questions: &mut Questions, now| {
        let found = questions.find("pond.pay", "v1:pay", |id| digest(id, 1), now);
        found.map(|it| it.id.clone())
    };
    let later = Duration::from_mins(14);
    assert_eq!(find(&mut questions, later), Some("a".to_owned()));
    let Standing::Ended { ending, .. } = questions.standing("a", later) else {
        panic!("the question has ended")
    };
    assert_eq!(ending, Ending::Denied("because".to_owned()));
    assert_eq!(find(&mut questions, Duration::from_mins(16)), None);
    assert_eq!(questions.report(later), []);
}

#[test]
fn a_yes_is_over_with_its_question() {
    let mut questions = Questions::default();
    questions.open_one(waiting("a", 1), HOUR, SECOND);
    questions.decide(&[decision("a", 1, Verdict::Approved)], SECOND);
    assert_eq!(questions.take("a", HOUR + SECOND), None);
    // The operator takes it back before it is used.
    questions.open_one(waiting("b", 1), HOUR, SECOND);
    questions.decide(&[decision("b", 1, Verdict::Approved)], SECOND);
    questions.decide(&[decision("b", 1, Verdict::Withdrawn)], SECOND);
    assert_eq!(questions.take("b", SECOND), None);
}

#[test]
fn a_question_whose_time_is_up_is_told_once() {
    let mut questions = Questions::default();
    questions.open_one(waiting("a", 1), HOUR, SECOND);
    questions.open_one(waiting("b", 2), HOUR, HOUR);
    assert_eq!(questions.take_expired(HOUR), []);
    // Another look is first to see it.
    let over = HOUR + SECOND;
    assert_eq!(questions.report(over).len(), 1);
    assert_eq!(questions.take_expired(over), [waiting("a", 1)]);
    assert_eq!(questions.take_expired(over), []);
    // A decision and a use are no expiry.
    questions.decide(&[decision("b", 2, Verdict::Approved)], over);
    questions.take("b", over).unwrap();
    questions.used("b", ApprovalUse::Succeeded, None, over);
    assert_eq!(questions.take_expired(HOUR * 3), []);
}

#[test]
fn a_used_approval_is_reported_until_the_operator_has_heard_it() {
    let mut questions = Questions::default();
    questions.open_one(waiting("a", 1), HOUR, SECOND);
    let yes = [decision("a", 1, Verdict::Approved)];
    questions.decide(&yes, SECOND);
    let approval = questions.take("a", SECOND).unwrap();
    assert_eq!(approval.decided_by, ["ada"]);
    assert_eq!(questions.take("a", SECOND), None);
    let before = questions.report(SECOND);
    questions.used(
        "a",
        ApprovalUse::Refused,
        Some(ResultCode::RateLimited),
        SECOND,
    );
    // The answer to a report from before its use.
    questions.acknowledged(&before, &[]);
    let report = questions.report(SECOND);
    let expected = OpenQuestion {
        id: "a".to_owned(),
        used: Some(ApprovalUse::Refused),
        code: Some("rate_limited".to_owned()),
    };
    assert_eq!(report, [expected]);
    questions.acknowledged(&report, &yes);
    assert_eq!(questions.report(SECOND), report);
    questions.acknowledged(&report, &[]);
    assert_eq!(questions.report(SECOND), []);
}

#[test]
fn a_restart_opens_the_latest_questions_that_fit() {
    let earlier = |at: usize| EarlierQuestion {
        call: waiting(&at.to_string(), at),
        progress: Progress::Open,
        left: HOUR,
    };
    let mut questions = Questions::default();
    questions.restore((0..20).map(earlier).collect(), SECOND);
    let report = questions.report(SECOND);
    assert_eq!(report.len(), MOST_QUESTIONS);
    assert_eq!(report[0].id, "12");
    assert!(!questions.has_room(SECOND));
}

/// An event in the life of a mediator and its operator. Numbers choose a call or a question.
#[derive(Clone, Debug)]
enum Op {
    /// A call comes, with these arguments.
    Call(usize),
    /// A decision comes, about the question of this number, with the digest of this call.
    Decide(usize, usize, u8),
    /// The same decisions come again.
    Again,
    /// A call uses the approval of a question; it is killed before its intent line, before it is
    /// sent, before its end, or never.
    Use(usize, u8),
    /// The process is killed and starts again.
    Kill,
    Report,
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..4_usize).prop_map(Op::Call),
        6 => (0..12_usize, 0..4_usize, 0..5_u8).prop_map(|(q, c, v)| Op::Decide(q, c, v)),
        2 => Just(Op::Again),
        6 => (0..12_usize, 0..5_u8).prop_map(|(q, k)| Op::Use(q, k)),
        2 => Just(Op::Kill),
        1 => Just(Op::Report),
        1 => (1..2000_u64).prop_map(Op::Wait),
    ];
    proptest::collection::vec(op, 1..120)
}

/// A mediator whose record is a list.
#[derive(Default)]
struct Model {
    questions: Questions,
    now: Duration,
    /// The record: each question with its call, the time of its expiry, and true after its intent.
    record: Vec<(WaitingCall, Duration, bool)>,
    messages: Vec<Decision>,
    /// Number of times that each question's approval was used to send a call.
    sent: BTreeMap<String, usize>,
}

impl Model {
    fn call(&mut self, call: usize) {
        let digest_of = |id: &str| digest(id, call);
        let found = self
            .questions
            .find("pond.pay", "v1:pay", digest_of, self.now);
        if found.is_some() || !self.questions.has_room(self.now) {
            return;
        }
        let question = waiting(&format!("q{}", self.record.len()), call);
        self.record.push((question.clone(), self.now + HOUR, false));
        self.questions.open_one(question, HOUR, self.now);
    }

    fn decide(&mut self, question: usize, call: usize, verdict: u8) {
        let verdict = match verdict {
            0 | 1 => Verdict::Approved,
            2 => Verdict::Denied,
            3 => Verdict::Expired,
            _ => Verdict::Withdrawn,
        };
        // Most have the digest of the question, some of another call.
        let known = self.record.get(question).map(|it| it.0.digest.clone());
        let mut decision = decision(&format!("q{question}"), call, verdict);
        if let Some(digest) = known.filter(|_| call > 0) {
            decision.call_digest = digest;
        }
        self.messages.push(decision);
        self.questions
            .decide(&self.messages[self.messages.len() - 1..], self.now);
    }

    fn used(&mut self, question: usize, killed_at: u8) {
        let id = format!("q{question}");
        if self.questions.take(&id, self.now).is_none() {
            return;
        }
        let line = &mut self.record[question];
        assert!(self.now < line.1, "an approval that is over was used");
        let is_approved = |it: &Decision| {
            it.id == id && it.call_digest == line.0.digest && it.verdict == Verdict::Approved
        };
        assert!(self.messages.iter().any(is_approved), "nobody approved it");
        if killed_at == 0 {
            return self.kill();
        }
        line.2 = true;
        if killed_at == 1 {
            return self.kill();
        }
        *self.sent.entry(id.clone()).or_default() += 1;
        if killed_at == 2 {
            return self.kill();
        }
        self.questions
            .used(&id, ApprovalUse::Succeeded, None, self.now);
    }

    fn kill(&mut self) {
        let earlier = self.record.iter().map(|(call, until, is_used)| {
            let progress = match is_used {
                true => Progress::Used(ApprovalUse::Unknown),
                false => Progress::Open,
            };
            EarlierQuestion {
                call: call.clone(),
                progress,
                left: until.saturating_sub(self.now),
            }
        });
        let earlier = earlier.collect();
        self.questions = Questions::default();
        self.questions.restore(earlier, self.now);
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Call(call) => self.call(call),
            Op::Decide(question, call, verdict) => self.decide(question, call, verdict),
            Op::Again => {
                self.questions.decide(&self.messages, self.now);
            }
            Op::Use(question, killed_at) => self.used(question, killed_at),
            Op::Kill => self.kill(),
            Op::Report => {
                let report = self.questions.report(self.now);
                self.questions.acknowledged(&report, &[]);
            }
            Op::Wait(seconds) => self.now += Duration::from_secs(seconds),
        }
        assert!(self.questions.open_count(self.now) <= MOST_QUESTIONS);
        for (id, sent) in &self.sent {
            assert_eq!(*sent, 1, "{id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_approval_is_used_at_most_once(ops in ops()) {
        let mut model = Model::default();
        for op in ops {
            model.step(op);
        }
    }
}

/// Guards the property: calls are sent in it at all, also after a kill.
#[test]
fn the_model_sends_calls() {
    let mut model = Model::default();
    for op in [
        Op::Call(1),
        Op::Decide(0, 1, 0),
        Op::Kill,
        Op::Again,
        Op::Use(0, 0),
        Op::Again,
        Op::Use(0, 1),
        Op::Again,
        Op::Use(0, 4),
        Op::Call(1),
        Op::Decide(1, 1, 0),
        Op::Use(1, 4),
        Op::Again,
        Op::Use(1, 4),
    ] {
        model.step(op);
    }
    assert_eq!(model.sent.keys().collect::<Vec<_>>(), ["q1"]);
}
