//! The executor of each call: every order of owners, and the invariants of any script. `live.rs`
//! tests every dialect, whole and streamed.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use support::*;
use toolcrib_manifest::Policy;
use toolcrib_mediation::*;

/// The table of owners, one call at a time.
fn reference(owners: &str) -> &'static str {
    let (mut managed, mut runner) = (false, false);
    for owner in owners.chars() {
        match owner {
            'm' if runner => return "interleaved",
            'm' => managed = true,
            _ => runner = true,
        }
    }
    match (managed, runner) {
        (false, false) => "no calls",
        (true, false) => "managed",
        (false, true) => "runner",
        (true, true) => "managed then runner",
    }
}

/// The outcome of the turn, observed from outside.
fn observed(owners: &str) -> &'static str {
    let arguments: Vec<String> = (0..owners.len())
        .map(|at| format!(r#"{{"at":{at}}}"#))
        .collect();
    let calls: Vec<(&str, &str)> = owners
        .chars()
        .zip(&arguments)
        .map(|(owner, arguments)| match owner {
            'm' => ("pond__feed", arguments.as_str()),
            _ => ("shell", arguments.as_str()),
        })
        .collect();
    let run = run(
        config(request(json!({})), policy()),
        vec![reply(&calls, "t"), reply(&[], "end")],
        |_| responded(200, "{}"),
    );
    let executed = run.groups.len();
    let shown = run.body()["choices"][0]["message"]["tool_calls"]
        .as_array()
        .map_or(0, Vec::len);
    let managed = owners.chars().filter(|owner| *owner == 'm').count();
    match (run.bodies.len(), executed, shown) {
        (1, 0, 0) => "no calls",
        (1, 0, shown) if shown == owners.len() => "runner",
        (2, 0, 0) => {
            assert_eq!(run.results(), vec!["mixed_tool_order"; owners.len()]);
            "interleaved"
        }
        (2, executed, 0) if executed == managed => {
            assert_eq!(run.results(), vec!["ok"; managed]);
            if managed == owners.len() {
                "managed"
            } else {
                "managed then runner"
            }
        }
        other => panic!("{owners}: {other:?}"),
    }
}

#[test]
fn every_order_of_up_to_six_owners_is_partitioned() {
    for length in 0..=6u32 {
        for bits in 0..1u32 << length {
            let owners: String = (0..length)
                .map(|at| if bits >> at & 1 == 1 { 'm' } else { 'r' })
                .collect();
            assert_eq!(observed(&owners), reference(&owners), "{owners}");
        }
    }
}

#[derive(Clone, Debug)]
struct Script {
    replies: Vec<Vec<(usize, u8)>>,
    outcomes: Vec<u8>,
    max_rounds: u32,
}

const NAMES: [&str; 13] = [
    "pond__depth",
    "pond__feed",
    "pond.look",
    "pond__look",
    "pond__wait",
    "pond__set",
    "pond__leave",
    "pond__drain",
    "pond__whose",
    "pond.unknown",
    "nobodys",
    "shell",
    "shell",
];
const ARGUMENTS: [&str; 5] = ["", r#"{"at":1}"#, r#"{"at":99}"#, "[", r#"{ "at" : 1.0 }"#];

fn scripts() -> impl Strategy<Value = Script> {
    let call = (0..NAMES.len(), 0..ARGUMENTS.len() as u8);
    (vec(vec(call, 0..5), 1..6), vec(any::<u8>(), 1..8), 1u32..4).prop_map(
        |(replies, outcomes, max_rounds)| Script {
            replies,
            outcomes,
            max_rounds,
        },
    )
}

fn outcome(kind: u8, name: &str) -> ToolOutcome {
    match kind % 6 {
        0 | 1 => responded(200, r#"{"n":1}"#),
        2 => responded(503, "later"),
        3 => responded(422, "no"),
        4 => ToolOutcome::Failed(ToolFailure::timeout(name)),
        _ => Denial::Withdrawn { tool: name.into() }.into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_is_executed_returned_or_rejected_exactly_once(script in scripts()) {
        let replies: Vec<_> = script
            .replies
            .iter()
            .map(|calls| {
                let calls: Vec<(&str, &str)> = calls
                    .iter()
                    .map(|(name, arguments)| (NAMES[*name], ARGUMENTS[*arguments as usize]))
                    .collect();
                reply(&calls, "text")
            })
            .collect();
        let policy = Policy { max_rounds: script.max_rounds, ..policy() };
        let mut seen = HashSet::new();
        let (mut at, mut ran) = (0, 0);
        let run = run(config(request(json!({})), policy), replies, |call| {
            assert!(seen.insert(call.id()), "{:?} was run twice", call.id());
            assert!(call.name().starts_with("pond."), "{} was run", call.name());
            at += 1;
            let kind = match call.name() {
                // Elevated: the dispatch denies it.
                "pond.drain" => 5,
                _ => script.outcomes[at % script.outcomes.len()],
            };
            // The last kind is a denial, which executes nothing.
            ran += usize::from(kind % 6 != 5);
            outcome(kind, call.name())
        });

        // The turn ends: one reply per round, one after the last round, one to answer.
        prop_assert!(run.bodies.len() as u32 <= script.max_rounds + 2);

        // Every call in the history has one result, in order, under its id.
        let last = run.bodies.last().unwrap();
        let messages = last["messages"].as_array().unwrap();
        let mut rest = messages.iter();
        while let Some(message) = rest.next() {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let result = rest.next().unwrap();
                prop_assert_eq!(&result["tool_call_id"], &call["id"]);
                prop_assert!(result["content"].is_string());
                let name = call["function"]["name"].as_str().unwrap();
                prop_assert!(!name.contains('.'), "{} goes to a provider", name);
            }
        }

        // The trace lists each executed call once.
        let traced = run.answer.record.tool_trace.iter().flat_map(|round| &round.tool_calls);
        let executed = traced.filter(|call| call.executed).count();
        prop_assert_eq!(executed, ran);
        let dispatched: usize = run.groups.iter().map(Vec::len).sum();
        prop_assert_eq!(dispatched, at);

        // The runner sees only its own calls, and no managed name.
        let body = run.body();
        for call in body["choices"][0]["message"]["tool_calls"].as_array().into_iter().flatten() {
            prop_assert_eq!(&call["function"]["name"], "shell");
        }
        prop_assert!(!body.to_string().contains("pond__"));
    }

    /// Unexpected events change nothing, and no effect follows the answer.
    #[test]
    fn any_events_end_the_turn_and_no_effect_follows(kinds in vec(0u8..8, 0..40)) {
        let (mut turn, _) = Turn::start(config(request(json!({"stream": true})), policy())).unwrap();
        let mut ended = false;
        for kind in kinds.into_iter().chain([6]) {
            let call = CallId { round: 1, index: 0 };
            let event = match kind {
                0 => Event::Replied(reply(&[("pond__feed", "{}")], "")),
                1 => Event::Replied(reply(&[], "end")),
                2 => Event::ModelFailed(ModelFailure::Unreachable { message: "gone".into() }),
                3 => Event::ToolFinished {
                    call, outcome: responded(200, "1"), display: None, allowed_by: None, latency: std::time::Duration::ZERO,
                    max_result_bytes: u64::MAX },
                4 => Event::KeepaliveDue,
                5 => Event::RunnerGone,
                6 => Event::Deadline,
                _ => Event::Ended(RunnerError::new(RunnerCode::AccessWithdrawn, "gone")),
            };
            let effects = turn.step(std::time::Duration::ZERO, event);
            prop_assert!(!ended || effects.is_empty());
            ended |= effects.iter().any(|effect| matches!(effect, Effect::Answer(_)));
        }
        prop_assert!(ended);
    }
}
