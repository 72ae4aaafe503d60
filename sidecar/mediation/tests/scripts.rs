//! Whole turns as files. `scripts/<case>.yaml` holds the actions of the runner, the model and the
//! services, independent of a dialect. `scripts/<case>.<dialect>.txt` is the transcript: each
//! request to the model, each dispatched call, each byte for the runner, the record. Calls and
//! record are the same in every dialect.
//!
//! One test per file. After an intended change: `UPDATE_EXPECT=1 cargo test -p toolcrib-mediation
//! --test scripts`, then read the diff.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]
#![expect(clippy::disallowed_methods, reason = "case files are read here")]

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use support::wire::{ModelReply, ReplyCall, Wire};
use support::{config, responded};
use toolcrib_dialect::{MAX_REPLY, SseParser, answer};
use toolcrib_golden::{Suite, cases, expect, here};
use toolcrib_manifest::{Policy, Streaming, Tier};
use toolcrib_mediation::*;

/// A conversation with the tools of the pond (`support::tools`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    policy: PolicyEdit,
    #[serde(default)]
    live: bool,
    /// The runner asks for streams.
    #[serde(default)]
    stream: bool,
    /// The tools of the runner.
    #[serde(default)]
    tools: Vec<String>,
    /// The rules of the files for `pond.pay`, which then is the only tool (`support::ruled`).
    rules: Option<Value>,
    /// The dialects that can express the case, if not all.
    dialects: Option<Vec<String>>,
    turns: Vec<ScriptTurn>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyEdit {
    max_rounds: Option<u32>,
    max_tool_result_bytes: Option<u64>,
    total_timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptTurn {
    /// Messages that the runner adds to its history.
    says: Vec<RunnerSays>,
    tool_choice: Option<Choice>,
    /// The time at which the tools are presented, if not the epoch.
    now: Option<Timestamp>,
    model: Vec<ModelSays>,
    /// Answers by tool, in the order of its calls; the last one is repeated.
    #[serde(default)]
    services: BTreeMap<String, VecDeque<ServiceSays>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RunnerSays {
    User(String),
    Result { call: String, text: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Choice {
    Required,
    Named(String),
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModelSays {
    text: String,
    calls: Vec<ModelCalls>,
    cut_short: bool,
    /// A failure instead of a reply.
    fails: Option<Failure>,
    /// The turn's clock when the reply arrives.
    at_ms: u64,
    /// Keepalives fall due before the reply arrives.
    slow: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCalls {
    id: Option<String>,
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Failure {
    Status(u16),
    Unreachable,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServiceSays {
    Answers {
        status: u16,
        body: String,
    },
    TimesOut,
    Unreachable,
    /// Authority is withdrawn before the dispatch.
    Withdrawn,
    /// The authority decides; a service that is called answers `{}`.
    Decided,
    /// The link's allowlist leaves only these rules from this dispatch on.
    Left(Vec<String>),
    /// The dispatch is at this time.
    At(Timestamp),
    /// The runner disconnects while the call runs.
    RunnerGone,
}

/// The transcript of a case in one dialect.
struct Transcript {
    text: String,
    /// The lines that must be equal in all dialects.
    common: Vec<String>,
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    Suite::default()
        .cases(cases(&root, Some("yaml")), check)
        .run()
}

fn check(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    // Parsed through JSON, where variants are maps of one key instead of YAML tags.
    let script: Script = serde_yaml::from_str::<Value>(&text)
        .map_err(|error| error.to_string())
        .and_then(|it| serde_json::from_value(it).map_err(|error| error.to_string()))
        .unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut common: Option<Vec<String>> = None;
    for wire in Wire::all() {
        let name = wire.0.name();
        let said = script.dialects.as_ref();
        if said.is_some_and(|dialects| dialects.iter().all(|it| it != name)) {
            continue;
        }
        let transcript = play(wire, &script);
        expect(
            here!(),
            &path.with_extension(format!("{name}.txt")),
            &transcript.text,
        );
        let first = common.get_or_insert_with(|| transcript.common.clone());
        assert_eq!(&transcript.common, first, "{path:?} in {name}");
    }
}

fn play(wire: Wire, script: &Script) -> Transcript {
    let mut store = Continuity::new(1 << 20);
    let rates = RateCounts::default();
    let mut history: Vec<Value> = Vec::new();
    let mut transcript = Transcript {
        text: String::new(),
        common: Vec::new(),
    };
    for (at, turn) in script.turns.iter().enumerate() {
        history.extend(turn.says.iter().map(|said| match said {
            RunnerSays::User(text) => json!({"role": "user", "content": text}),
            RunnerSays::Result { call, text } => wire.result(call, text),
        }));
        let tools: Vec<&str> = script.tools.iter().map(String::as_str).collect();
        let mut body = wire.body(&history, &tools);
        if script.stream {
            body = wire.streamed(body);
        }
        match &turn.tool_choice {
            None => {}
            Some(Choice::Required) => body["tool_choice"] = wire.forced(None),
            Some(Choice::Named(name)) => body["tool_choice"] = wire.forced(Some(name)),
        }
        writeln!(transcript.text, "turn {}", at + 1).unwrap();
        let mut playing = TurnPlayer {
            wire,
            script: turn,
            services: turn.services.clone(),
            number: format!("{}", at + 1),
            transcript: &mut transcript,
            sent: Vec::new(),
            seen: Vec::new(),
            authority: script.authority(None),
            rates: &rates,
            now: turn.now.unwrap_or(support::NOW),
        };
        let answer = playing.run(script, &body, &mut store);
        let mut sent = playing.sent;
        transcript.ends(&answer, &sent);
        if let Some(hidden) = answer.hidden {
            store.remember(hidden);
        }
        if let Some(response) = answer.response.filter(|it| it.status == 200) {
            sent.extend(response.body);
            let whole = wire.whole(&response.content_type, &sent);
            history.extend(wire.stored(&whole));
        }
    }
    transcript
}

struct TurnPlayer<'t> {
    wire: Wire,
    script: &'t ScriptTurn,
    services: BTreeMap<String, VecDeque<ServiceSays>>,
    /// Number of the turn; makes ids unique.
    number: String,
    transcript: &'t mut Transcript,
    /// Every byte for the runner.
    sent: Vec<u8>,
    /// Items that the model has seen in this turn.
    seen: Vec<Value>,
    authority: Authority,
    rates: &'t RateCounts,
    now: Timestamp,
}

impl TurnPlayer<'_> {
    fn run(&mut self, script: &Script, body: &Value, store: &mut Continuity) -> TurnResult {
        let request = self.wire.decode(body);
        let mut config = config(request, policy(&script.policy));
        config.presented = PresentedTools::new(&self.authority, &config.request, self.now);
        if script.live {
            config.streaming = Streaming::Live;
        }
        config.history = store
            .history_edits(&config.request, &config.presented)
            .unwrap();
        let (mut turn, mut effects) = match Turn::start(config) {
            Ok(started) => started,
            Err(error) => return refused(self.wire, &error),
        };
        let mut replies = self.script.model.iter().enumerate();
        let mut now = Duration::ZERO;
        while !effects.is_empty() {
            let mut events = Vec::new();
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::CallModel(call) => {
                        let body = turn.request_body("otter-1").unwrap();
                        self.model_is_asked(call, &body);
                        let (at, says) = replies.next().expect("no reply of the model is left");
                        now = now.max(Duration::from_millis(says.at_ms));
                        events.extend(self.model_says(call, at, says, &turn));
                    }
                    Effect::CallTools(calls) => events.extend(self.services_say(script, &calls)),
                    Effect::Emit(bytes) => self.runner_gets(&bytes),
                    Effect::Answer(answer) => return *answer,
                }
            }
            for event in events {
                effects.extend(turn.step(now, event));
            }
        }
        panic!("the turn has no pending effect");
    }

    fn line(&mut self, line: &str) {
        writeln!(self.transcript.text, "{line}").unwrap();
    }

    fn model_is_asked(&mut self, call: ModelCall, body: &[u8]) {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        let members = body.as_object_mut().unwrap();
        let items = members.remove(self.wire.history()).unwrap();
        let names: Vec<String> = members
            .get_mut("tools")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .map(|tool| tool.pointer("/function/name").unwrap_or(&tool["name"]))
            .map(|name| name.as_str().unwrap().to_string())
            .collect();
        members.insert("tools".to_string(), json!(names.join(" ")));
        let streamed = if call.streamed { ", streamed" } else { "" };
        self.line(&format!(
            "model is asked ({:?}{streamed})\n  {body}",
            call.purpose
        ));
        let items = items.as_array().unwrap().clone();
        let known = self.seen.len();
        assert_eq!(items[..known], self.seen, "the conversation only grows");
        if known > 0 {
            self.line(&format!("  … {known} as before"));
        }
        for item in &items[known..] {
            self.line(&format!("  {item}"));
        }
        self.seen = items;
    }

    fn model_says(
        &mut self,
        call: ModelCall,
        at: usize,
        says: &ModelSays,
        turn: &Turn,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if says.slow {
            events.push(Event::KeepaliveDue);
        }
        let reply = match &says.fails {
            Some(failure) => {
                events.push(Event::ModelFailed(failure.event()));
                return events;
            }
            None => self.wire.reply(&self.said(at, says)),
        };
        if !call.streamed {
            events.push(Event::Replied(reply));
            return events;
        }
        // The same text, as the provider streams it in the dialect's frames.
        let body = answer(turn.request(), &reply, None).unwrap().body;
        let said = SseParser::new(MAX_REPLY).push(&body).unwrap();
        events.extend(said.into_iter().map(|event| Event::Streamed(vec![event])));
        events.push(Event::StreamEnded);
        events
    }

    fn said(&self, at: usize, says: &ModelSays) -> ModelReply {
        let number = format!("{}_{}", self.number, at + 1);
        let calls = says
            .calls
            .iter()
            .enumerate()
            .map(|(place, call)| ReplyCall {
                id: Some(call.id.clone().unwrap_or(format!("c{number}_{place}"))),
                name: call.name.clone(),
                arguments: match &call.arguments {
                    Value::Null => "{}".to_string(),
                    Value::String(text) => text.clone(),
                    other @ (Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_)) => other.to_string(),
                },
            });
        ModelReply {
            id: format!("r{number}"),
            text: says.text.clone(),
            calls: calls.collect(),
            cut_short: says.cut_short,
        }
    }

    fn services_say(&mut self, script: &Script, calls: &[ManagedCall]) -> Vec<Event> {
        let together = if calls.len() > 1 { "together" } else { "alone" };
        let mut events = Vec::new();
        for call in calls {
            let queue = self.services.get_mut(call.name());
            let queue =
                queue.unwrap_or_else(|| panic!("no answer is scripted for {}", call.name()));
            let says = match queue.len() {
                0 | 1 => queue.front().cloned(),
                _ => queue.pop_front(),
            };
            let says = says.expect("the service has an answer");
            match &says {
                ServiceSays::Left(rules) => {
                    let allowlist = support::allowlist(&[], rules);
                    self.authority = script.authority(Some(&allowlist));
                }
                ServiceSays::At(now) => self.now = *now,
                ServiceSays::Answers { .. }
                | ServiceSays::TimesOut
                | ServiceSays::Unreachable
                | ServiceSays::Withdrawn
                | ServiceSays::Decided
                | ServiceSays::RunnerGone => {}
            }
            let permitted =
                self.authority
                    .permits(call, self.rates, &BudgetCounts::default(), self.now);
            let what = match &permitted {
                Ok(_) => "service is called",
                Err(_) => "call is denied",
            };
            let said = format!("{} {} ({together})", call.name(), call.arguments().get());
            self.line(&format!("{what}\n  {said}"));
            self.transcript.common.push(said);
            let allowed_by = permitted
                .as_ref()
                .ok()
                .and_then(|it| it.allowed_by().cloned());
            let outcome = match says {
                ServiceSays::Left(_) | ServiceSays::At(_) | ServiceSays::Decided => match permitted
                {
                    Ok(_) => responded(200, "{}"),
                    Err(denial) => denial.into(),
                },
                ServiceSays::Answers { status, body } => responded(status, &body),
                ServiceSays::TimesOut => ToolOutcome::Failed(ToolFailure::timeout(call.name())),
                ServiceSays::Unreachable => {
                    ToolOutcome::Failed(ToolFailure::unreachable(call.name()))
                }
                ServiceSays::Withdrawn => Denial::Withdrawn {
                    tool: call.name().to_string(),
                }
                .into(),
                ServiceSays::RunnerGone => {
                    events.push(Event::RunnerGone);
                    continue;
                }
            };
            events.push(Event::ToolFinished {
                call: call.id(),
                outcome,
                display: None,
                allowed_by,
                latency: Duration::from_millis(7),
                max_result_bytes: u64::MAX,
            });
        }
        events
    }

    fn runner_gets(&mut self, bytes: &[u8]) {
        self.line("runner hears");
        self.transcript.frames(bytes);
        self.sent.extend(bytes);
    }
}

impl Script {
    fn authority(&self, allowlist: Option<&toolcrib_manifest::LinkAllowlist>) -> Authority {
        let Some(rules) = &self.rules else {
            return support::authority();
        };
        let catalog = Catalog::load(&support::ruled(rules), Tier::Elevated);
        Authority::new(Arc::new(catalog), allowlist)
    }
}

impl Failure {
    fn event(&self) -> ModelFailure {
        match self {
            Failure::Status(status) => ModelFailure::Http {
                status: *status,
                content_type: "text/plain".to_string(),
                body: b"the provider's own words".to_vec(),
                retry_after: Some("7".to_string()),
            },
            Failure::Unreachable => ModelFailure::Unreachable {
                message: "no candidate answered".to_string(),
            },
        }
    }
}

impl Transcript {
    fn frames(&mut self, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).unwrap();
        // A stream's frames contain no managed tool, whatever the runner's request.
        assert!(!text.contains("pond__"), "{text}");
        for line in text.lines() {
            writeln!(self.text, "{}", format!("  {line}").trim_end()).unwrap();
        }
    }

    fn ends(&mut self, answer: &TurnResult, sent: &[u8]) {
        match &answer.response {
            None => self.text.push_str("runner is gone\n"),
            Some(response) => {
                let began = if sent.is_empty() { "" } else { ", begun above" };
                let after = response.retry_after.as_ref();
                let after = after.map_or(String::new(), |it| format!(", Retry-After {it}"));
                let again = if response.after_calls {
                    ", not to be asked again"
                } else {
                    ""
                };
                let Response {
                    status,
                    content_type,
                    ..
                } = response;
                writeln!(
                    self.text,
                    "runner gets {status} {content_type}{after}{again}{began}"
                )
                .unwrap();
                self.frames(&response.body);
            }
        }
        let mut record = serde_json::to_value(&answer.record).unwrap();
        let rounds = record.as_object_mut().unwrap().remove("tool_trace");
        let mut lines = vec![format!("record {record}")];
        for round in rounds.iter().filter_map(Value::as_array).flatten() {
            let usage = &round["round_usage"];
            lines.push(format!("  round {} {usage}", round["round"]));
            let calls = round["tool_calls"].as_array().unwrap();
            lines.extend(calls.iter().map(|call| format!("    {call}")));
        }
        for line in lines {
            writeln!(self.text, "{line}").unwrap();
            self.common.push(line);
        }
    }
}

/// The answer to a request that is refused before a turn begins.
fn refused(wire: Wire, error: &RunnerError) -> TurnResult {
    TurnResult {
        response: Some(Response {
            status: error.status(),
            content_type: "application/json".to_string(),
            retry_after: None,
            body: error.body(wire.0),
            error: Some(error.code),
            after_calls: false,
        }),
        record: TurnRecord {
            status: RecordStatus::Error,
            error: Some(error.code.name()),
            usage: TraceUsage::default(),
            tool_trace: Vec::new(),
            interventions: Vec::new(),
            undeclared_calls: Vec::new(),
        },
        hidden: None,
    }
}

fn policy(edit: &PolicyEdit) -> Policy {
    let usual = support::policy();
    Policy {
        max_rounds: edit.max_rounds.unwrap_or(usual.max_rounds),
        max_tool_result_bytes: edit
            .max_tool_result_bytes
            .unwrap_or(usual.max_tool_result_bytes),
        total_timeout_ms: edit.total_timeout_ms.unwrap_or(usual.total_timeout_ms),
        ..usual
    }
}
