//! Rules of grants at both places where they are checked: when a call is read, and at its dispatch.
//!
//! The property: whatever the files, the allowlist and the time are meanwhile, a call is dispatched
//! only if it meets a rule of the files that stands and whose window is open. The reference here
//! compares members by itself and knows neither schemas nor `toolcrib-rules`.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};
use support::{allowlist, policy, reply, request, ruled};
use toolcrib_manifest::{LinkAllowlist, Tier, ToolsFile};
use toolcrib_mediation::*;

/// Conditions of a rule, as the reference reads them. Times are hours.
#[derive(Clone, Debug, PartialEq)]
struct Conditions {
    account: Option<&'static str>,
    most: Option<i64>,
    from: Option<i64>,
    until: Option<i64>,
    /// An amount that a condition excludes.
    not: Option<i64>,
    /// An hour before which a condition does not hold.
    later: Option<i64>,
}

const ACCOUNTS: [&str; 2] = ["A-1", "B-2"];

fn hour(hour: i64) -> Timestamp {
    Timestamp::from_second(hour * 3600).unwrap()
}

impl Conditions {
    fn is_unconditional(&self) -> bool {
        let Self {
            account,
            most,
            from,
            until,
            not,
            later,
        } = self;
        account.is_none()
            && [most, from, until, not, later]
                .iter()
                .all(|it| it.is_none())
    }

    fn digest(&self) -> String {
        format!("r1:{self:?}")
    }

    fn entry(&self, grant: usize) -> Value {
        let mut entry = json!({"digest": self.digest(),
            "grant": {"namespace": "pond", "name": format!("g{grant}")}});
        if let Some(account) = self.account {
            entry["pin"] = json!({"account": account});
        }
        if let Some(most) = self.most {
            entry["arguments"] = json!({"properties": {"amount": {"maximum": most}}});
        }
        if let Some(from) = self.from {
            entry["not_before"] = json!(hour(from).to_string());
        }
        if let Some(until) = self.until {
            entry["not_after"] = json!(hour(until).to_string());
        }
        let mut when = Vec::new();
        if let Some(not) = self.not {
            when.push(json!({"expression": format!("args.amount != {not}"), "message": "another"}));
        }
        if let Some(later) = self.later {
            let expression = format!("now >= timestamp('{}')", hour(later));
            when.push(json!({"expression": expression, "message": "later"}));
        }
        if !when.is_empty() {
            entry["when"] = json!(when);
        }
        entry
    }

    /// The reference.
    fn is_met(&self, arguments: &Value, now: i64) -> bool {
        self.from.is_none_or(|from| from <= now)
            && self.until.is_none_or(|until| now < until)
            && self.later.is_none_or(|later| later <= now)
            && self
                .not
                .is_none_or(|not| arguments["amount"].as_i64().unwrap() != not)
            && self.account.is_none_or(|it| arguments["account"] == it)
            && self
                .most
                .is_none_or(|most| arguments["amount"].as_i64().unwrap() <= most)
    }
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let account = proptest::option::of(proptest::sample::select(ACCOUNTS.to_vec()));
    let most = proptest::option::of(0..3i64);
    let time = || proptest::option::weighted(0.3, 0..4i64);
    let not = proptest::option::weighted(0.3, 0..4i64);
    (account, most, not, time(), time(), time()).prop_map(
        |(account, most, not, from, until, later)| Conditions {
            account,
            most,
            from,
            until,
            not,
            later,
        },
    )
}

fn files(rules: &[Conditions]) -> ToolsFile {
    let rules: Vec<Value> = rules
        .iter()
        .enumerate()
        .map(|(at, it)| it.entry(at))
        .collect();
    ruled(&json!(rules))
}

/// The allowlist with these rules, as the operator writes it.
fn left(rules: &[Conditions]) -> LinkAllowlist {
    let listed = rules.iter().any(Conditions::is_unconditional);
    let tools: &[&str] = if listed { &["pond.pay"] } else { &[] };
    let conditional = rules.iter().filter(|it| !it.is_unconditional());
    allowlist(
        tools,
        &conditional.map(Conditions::digest).collect::<Vec<_>>(),
    )
}

fn authority(rules: &[Conditions], left: Option<&LinkAllowlist>) -> Authority {
    let catalog = Catalog::load(&files(rules), Tier::Elevated);
    Authority::new(Arc::new(catalog), left)
}

/// Reads a call of `pond.pay` in a turn whose tools are presented at `now`.
fn read(authority: &Authority, now: Timestamp, arguments: &Value) -> Result<ManagedCall, String> {
    let mut config = support::config(request(json!({})), policy());
    config.presented = PresentedTools::new(authority, &config.request, now);
    let (mut turn, _) = Turn::start(config).unwrap();
    let called = reply(&[("pond__pay", &arguments.to_string())], "");
    let effects = turn.step(Duration::ZERO, Event::Replied(called));
    match &effects[..] {
        [Effect::CallTools(calls)] => Ok(calls[0].clone()),
        _ => {
            let body = turn.request_body("m").unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let result = body["messages"].as_array().unwrap().last().unwrap();
            Err(result["content"].as_str().unwrap().to_string())
        }
    }
}

/// A state of the world: some rules, some of them left by the allowlist, and the time.
#[derive(Clone, Debug)]
struct World {
    rules: Vec<Conditions>,
    left: Option<Vec<Conditions>>,
    now: i64,
}

fn world() -> impl Strategy<Value = World> {
    proptest::collection::vec(conditions(), 1..4).prop_flat_map(|rules| {
        let most = rules.len();
        let left = proptest::option::of(subsequence(rules.clone(), 0..=most));
        (Just(rules), left, 0..4i64).prop_map(|(rules, left, now)| World { rules, left, now })
    })
}

impl World {
    fn authority(&self) -> Authority {
        let left = self.left.as_deref().map(left);
        authority(&self.rules, left.as_ref())
    }

    fn met<'w>(&'w self, arguments: &'w Value) -> impl Iterator<Item = &'w Conditions> {
        let left = self.left.as_deref();
        let stands = move |it: &&Conditions| left.is_none_or(|left| left.contains(it));
        let rules = self.rules.iter().filter(stands);
        rules.filter(|it| it.is_met(arguments, self.now))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Files, allowlist and time change between the moment at which tools are presented and the
    /// dispatch.
    #[test]
    fn a_call_is_dispatched_only_if_it_meets_an_open_standing_rule(
        (presented, dispatched) in (world(), world(), any::<bool>()).prop_map(|(a, b, same)| {
            (a.clone(), if same { a } else { b })
        }),
        account in proptest::option::of(proptest::sample::select(vec!["A-1", "B-2", "C-3"])),
        amount in 0..4i64,
    ) {
        let mut arguments = json!({"amount": amount});
        if let Some(account) = account {
            arguments["account"] = json!(account);
        }
        let offering = presented.authority();
        let call = match read(&offering, hour(presented.now), &arguments) {
            Ok(call) => call,
            Err(_) => {
                // What meets a rule as it is written is never refused.
                prop_assert!(account.is_none() || presented.met(&arguments).next().is_none());
                return Ok(());
            }
        };
        let sent: Value = serde_json::from_str(call.arguments().get()).unwrap();
        prop_assert!(presented.met(&sent).next().is_some(), "read: {sent}");
        prop_assert_eq!(&sent["amount"], &arguments["amount"]);
        if account.is_some() {
            prop_assert_eq!(&sent, &arguments);
        }
        let permitted = dispatched.authority().permits(&call, &RateCounts::default(), &BudgetCounts::default(), hour(dispatched.now));
        let expected = dispatched.met(&sent).next().map(Conditions::digest);
        prop_assert_eq!(permitted.is_ok(), expected.is_some(), "{:?}", permitted.err());
        if let Ok(live) = permitted {
            prop_assert_eq!(Some(&live.allowed_by().unwrap().rule), expected.as_ref());
        }
    }

    /// An offer is built again only when a window opens or closes, and is as one built then.
    #[test]
    fn the_offer_follows_the_windows(world in world(), times in proptest::collection::vec(0..4i64, 1..6)) {
        let kept = world.authority();
        for now in times {
            let shown = |authority: &Authority| {
                let presented = PresentedTools::alone(authority, hour(now));
                presented.tools().map(|(_, tool)| tool.shown_schema().to_string()).next()
            };
            prop_assert_eq!(shown(&kept), shown(&world.authority()));
        }
    }
}

/// A rule with one rate, and with one pinned account or none.
#[derive(Clone, Copy, Debug)]
struct RateRule {
    account: Option<&'static str>,
    calls: u64,
    /// Minutes.
    per: i64,
}

fn rate_rule() -> impl Strategy<Value = RateRule> {
    let account = proptest::option::of(proptest::sample::select(ACCOUNTS.to_vec()));
    (account, 1..4u64, 1..120i64).prop_map(|(account, calls, per)| RateRule {
        account,
        calls,
        per,
    })
}

fn with_rates(rules: &[RateRule]) -> Authority {
    let entry = |rule: &RateRule| {
        let mut entry = json!({"digest": format!("r1:{rule:?}"),
            "grant": {"namespace": "pond", "name": "a"},
            "rate": [{"calls": rule.calls, "per_ms": rule.per * 60_000}]});
        if let Some(account) = rule.account {
            entry["pin"] = json!({"account": account});
        }
        entry
    };
    load(&ruled(&rules.iter().map(entry).collect::<Value>()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// The reference remembers the time of every call. A period of some minutes has slots of as many
    /// seconds. The same past calls leave fewer rules no more room.
    #[test]
    fn a_call_runs_if_a_rule_that_it_meets_has_room(
        rules in proptest::collection::vec(rate_rule(), 1..4),
        calls in proptest::collection::vec((0..2400i64, any::<bool>()), 1..40),
        without in any::<prop::sample::Index>(),
    ) {
        let authority = with_rates(&rules);
        let any = load(&ruled(&json!([serde_json::from_str::<Value>(ALWAYS).unwrap()])));
        let mut fewer = rules.clone();
        fewer.remove(without.index(rules.len()));
        let fewer = (!fewer.is_empty()).then(|| with_rates(&fewer));
        let counts = RateCounts::default();
        let mut ran: Vec<(i64, &str)> = Vec::new();
        let mut now = 0;
        for (step, first) in calls {
            now += step;
            let time = Timestamp::from_second(now).unwrap();
            let account = if first { ACCOUNTS[0] } else { ACCOUNTS[1] };
            let call = read(&any, time, &json!({"account": account, "amount": 1})).unwrap();
            let meets = |rule: &RateRule, account: &str| rule.account.is_none_or(|it| it == account);
            let has_room = |rule: &RateRule| {
                let slot = |time: i64| time / rule.per;
                let counted = ran.iter().filter(|(at, other)| {
                    meets(rule, other) && slot(*at) + 60 >= slot(now)
                });
                (counted.count() as u64) < rule.calls
            };
            let expected = rules.iter().filter(|it| meets(it, account)).any(has_room);
            if let Some(fewer) = &fewer {
                let past = RateCounts::default();
                counts.take_all(time).into_iter().for_each(|it| past.restore(it));
                let allowed = fewer.permits(&call, &past, &BudgetCounts::default(), time).is_ok();
                prop_assert!(expected || !allowed, "fewer rules allow {account} at {now}");
            }
            let permitted = authority.permits(&call, &counts, &BudgetCounts::default(), time);
            prop_assert_eq!(permitted.is_ok(), expected, "{} at {}: {:?}", account, now, permitted.err());
            if expected {
                ran.push((now, account));
            }
        }
    }
}

const SMALL: &str = r#"{"digest": "r1:small", "grant": {"namespace": "pond", "name": "small"},
    "arguments": {"properties": {"amount": {"maximum": 100}}}}"#;
const PINNED: &str = r#"{"digest": "r1:a1", "grant": {"namespace": "pond", "name": "a1"},
    "pin": {"account": "A-1"}}"#;
const ALWAYS: &str = r#"{"digest": "r1:none", "grant": {"namespace": "pond", "name": "any"}}"#;

fn rules(texts: &[&str]) -> ToolsFile {
    let rules: Vec<Value> = texts
        .iter()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    ruled(&json!(rules))
}

fn load(file: &ToolsFile) -> Authority {
    Authority::new(Arc::new(Catalog::load(file, Tier::Elevated)), None)
}

fn shown(authority: &Authority) -> Option<Value> {
    let presented = PresentedTools::alone(authority, support::NOW);
    let schema = presented.tools().next()?.1.shown_schema().to_string();
    Some(serde_json::from_str(&schema).unwrap())
}

#[test]
fn the_model_is_shown_one_rule_and_no_mixture_of_several() {
    let whole = shown(&load(&rules(&[ALWAYS]))).unwrap();
    assert!(whole["properties"].get("account").is_some());
    let small = shown(&load(&rules(&[SMALL]))).unwrap();
    assert_eq!(small["properties"]["amount"]["maximum"], 100);
    let pinned = shown(&load(&rules(&[PINNED]))).unwrap();
    assert_eq!(pinned["required"], json!(["amount"]));
    assert!(pinned["properties"].get("account").is_none());
    for several in [[SMALL, PINNED], [SMALL, ALWAYS]] {
        assert_eq!(shown(&load(&rules(&several))).unwrap(), whole);
    }
    // The link left one of them.
    let catalog = Catalog::load(&rules(&[SMALL, PINNED]), Tier::Elevated);
    let left = allowlist(&[], &["r1:small".to_string()]);
    let authority = Authority::new(Arc::new(catalog), Some(&left));
    assert_eq!(shown(&authority).unwrap(), small);
}

#[test]
fn a_tool_whose_conditions_cannot_be_enforced_is_withheld() {
    let withheld = |file: &ToolsFile| {
        let catalog = Catalog::load(file, Tier::Elevated);
        let withheld = catalog.withheld().into_iter().map(|it| it.reason).next();
        assert_eq!(withheld.is_some(), catalog.get("pond.pay").is_none());
        withheld
    };
    let unsupported = Some("unsupported_requirement".to_string());
    assert_eq!(withheld(&rules(&[SMALL])), None);
    let mut newer = rules(&[SMALL]);
    newer.tools[0].extension.requires = vec!["rules/2".into()];
    assert_eq!(withheld(&newer), unsupported);
    newer.tools[0].extension.requires = vec!["rules/1".into(), "approval/1".into()];
    assert_eq!(withheld(&newer), unsupported);
    let mut without = rules(&[SMALL]);
    without.tools[0].extension.rules.clear();
    assert_eq!(withheld(&without), unsupported);
    // Not a time, not a schema, an identity, digits that a check drops.
    let broken = [
        r#""not_after": "soon""#,
        r#""arguments": {"properties": {"amount": {"maximum": "much"}}}"#,
        r#""arguments": {"properties": {"note": {"pattern": "("}}}"#,
        r#""when": [{"expression": "args.amount <", "message": "m"}]"#,
        r#""when": [{"expression": "args.note.matches('(')", "message": "m"}]"#,
        r#""pin": {"Claw_Id": "heron"}"#,
        r#""pin": {"amount": 100.00000000000000001}"#,
    ];
    for member in broken {
        let rule = format!(
            r#"{{"digest": "r1:x", "grant": {{"namespace": "pond", "name": "x"}}, {member}}}"#
        );
        // By text, since a value would drop the digits.
        let mut file = rules(&[PINNED]);
        file.tools[0].extension.rules = vec![serde_json::from_str(&rule).unwrap()];
        let authority = load(&file);
        let call = read(
            &load(&rules(&[ALWAYS])),
            support::NOW,
            &json!({"account": "x", "amount": 1}),
        );
        assert!(
            authority
                .permits(
                    &call.unwrap(),
                    &RateCounts::default(),
                    &BudgetCounts::default(),
                    support::NOW
                )
                .is_err(),
            "{member}"
        );
        // Beside a rule that can be read, it gives nothing.
        file.tools[0]
            .extension
            .rules
            .push(serde_json::from_str(PINNED).unwrap());
        assert_eq!(withheld(&file), None, "{member}");
        let refused = read(
            &load(&file),
            support::NOW,
            &json!({"account": "x", "amount": 1}),
        );
        assert!(
            refused.unwrap_err().contains("condition_failed"),
            "{member}"
        );
    }
}

#[test]
fn an_allowlist_without_rules_leaves_unconditional_rules_only() {
    let older = allowlist(&["pond.pay"], &[]);
    let older = LinkAllowlist {
        rules: Default::default(),
        ..older
    };
    let offered = |texts: &[&str]| {
        let catalog = Catalog::load(&rules(texts), Tier::Elevated);
        shown(&Authority::new(Arc::new(catalog), Some(&older))).is_some()
    };
    assert!(offered(&[ALWAYS]));
    assert!(offered(&[ALWAYS, SMALL]));
    assert!(!offered(&[SMALL]));
}

#[test]
fn an_allowlist_of_another_revision_of_the_tool_leaves_nothing() {
    let mut left = allowlist(&[], &["r1:small".to_string()]);
    let offered = |left: &LinkAllowlist| {
        let catalog = Catalog::load(&rules(&[SMALL]), Tier::Elevated);
        shown(&Authority::new(Arc::new(catalog), Some(left))).is_some()
    };
    assert!(offered(&left));
    left.rules.get_mut("pond.pay").unwrap().entry = "v1:other".into();
    assert!(!offered(&left));
}

/// A result about conditions stays small, whatever names and how many rules the files have.
#[test]
fn a_refusal_has_at_most_a_kibibyte_and_no_pinned_value() {
    let long = "n".repeat(2000);
    let rule = |at: usize| {
        json!({"digest": format!("r1:{at}"), "grant": {"namespace": "pond", "name": "g"},
            "pin": {"account": format!("secret-{at}")},
            "arguments": {"properties": {"note": {"enum": [format!("{long}{at}")]}}}})
    };
    let file = ruled(&json!((0..40).map(rule).collect::<Vec<_>>()));
    for arguments in [
        json!({"account": "x", "amount": 1, "note": "n"}),
        json!({"amount": 1, "note": "n"}),
        json!({"amount": 1}),
    ] {
        let refused = read(&load(&file), support::NOW, &arguments).unwrap_err();
        assert!(refused.len() <= 1024, "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
}

/// The service would read the other name, whose value no rule has seen.
#[test]
fn a_pinned_argument_in_another_case_is_refused() {
    for (name, transport) in [("Account", "http"), ("ACCOUNT", "mcp")] {
        let mut file = rules(&[PINNED]);
        let mut execution = serde_json::to_value(&file.tools[0].execution).unwrap();
        execution["transport"] = json!(transport);
        file.tools[0].execution = serde_json::from_str(&execution.to_string()).unwrap();
        let schema = r#"{"type":"object","properties":{"account":{},"amount":{}}}"#;
        file.tools[0].input_schema = toolcrib_manifest::RawJson::from_text(schema).unwrap();
        let mut arguments = json!({"amount": 1});
        arguments[name] = json!("B-2");
        let refused = read(&load(&file), support::NOW, &arguments);
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn arguments_that_met_a_rule_are_not_parsed_again_at_the_dispatch() {
    let bytes = |when: &str| {
        let rule = json!({"digest": "r1:note", "grant": {"namespace": "pond", "name": "g"},
            "arguments": {"properties": {"note": {"minLength": 1}}},
            "when": [{"expression": when, "message": "m"}]});
        let authority = load(&ruled(&json!([rule])));
        let arguments = json!({"account": "A-1", "amount": 1, "note": "n".repeat(60_000)});
        let call = read(&authority, support::NOW, &arguments).unwrap();
        let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
        let used = allocation_counter::measure(|| {
            authority
                .permits(&call, &rates, &budgets, support::NOW)
                .unwrap();
        });
        used.bytes_total
    };
    let once = bytes("args.note.size() > 5");
    assert!(once < 10_000, "{once}");
    // Its condition can change with the time.
    let again = bytes("args.note.size() > 5 && now < timestamp('2027-01-01T00:00:00Z')");
    assert!(again > 60_000, "{again}");
}

#[test]
fn a_direct_call_is_read_by_the_same_rules() {
    let file = rules(&[SMALL, PINNED]);
    let authority = load(&file);
    let presented = PresentedTools::alone(&authority, support::NOW);
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let call = |text: &str| DirectCall::new(&presented, &claw_id, "pond.pay", text);
    let mut filled = call(r#"{"amount": 500}"#);
    let started = filled.start(Duration::ZERO).unwrap();
    assert_eq!(
        started.arguments().get(),
        r#"{"amount": 500,"account":"A-1"}"#
    );
    let refused = call(r#"{"amount": 500, "account": "B-2"}"#).end(None);
    assert!(
        refused.result.contains("condition_failed"),
        "{}",
        refused.result
    );
    assert!(refused.result.contains("`account` is fixed: leave it out"));
}
