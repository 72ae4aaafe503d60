//! A service with tools, a scripted model, and the drive loop.
#![allow(dead_code, reason = "each test binary uses its part of it")]

pub mod wire;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use toolcrib_dialect::{Dialect, Reply, Request};
use toolcrib_manifest::{AllowedRules, LinkAllowlist, Policy, Streaming, Tier, ToolsFile};
use toolcrib_mediation::*;

/// The time of a test in which no window opens or closes.
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub const DIALECT: Dialect = Dialect::OpenaiChat;

/// depth (read), feed (write), look (parallel), wait (polling), set (idempotent write),
/// leave (terminal), drain (elevated), whose (claw_id in the schema).
pub fn tools() -> ToolsFile {
    let tool = |name: &str, method: &str, annotations: Value, tier: &str, schema: Value| {
        json!({
            "name": format!("pond.{name}"), "description": format!("{name} of the pond"),
            "inputSchema": schema, "annotations": annotations,
            "execution": {"transport": "http", "service": "pond", "base_url": "http://pond.test:80",
                "method": method, "path": format!("/{name}")},
            "x-toolcrib": {"tier": tier, "grant": {"namespace": "pond", "name": "swim"}},
        })
    };
    let at = json!({"type": "object", "properties": {"at": {"type": "integer", "maximum": 9}},
        "additionalProperties": false});
    let whose = json!({"type": "object", "properties": {"claw_id": {"type": "string"},
        "at": {"type": "integer"}}, "required": ["claw_id"], "additionalProperties": false});
    serde_json::from_value(json!({"version": 1, "tools": [
        tool("depth", "GET", json!({"readOnly": true}), "ReadOnly", at.clone()),
        tool("feed", "POST", json!({}), "System", at.clone()),
        tool("look", "GET", json!({"parallel_safe": true, "readOnly": true}), "ReadOnly", at.clone()),
        tool("wait", "GET", json!({"polling": true}), "ReadOnly", at.clone()),
        tool("set", "PUT", json!({"idempotentHint": true}), "System", at.clone()),
        tool("leave", "POST", json!({"x-claw": {"terminalOnSuccess": true}}), "System", at.clone()),
        tool("drain", "POST", json!({}), "Elevated", at.clone()),
        tool("whose", "POST", json!({}), "System", whose),
    ]}))
    .unwrap()
}

pub fn authority() -> Authority {
    // Shared, because its schemas are compiled and properties run thousands of turns.
    static CATALOG: LazyLock<Arc<Catalog>> =
        LazyLock::new(|| Arc::new(Catalog::load(&tools(), Tier::Elevated)));
    Authority::new(CATALOG.clone(), None)
}

/// pay (account, amount, note), which these rules of the files give.
pub fn ruled(rules: &Value) -> ToolsFile {
    let conditional = |rule: &Value| {
        ["pin", "arguments", "not_before", "not_after", "when"]
            .iter()
            .any(|name| rule.get(name).is_some())
    };
    let all_conditional = rules.as_array().unwrap().iter().all(conditional);
    let requires = if all_conditional {
        json!(["rules/1"])
    } else {
        json!([])
    };
    let text = json!({"version": 1, "tools": [{
        "name": "pond.pay", "description": "pay of the pond",
        "inputSchema": {"type": "object", "required": ["account", "amount"],
            "properties": {"account": {"type": "string"}, "amount": {"type": "number"},
                "note": {"type": "string"}},
            "additionalProperties": false},
        "execution": {"transport": "http", "service": "pond", "base_url": "http://pond.test:80",
            "method": "POST", "path": "/pay"},
        "x-toolcrib": {"tier": "System", "grant": {"namespace": "pond", "name": "swim"},
            "entry_digest": "v1:pay", "requires": requires, "rules": rules},
    }]});
    serde_json::from_str(&text.to_string()).unwrap()
}

/// An allowlist with these rules of `pond.pay`, or with the tool itself.
pub fn allowlist(tools: &[&str], rules: &[String]) -> LinkAllowlist {
    let entry = || "v1:pay".to_string();
    LinkAllowlist {
        tools: tools
            .iter()
            .map(|name| (name.to_string(), entry()))
            .collect(),
        rules: [(
            "pond.pay".to_string(),
            AllowedRules {
                entry: entry(),
                rules: rules.iter().cloned().collect(),
            },
        )]
        .into(),
        feeds: vec![],
        providers: vec![],
        models: None,
        models_matching: Vec::new(),
    }
}

pub fn policy() -> Policy {
    Policy::default()
}

pub fn request(extra: Value) -> Request {
    let mut body = json!({"model": "house/otter-1", "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": {}}}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    Request::decode(DIALECT, body.to_string().into_bytes()).unwrap()
}

/// A reply with these calls and the ids `c0`, `c1`, …; without calls, the text.
pub fn reply(calls: &[(&str, &str)], text: &str) -> Reply {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({"id": format!("c{at}"), "type": "function",
                "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": text});
    let finish = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    let body = json!({"id": "r", "object": "chat.completion", "model": "otter-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}});
    Reply::decode(DIALECT, body.to_string().into_bytes()).unwrap()
}

pub fn responded(status: u16, body: &str) -> ToolOutcome {
    ToolOutcome::Responded {
        status,
        body: ToolBody {
            bytes: body.into(),
            original_bytes: Some(body.len() as u64),
        },
    }
}

/// One turn, driven to its end.
pub struct Run {
    pub answer: TurnResult,
    /// Request bodies that the model got.
    pub bodies: Vec<Value>,
    /// Groups in the order of dispatch: names with arguments.
    pub groups: Vec<Vec<(String, String)>>,
    pub purposes: Vec<Purpose>,
    /// All bytes that the runner got.
    pub sent: Vec<u8>,
}

impl Run {
    /// The results that the model read in its last request, by code or `ok`.
    pub fn results(&self) -> Vec<String> {
        results(self.bodies.last().unwrap())
    }

    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.answer.response.as_ref().unwrap().body).unwrap()
    }

    pub fn status(&self) -> u16 {
        self.answer.response.as_ref().unwrap().status
    }
}

pub fn results(body: &Value) -> Vec<String> {
    body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let result: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
            match result["ok"].as_bool().unwrap() {
                true => "ok".to_string(),
                false => result["error"]["code"].as_str().unwrap().to_string(),
            }
        })
        .collect()
}

pub fn config(request: Request, policy: Policy) -> TurnConfig {
    let presented = PresentedTools::new(&authority(), &request, NOW);
    TurnConfig {
        request: Arc::new(request),
        presented,
        policy,
        streaming: Streaming::Buffered,
        claw_id: ClawId {
            name: "otter".into(),
            namespace: "pond".into(),
        },
        history: HistoryEdits::default(),
        prompt: None,
        context: None,
    }
}

/// Runs a turn with replies in order (the last one is repeated) and an outcome for each dispatched
/// call.
pub fn run(
    config: TurnConfig,
    replies: Vec<Reply>,
    mut outcome: impl FnMut(&ManagedCall) -> ToolOutcome,
) -> Run {
    let (mut turn, mut effects) = Turn::start(config).unwrap();
    let mut replies = replies.into_iter();
    let mut last = None;
    let (mut bodies, mut groups, mut purposes) = (Vec::new(), Vec::new(), Vec::new());
    let mut sent = Vec::new();
    for _ in 0..1000 {
        let mut events = Vec::new();
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::CallModel(call) => {
                    let body = turn.request_body("otter-1").unwrap();
                    bodies.push(serde_json::from_slice(&body).unwrap());
                    purposes.push(call.purpose);
                    last = replies.next().or(last);
                    events.push(Event::Replied(last.clone().unwrap()));
                }
                Effect::CallTools(calls) => {
                    assert!((1..=8).contains(&calls.len()));
                    groups.push(
                        calls
                            .iter()
                            .map(|call| (call.name().into(), call.arguments().get().into()))
                            .collect(),
                    );
                    events.extend(calls.iter().map(|call| Event::ToolFinished {
                        call: call.id(),
                        outcome: outcome(call),
                        display: None,
                        allowed_by: None,
                        latency: Duration::from_millis(7),
                        max_result_bytes: u64::MAX,
                    }));
                }
                Effect::Emit(bytes) => sent.extend(bytes),
                Effect::Answer(answer) => {
                    sent.extend(answer.response.iter().flat_map(|it| it.body.clone()));
                    assert!(turn.step(Duration::ZERO, Event::Deadline).is_empty());
                    return Run {
                        answer: *answer,
                        bodies,
                        groups,
                        purposes,
                        sent,
                    };
                }
            }
        }
        for event in events {
            effects.extend(turn.step(Duration::ZERO, event));
        }
    }
    panic!("the turn did not end");
}

/// How often each key occurs.
pub fn counts<T: std::hash::Hash + Eq>(items: impl IntoIterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}
