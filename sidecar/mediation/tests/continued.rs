//! A runner that names the response before instead of repeating the conversation
//! (`previous_response_id`): the provider can continue each answer, and has every hidden round.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::wire::{ModelReply, ReplyCall, Wire};
use support::{config, policy, responded, run};
use toolcrib_dialect::Dialect;
use toolcrib_manifest::Streaming;
use toolcrib_mediation::*;

const WIRE: Wire = Wire(Dialect::OpenaiResponses);

/// The store of a provider. As at OpenAI, a call without a result ends the request.
#[derive(Default)]
struct Provider {
    stored: HashMap<String, Vec<Value>>,
    replies: usize,
}

impl Provider {
    /// A reply whose id and call ids the provider has not used before.
    fn reply(&mut self, text: &str, tools: &[&str]) -> ModelReply {
        self.replies += 1;
        let number = self.replies;
        let call = |(at, name): (usize, &&str)| ReplyCall {
            id: Some(format!("call_{number}_{at}")),
            name: name.to_string(),
            // Differs within a turn: a repetition would not be executed. The schema allows up to 9.
            arguments: format!("{{\"at\":{}}}", number % 10),
        };
        ModelReply {
            id: format!("resp_{number}"),
            text: text.to_string(),
            calls: tools.iter().enumerate().map(call).collect(),
            cut_short: false,
        }
    }

    /// Takes a request and stores its response; returns the whole conversation.
    fn store(&mut self, request: &Value, reply: &ModelReply) -> Vec<Value> {
        let mut items = match request["previous_response_id"].as_str() {
            Some(id) => self.stored[id].clone(),
            None => Vec::new(),
        };
        items.extend(request["input"].as_array().unwrap().iter().cloned());
        let ids = |kind: &'static str| {
            let of_kind = items.iter().filter(move |item| item["type"] == kind);
            of_kind.map(|item| item["call_id"].as_str().unwrap())
        };
        for call in ids("function_call") {
            let results = ids("function_call_output").filter(|id| *id == call);
            assert_eq!(results.count(), 1, "{call} in {items:?}");
        }
        let response: Value = serde_json::from_str(WIRE.reply(reply).as_text()).unwrap();
        let own = response["output"].as_array().unwrap();
        let stored = [items.as_slice(), own].concat();
        self.stored.insert(reply.id.clone(), stored);
        items
    }
}

/// How a turn goes on after its hidden rounds.
#[derive(Clone, Copy, Debug)]
enum End {
    Text,
    /// A call of the runner's own tool.
    OwnCall,
    /// A managed tool whose success ends the turn.
    Terminal,
}

#[derive(Clone, Debug)]
struct TurnShape {
    hidden: usize,
    /// The hidden rounds say something before their call, which a live stream passes on.
    speaks: bool,
    /// The hidden rounds call the runner's tool too, so that call is not made.
    mixed: bool,
    end: End,
}

fn turn_shape() -> impl Strategy<Value = TurnShape> {
    let end = prop::sample::select(vec![End::Text, End::OwnCall, End::Terminal]);
    (0usize..3, any::<bool>(), any::<bool>(), end).prop_map(|(hidden, speaks, mixed, end)| {
        TurnShape {
            hidden,
            speaks,
            mixed,
            end,
        }
    })
}

impl TurnShape {
    fn replies(&self, provider: &mut Provider) -> Vec<ModelReply> {
        let said = if self.speaks { "Let me look." } else { "" };
        let tools: &[&str] = match self.mixed {
            true => &["pond__look", "shell"],
            false => &["pond__look"],
        };
        let mut replies: Vec<ModelReply> = (0..self.hidden)
            .map(|_| provider.reply(said, tools))
            .collect();
        replies.push(match self.end {
            End::Text => provider.reply("done", &[]),
            End::OwnCall => provider.reply("", &["shell"]),
            End::Terminal => provider.reply(said, &["pond__leave"]),
        });
        replies
    }

    /// Number of managed calls.
    fn results(&self) -> usize {
        self.hidden + usize::from(matches!(self.end, End::Terminal))
    }
}

/// The id by which the runner continues the answer, and its own calls in it.
fn answered(body: &Value) -> (String, Vec<String>) {
    let items = body["output"].as_array().unwrap();
    let calls = items.iter().filter(|item| item["type"] == "function_call");
    let ids = calls.map(|call| {
        assert_eq!(call["name"], "shell");
        call["call_id"].as_str().unwrap().to_string()
    });
    (body["id"].as_str().unwrap().to_string(), ids.collect())
}

/// What a mediator reads after a restart.
fn restarted(store: &Continuity) -> Continuity {
    let mut again = Continuity::new(1 << 20);
    for hidden in store.entries() {
        let line = serde_json::to_string(&hidden).unwrap();
        again.remember(serde_json::from_str(&line).unwrap());
    }
    again
}

fn check(turns: &[TurnShape], streaming: Option<Streaming>) {
    let mut provider = Provider::default();
    let mut store = Continuity::new(1 << 20);
    let mut previous: Option<String> = None;
    let mut input = vec![json!({"role": "user", "content": "swim"})];
    let mut results = 0;
    for shape in turns {
        let mut body = WIRE.body(&input, &["shell"]);
        if let Some(id) = &previous {
            body["previous_response_id"] = json!(id);
        }
        if streaming.is_some() {
            body = WIRE.streamed(body);
        }
        let mut config = config(WIRE.decode(&body), policy());
        config.streaming = streaming.unwrap_or(Streaming::Buffered);
        config.history = store
            .history_edits(&config.request, &config.presented)
            .unwrap();
        let replies = shape.replies(&mut provider);
        let decoded = replies.iter().map(|reply| WIRE.reply(reply)).collect();
        let ran = run(config, decoded, |_| responded(200, "1"));
        assert_eq!(ran.bodies.len(), replies.len());
        let mut conversation = Vec::new();
        for (request, reply) in ran.bodies.iter().zip(&replies) {
            conversation = provider.store(request, reply);
        }
        let had = |kind: &str| {
            let of_kind = conversation.iter().filter(|item| item["type"] == kind);
            of_kind.count()
        };
        // The provider has each result of the turns before, and of the rounds of this one.
        assert_eq!(had("function_call_output"), results + shape.hidden);
        if let Some(hidden) = ran.answer.hidden {
            store.remember(hidden);
        }
        store = restarted(&store);
        let content_type = match streaming {
            Some(_) => "text/event-stream",
            None => "application/json",
        };
        let (id, own) = answered(&WIRE.whole(content_type, &ran.sent));
        results += shape.results() + own.len();
        input = own.iter().map(|id| WIRE.result(id, "ok")).collect();
        input.push(json!({"role": "user", "content": "and then?"}));
        previous = Some(id);
    }
    // The last answer can be continued too.
    let mut body = WIRE.body(&input, &[]);
    body["previous_response_id"] = json!(previous);
    let mut config = config(WIRE.decode(&body), policy());
    config.history = store
        .history_edits(&config.request, &config.presented)
        .unwrap();
    let reply = provider.reply("done", &[]);
    let ran = run(config, vec![WIRE.reply(&reply)], |_| unreachable!());
    let conversation = provider.store(&ran.bodies[0], &reply);
    let outputs = conversation
        .iter()
        .filter(|item| item["type"] == "function_call_output");
    assert_eq!(outputs.count(), results);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_answer_can_be_continued_by_its_id(turns in prop::collection::vec(turn_shape(), 1..5)) {
        for streaming in [None, Some(Streaming::Buffered), Some(Streaming::Live)] {
            check(&turns, streaming);
        }
    }
}

#[test]
fn a_response_that_is_not_stored_needs_no_memory() {
    for (store, remembers) in [
        (json!(false), false),
        (json!(true), true),
        (Value::Null, true),
    ] {
        let mut provider = Provider::default();
        let shape = TurnShape {
            hidden: 1,
            speaks: true,
            mixed: false,
            end: End::Text,
        };
        let replies = shape.replies(&mut provider);
        let mut body = WIRE.streamed(WIRE.body(&[json!({"role": "user", "content": "swim"})], &[]));
        body["store"] = store;
        let mut config = config(WIRE.decode(&body), policy());
        config.streaming = Streaming::Live;
        let decoded = replies.iter().map(|reply| WIRE.reply(reply)).collect();
        let ran = run(config, decoded, |_| responded(200, "1"));
        let line = serde_json::to_value(ran.answer.hidden.unwrap()).unwrap();
        assert_eq!(line.get("continuation").is_some(), remembers, "{line}");
    }
}
