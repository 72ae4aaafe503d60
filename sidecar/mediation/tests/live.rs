//! Every order of owners in every dialect, whole and as a stream: the executor of each call does
//! not depend on streaming.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use support::wire::{ModelReply, ReplyCall, Wire};
use support::{config, policy, responded};
use toolcrib_dialect::{
    Dialect, MAX_REPLY, Reassembly, Reply, Request, SseEvent, SseParser, answer,
};
use toolcrib_manifest::Streaming;
use toolcrib_mediation::*;

/// How the runner's answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Whole,
    Buffered,
    Live,
}

const WAYS: [Way; 3] = [Way::Whole, Way::Buffered, Way::Live];

fn asked(wire: Wire, way: Way) -> Request {
    let body = wire.body(&[json!({"role": "user", "content": "hi"})], &["shell"]);
    wire.decode(&match way {
        Way::Whole => body,
        Way::Buffered | Way::Live => wire.streamed(body),
    })
}

/// A reply of the model; `round` makes its ids unique.
fn written(wire: Wire, round: usize, text: &str, calls: &[(&str, String)]) -> Reply {
    let call = |(at, (name, said)): (usize, &(&str, String))| ReplyCall {
        id: Some(format!("c{round}_{at}")),
        name: name.to_string(),
        arguments: said.clone(),
    };
    wire.reply(&ModelReply {
        id: format!("r{round}"),
        text: text.to_string(),
        calls: calls.iter().enumerate().map(call).collect(),
        cut_short: false,
    })
}

/// The observable results of a turn.
#[derive(Debug, PartialEq)]
struct TurnResults {
    executed: Vec<String>,
    asked: usize,
    text: String,
    /// Names and arguments of the calls that the runner got.
    shown: Vec<(String, String)>,
    tokens: (u64, u64),
    /// The status of the answer.
    status: u16,
}

/// Runs the replies; streams them in pieces of at most `piece` events.
fn drive(way: Way, wire: Wire, replies: &[Reply], piece: usize) -> TurnResults {
    let (request, dialect) = (asked(wire, way), wire.0);
    let mut config = config(request, policy());
    if way == Way::Live {
        config.streaming = Streaming::Live;
    }
    let request = config.request.clone();
    let (mut turn, mut effects) = Turn::start(config).unwrap();
    let (mut executed, mut number) = (Vec::new(), 0);
    let mut stream = Vec::new();
    for _ in 0..200 {
        let mut events = Vec::new();
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::CallModel(call) => {
                    turn.request_body("m").unwrap();
                    let reply = replies[number.min(replies.len() - 1)].clone();
                    number += 1;
                    assert_eq!(call.streamed, way == Way::Live);
                    if !call.streamed {
                        events.push(Event::Replied(reply));
                        continue;
                    }
                    let body = answer(&request, &reply, None).unwrap().body;
                    let said = SseParser::new(MAX_REPLY).push(&body).unwrap();
                    events.extend(said.chunks(piece).map(|it| Event::Streamed(it.to_vec())));
                    events.push(Event::StreamEnded);
                }
                Effect::CallTools(calls) => {
                    for call in calls {
                        executed.push(format!("{} {}", call.name(), call.arguments().get()));
                        events.push(Event::ToolFinished {
                            call: call.id(),
                            outcome: responded(200, "1"),
                            display: None,
                            allowed_by: None,
                            latency: std::time::Duration::ZERO,
                            max_result_bytes: u64::MAX,
                        });
                    }
                }
                Effect::Emit(bytes) => stream.extend(bytes),
                Effect::Answer(answer) => {
                    let response = answer.response.unwrap();
                    stream.extend(response.body);
                    let reply = match way {
                        Way::Whole => Reply::decode(dialect, stream.clone()),
                        Way::Buffered | Way::Live => put_together(dialect, &stream),
                    };
                    let text = String::from_utf8(stream).unwrap();
                    assert!(!text.contains("pond__"), "{text}");
                    let reply = reply.unwrap_or_else(|error| panic!("{error}: {text}"));
                    let usage = answer.record.usage;
                    return TurnResults {
                        executed,
                        asked: number,
                        text: reply.content().unwrap_or_default().to_string(),
                        shown: reply
                            .calls()
                            .iter()
                            .map(|call| (call.name.clone(), call.arguments.clone()))
                            .collect(),
                        tokens: (usage.prompt_tokens, usage.completion_tokens),
                        status: response.status,
                    };
                }
            }
        }
        for event in events {
            effects.extend(turn.step(std::time::Duration::ZERO, event));
        }
    }
    panic!("the turn did not end");
}

fn put_together(dialect: Dialect, stream: &[u8]) -> Result<Reply, toolcrib_dialect::DialectError> {
    let mut reassembly = Reassembly::new(dialect, MAX_REPLY);
    let events: Vec<SseEvent> = SseParser::new(MAX_REPLY).push(stream).unwrap();
    for event in events {
        reassembly.push(event)?;
    }
    reassembly.finish()
}

/// `m`: managed, `r`: the runner's.
fn calls(owners: &str) -> Vec<(&'static str, String)> {
    owners
        .chars()
        .enumerate()
        .map(|(at, owner)| match owner {
            'm' => ("pond__feed", format!(r#"{{"at":{at}}}"#)),
            _ => ("shell", format!(r#"{{"at":{at}}}"#)),
        })
        .collect()
}

/// The table of owners, one call at a time: the executed calls, and whether the reply is handed to
/// the runner.
fn reference(owners: &str) -> (Vec<String>, bool) {
    let mut executed = Vec::new();
    let mut runner = false;
    for (at, owner) in owners.chars().enumerate() {
        match owner {
            'm' if runner => return (Vec::new(), false),
            'm' => executed.push(format!(r#"pond.feed {{"at":{at}}}"#)),
            _ => runner = true,
        }
    }
    let handed = executed.is_empty();
    (executed, handed)
}

#[test]
fn every_order_of_owners_in_every_dialect_and_delivery() {
    for length in 0..=6u32 {
        for bits in 0..1u32 << length {
            let owners: String = (0..length)
                .map(|at| if bits >> at & 1 == 1 { 'm' } else { 'r' })
                .collect();
            for wire in Wire::all() {
                let first = written(wire, 0, "", &calls(&owners));
                let replies = [first, written(wire, 1, "end", &[])];
                let (executed, handed) = reference(&owners);
                let arguments = |(name, said): (&str, String)| (name.to_string(), said);
                let rounds = if handed { 1 } else { 2 };
                let wanted = TurnResults {
                    executed,
                    asked: rounds,
                    text: if handed { "" } else { "end" }.to_string(),
                    shown: match handed {
                        true => calls(&owners).into_iter().map(arguments).collect(),
                        false => Vec::new(),
                    },
                    tokens: (10 * rounds as u64, rounds as u64),
                    status: 200,
                };
                for way in WAYS {
                    let seen = drive(way, wire, &replies, 3);
                    assert_eq!(seen, wanted, "{owners:?} {wire:?} {way:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// The stream contains the whole answer after the text of hidden rounds, however the model's
    /// stream was cut into pieces.
    #[test]
    fn live_and_buffered_streams_have_the_same_content(
        rounds in vec(("[a-z ]{0,6}", "[mr]{0,4}"), 1..5), piece in 1usize..9,
    ) {
        for wire in Wire::all() {
            let mut replies: Vec<Reply> = rounds
                .iter()
                .enumerate()
                .map(|(at, (text, owners))| written(wire, at, text, &calls(owners)))
                .collect();
            replies.push(written(wire, rounds.len(), "end", &[]));
            let buffered = drive(Way::Buffered, wire, &replies, piece);
            let live = drive(Way::Live, wire, &replies, piece);
            let said: Vec<&str> = replies[..buffered.asked]
                .iter()
                .filter_map(|reply| reply.content())
                .collect();
            let between = match wire.0 {
                Dialect::OpenaiChat => "\n\n",
                Dialect::AnthropicMessages | Dialect::OpenaiResponses => "",
            };
            let wanted = TurnResults { text: said.join(between), ..buffered };
            prop_assert_eq!(live, wanted);
        }
    }
}

/// The usage of a reply is counted once, however the reply ends.
#[test]
fn usage_of_a_broken_reply_is_counted_once() {
    let events: [fn() -> Event; 4] = [
        || Event::StreamEnded,
        || Event::Deadline,
        || Event::RunnerGone,
        || {
            let message = "the model fell silent".to_string();
            Event::ModelFailed(ModelFailure::Unreachable { message })
        },
    ];
    let wire = Wire::all()
        .find(|wire| wire.0 == Dialect::AnthropicMessages)
        .unwrap();
    for event in events {
        let mut config = config(asked(wire, Way::Live), policy());
        config.streaming = Streaming::Live;
        let request = config.request.clone();
        let (mut turn, _) = Turn::start(config).unwrap();
        // A hidden round first: its usage is in the sum already.
        for (number, owners) in ["m", ""].into_iter().enumerate() {
            let reply = written(wire, number, "words", &calls(owners));
            let body = answer(&request, &reply, None).unwrap().body;
            let mut said = SseParser::new(MAX_REPLY).push(&body).unwrap();
            if owners.is_empty() {
                // Everything but the end: the first event reports the prompt's tokens.
                said.truncate(3);
                turn.step(std::time::Duration::ZERO, Event::Streamed(said));
                continue;
            }
            turn.step(std::time::Duration::ZERO, Event::Streamed(said));
            let effects = turn.step(std::time::Duration::ZERO, Event::StreamEnded);
            let calls = effects.into_iter().find_map(|effect| match effect {
                Effect::CallTools(calls) => Some(calls),
                Effect::CallModel(_) | Effect::Emit(_) | Effect::Answer(_) => None,
            });
            turn.step(
                std::time::Duration::ZERO,
                Event::ToolFinished {
                    call: calls.unwrap()[0].id(),
                    outcome: responded(200, "1"),
                    display: None,
                    allowed_by: None,
                    latency: std::time::Duration::ZERO,
                    max_result_bytes: u64::MAX,
                },
            );
        }
        let mut effects = turn.step(std::time::Duration::ZERO, event());
        let Some(Effect::Answer(answer)) = effects.pop() else {
            panic!("no answer")
        };
        assert_eq!(answer.record.usage.prompt_tokens, 20);
    }
}

#[test]
fn a_response_that_failed_is_an_error_in_the_record() {
    let wire = Wire(Dialect::OpenaiResponses);
    let failed = json!({"id": "resp_1", "object": "response", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "it broke"}});
    let failed = Reply::decode(wire.0, failed.to_string().into_bytes()).unwrap();
    for way in WAYS {
        let mut config = config(asked(wire, way), policy());
        if way == Way::Live {
            config.streaming = Streaming::Live;
        }
        let run = support::run(config, vec![failed.clone()], |_| responded(200, "1"));
        let record = &run.answer.record;
        assert_eq!(record.status, RecordStatus::Error, "{way:?}");
        assert_eq!(record.error, Some("upstream_error"), "{way:?}");
        // The runner reads the provider's own error.
        let sent = String::from_utf8(run.sent).unwrap();
        assert!(sent.contains("it broke"), "{way:?} {sent}");
    }
}
