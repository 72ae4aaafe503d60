//! Simulates one call of a model, up to the request that the mediator would send.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib_compile::{Compilation, Inputs, Kind, ToolRequirements, WhyNot, method_name, why_not};
use toolcrib_dialect::{Dialect, Reply, Request};
use toolcrib_manifest::{Identity, Transport};
use toolcrib_mediation::{
    AgentName, AllowedBy, ApprovalNeed, Authority, BudgetCounts, Catalog, ClawId, Denial, Effect,
    Event, HistoryEdits, LiveTool, ManagedCall, PresentedTools, RateCounts, RunnerCode,
    ToolFailure, Turn, TurnConfig, alias, http_call, http_method, target,
};
use toolcrib_rules::Rule;
use url::Url;

use super::file::Verdict;
use crate::print;

/// The outcome of a call. Its fields have the names of a test's `expect`.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub result: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(rename = "wouldDeny", skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<SentRequest>,
    /// The error for the model, and the reasons for withholding the tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
    /// The note that the tool's name is probably misspelt. Its call is denied, whatever the grants
    /// say.
    #[serde(skip)]
    pub misspelt: Option<String>,
}

/// The request that the mediator would send, without its credential.
#[derive(Debug, Serialize)]
pub struct SentRequest {
    /// `MCP` for a tool that goes over MCP.
    pub method: String,
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The header by which the service recognizes a repetition. Each call has another value of it.
    #[serde(rename = "idempotencyHeader", skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
}

/// The call of a model.
pub struct Call<'a> {
    /// The calling pod, for an agent with `identity: Pod`.
    pub pod: Option<&'a str>,
    pub tool: &'a str,
    /// The arguments as the model writes them.
    pub arguments: &'a str,
    /// Number of equal calls that came just before.
    pub previous: u32,
    pub now: Timestamp,
}

/// Returns the outcome of a call of the agent's model.
pub fn call(
    inputs: &Inputs,
    compilation: &Compilation,
    call: &Call<'_>,
) -> anyhow::Result<Outcome> {
    let Call {
        pod,
        tool,
        arguments,
        previous,
        now,
    } = *call;
    let mut outcome = known(inputs, compilation, tool);
    if compilation.suspension().is_some() {
        // The mediator refuses the request itself.
        outcome.code = Some(RunnerCode::AgentSuspended.name().to_owned());
        return Ok(outcome);
    }
    let agent = &compilation.files.agent;
    let name = match (agent.identity, pod) {
        (Identity::Agent, _) => agent.claw_id.clone(),
        (Identity::Pod, Some(pod)) if pod.contains('.') => {
            bail!("the pod is called {pod:?}: with identity: Pod a name with a dot is refused")
        }
        (Identity::Pod, Some(pod)) => pod.to_owned(),
        (Identity::Pod, None) => {
            bail!("the agent's identity is its pod's: name one in spec.pod")
        }
    };
    let claw_id = ClawId {
        name,
        namespace: agent.namespace.clone(),
    };
    let agent_name = AgentName {
        name: agent.agent.clone(),
        namespace: agent.namespace.clone(),
    };
    let catalog = Catalog::load_for(&compilation.files.tools, agent.max_tier, agent_name);
    let authority = Authority::new(Arc::new(catalog), None).with_budgets(&agent.budgets);
    match turn_decision(&authority, claw_id, tool, arguments, now)? {
        TurnDecision::NotMediated => {
            let why = "the agent has no tool at all, so that its requests pass as they are";
            outcome.because.insert(0, why.to_owned());
        }
        TurnDecision::Rejected { code, message } => {
            outcome.code = Some(code);
            outcome.because.insert(0, message);
            outcome.because.extend(closed(compilation, tool, now));
        }
        TurnDecision::Called(call) => {
            let arguments = serde_json::from_str(call.arguments().get())
                .context("the arguments as executed are not JSON")?;
            outcome.arguments = Some(arguments);
            let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
            for _ in 0..previous {
                // A denied call does not count.
                authority.permits(&call, &rates, &budgets, now).ok();
            }
            let mut verdict = Verdict::Allowed;
            let permitted = match authority.permits(&call, &rates, &budgets, now) {
                Err(Denial::NeedsApproval { need, .. }) => {
                    verdict = Verdict::NeedsApproval;
                    outcome.because.push(approvers(compilation, tool, &need));
                    authority.permits_approved(&call, &need, &rates, &budgets, now)
                }
                permitted => permitted,
            };
            let sent = permitted
                .map_err(|denied| (denied.code().to_string(), denied.to_string()))
                .and_then(|live| {
                    let rule = live.allowed_by();
                    let by = rule.and_then(|rule| by_rule(compilation, tool, rule));
                    outcome.by = by.or(outcome.by.take());
                    if let Some(refusal) = call.would_deny(rule) {
                        outcome.would_deny = Some(refusal.code.to_string());
                        let message = format!("would be denied: {}", refusal.message);
                        outcome.because.push(message);
                    }
                    request(&live, &call)
                        .map_err(|failure| (failure.code.to_string(), failure.message))
                });
            match sent {
                Ok(request) => {
                    outcome.result = verdict;
                    outcome.request = Some(request);
                }
                Err((code, message)) => {
                    outcome.code = Some(code);
                    outcome.because.insert(0, message);
                }
            }
        }
    }
    Ok(outcome)
}

/// Says who may approve the call.
fn approvers(compilation: &Compilation, tool: &str, need: &ApprovalNeed) -> String {
    let summary = compilation.tools.iter().find(|one| one.name == tool);
    let tool = summary.and_then(ToolRequirements::of);
    let asked = tool.and_then(|tool| tool.for_question(&tool.entry_digest, &need.rules).ok());
    // The files are those of the same compilation, so it has the rules that they name.
    let words = asked.map(|asked| asked.requirements().to_string());
    format!("a person must approve it: {}", words.unwrap_or_default())
}

/// Returns the facts that need no call: the object that gives the tool, or the reason for
/// withholding it.
fn known(inputs: &Inputs, compilation: &Compilation, tool: &str) -> Outcome {
    let summary = compilation.tools.iter().find(|one| one.name == tool);
    let reasons = match summary {
        Some(_) => Vec::new(),
        None => why_not(inputs, compilation, tool),
    };
    let withheld = reasons
        .iter()
        .find_map(|reason| Some(reason.withheld()?.code.name().to_owned()));
    let misspelt = reasons.iter().find(|reason| match reason {
        WhyNot::NotAName(_) | WhyNot::NotOffered { .. } => true,
        WhyNot::NotDeclared { meant, .. } => meant.is_some(),
        WhyNot::Withheld(_)
        | WhyNot::Suspended { .. }
        | WhyNot::NoAgent(_)
        | WhyNot::NoSurface(_)
        | WhyNot::NoConsent { .. }
        | WhyNot::GrantSuspended { .. }
        | WhyNot::NotGranted { .. } => false,
    });
    Outcome {
        result: Verdict::Denied,
        misspelt: misspelt.map(WhyNot::to_string),
        code: None,
        would_deny: None,
        by: summary.map(|tool| by(tool.grant.kind, &tool.grant.key.name)),
        withheld,
        tier: summary.map(|tool| tool.tier.name().to_owned()),
        credential: summary.map(|tool| tool.credential.name().to_owned()),
        arguments: None,
        request: None,
        because: reasons.iter().map(WhyNot::to_string).collect(),
    }
}

/// Returns a note if no rule of the tool is in its window: the model reads only that the tool is
/// not granted.
fn closed(compilation: &Compilation, tool: &str, now: Timestamp) -> Option<String> {
    let entry = compilation.files.tools.tools.iter();
    let entry = entry.into_iter().find(|entry| entry.name == tool)?;
    let rules = &entry.extension.rules;
    let is_open = |rule| Rule::read(rule).is_ok_and(|rule| rule.is_open(now));
    let is_closed = !rules.is_empty() && !rules.iter().any(is_open);
    is_closed.then(|| format!("no grant of the tool is in its time at {now}"))
}

/// Names the object that has the rule.
fn by_rule(compilation: &Compilation, tool: &str, allowed_by: &AllowedBy) -> Option<String> {
    let AllowedBy { grant, rule, .. } = allowed_by;
    let summary = compilation.tools.iter().find(|one| one.name == tool)?;
    let rules = summary.rules.iter();
    let met = rules.into_iter().find(|summary| {
        let key = &summary.grant.key;
        (&*key.namespace, &*key.name, &summary.digest) == (&*grant.namespace, &*grant.name, rule)
    })?;
    Some(by(met.grant.kind, &met.grant.key.name))
}

fn by(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.name())
}

/// The turn's decision on a model's call.
enum TurnDecision {
    /// No tool is presented, so the mediator passes the reply on.
    NotMediated,
    /// The model reads an error.
    Rejected { code: String, message: String },
    /// The call is executed, if authority still permits it then.
    Called(Box<ManagedCall>),
}

/// Runs a turn in which the model's only reply makes this call.
fn turn_decision(
    authority: &Authority,
    claw_id: ClawId,
    tool: &str,
    arguments: &str,
    now: Timestamp,
) -> anyhow::Result<TurnDecision> {
    const MODEL: &str = "model";
    let asked = json!({"model": MODEL, "messages": [{"role": "user", "content": "test"}]});
    let request = Request::decode(Dialect::OpenaiChat, asked.to_string().into_bytes())
        .context("the test's own request cannot be decoded")?;
    let presented = PresentedTools::new(authority, &request, now);
    if !presented.answers_calls() {
        return Ok(TurnDecision::NotMediated);
    }
    let config = TurnConfig {
        request: Arc::new(request),
        presented,
        policy: toolcrib_manifest::Policy::default(),
        streaming: toolcrib_manifest::Streaming::Buffered,
        claw_id,
        history: HistoryEdits::default(),
        context: None,
        prompt: None,
    };
    let (mut turn, _) = Turn::start(config).context("the turn does not start")?;
    let reply = json!({"choices": [{"finish_reason": "tool_calls", "message": {
        "role": "assistant",
        "content": null,
        "tool_calls": [{
            "id": "call_1",
            "type": "function",
            "function": {"name": alias(tool), "arguments": arguments},
        }],
    }}]});
    let reply = Reply::decode(Dialect::OpenaiChat, reply.to_string().into_bytes())
        .context("the test's own reply cannot be decoded")?;
    for effect in turn.step(Duration::ZERO, Event::Replied(reply)) {
        match effect {
            Effect::CallTools(calls) => {
                let call = calls.into_iter().next().context("the turn calls nothing")?;
                return Ok(TurnDecision::Called(Box::new(call)));
            }
            Effect::CallModel(_) => {
                let body = turn.request_body(MODEL).context("no next request")?;
                return rejection(&body);
            }
            Effect::Emit(_) => {}
            Effect::Answer(_) => bail!("the turn ended without an answer to the call"),
        }
    }
    bail!("the turn does not say what becomes of the call")
}

/// Reads the rejection from the result in the next request to the model.
fn rejection(body: &[u8]) -> anyhow::Result<TurnDecision> {
    let body: Value = serde_json::from_slice(body).context("the next request is not JSON")?;
    let result = body["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .and_then(|message| message["content"].as_str())
        .context("the next request has no result")?;
    let result: Value = serde_json::from_str(result).context("the result is not JSON")?;
    let error = &result["error"];
    let code = error["code"].as_str();
    Ok(TurnDecision::Rejected {
        code: code.context("the result has no error.code")?.to_owned(),
        message: print::message_of(error).context("the result has no error.message")?,
    })
}

fn request(live: &LiveTool, call: &ManagedCall) -> Result<SentRequest, ToolFailure> {
    let execution = &live.tool().execution;
    if execution.transport == Transport::Mcp {
        let path = execution.path.as_deref().unwrap_or_default();
        return Ok(SentRequest {
            method: "MCP".to_owned(),
            url: format!("{}{path}", execution.base_url),
            body: serde_json::from_str(call.arguments().get()).ok(),
            idempotency_header: None,
        });
    }
    let http = http_call(live.tool(), call.arguments(), call.claw_id(), None)?;
    let base = Url::parse(&execution.base_url).ok();
    let url = base.and_then(|base| target(&base, &http.path_and_query));
    let url = url.ok_or_else(|| {
        ToolFailure::new(
            toolcrib_mediation::ResultCode::UnsupportedTool,
            toolcrib_mediation::Certainty::NeverRan,
            format!("{}: its path cannot be sent as it is written", call.name()),
        )
    })?;
    Ok(SentRequest {
        method: method_name(http_method(live.tool())?).to_owned(),
        url: url.into(),
        body: http
            .body
            .and_then(|body| serde_json::from_slice(&body).ok()),
        idempotency_header: execution.idempotency_header.clone(),
    })
}
