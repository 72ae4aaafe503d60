//! A call and a request of the record, as the verbs print them, and how lines become them.
//!
//! Not here: which lines belong together ([`super::calls`]).

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use toolcrib_bounds::cut;
use toolcrib_compile::limits_of;
use toolcrib_manifest::names::MAX_POLICIES;
use toolcrib_manifest::{GrantRef, RawJson};
use toolcrib_mediation::ResultCode;
use toolcrib_record::{
    DecisionLine, DecisionVerdict, IntentLine, QuestionLine, RulesLine, TraceCall, TraceRound,
    TurnLine, UsedApproval,
};

use super::MAX_NAME;
use super::connection::FailedConnection;

/// A call, as `audit` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub when: String,
    pub namespace: String,
    pub agent: String,
    pub pod: String,
    pub request_id: String,
    /// Empty in lines of earlier releases.
    pub call_id: String,
    pub tool: String,
    pub arguments: RawJson,
    pub outcome: Outcome,
    /// The error code that the model read.
    pub code: Option<String>,
    /// `None`: not known.
    pub executed: Option<bool>,
    pub tier: Option<String>,
    pub read_only: Option<bool>,
    /// `NAMESPACE/NAME` of the object that allowed the call.
    pub grant: Option<String>,
    pub rule: Option<String>,
    /// The ClusterToolPolicies that matched the agent. `None` for a call that waits: its line has none.
    pub policies: Option<Vec<String>>,
    /// The refusal that the call would have had if its rule were enforced and not tried out.
    pub would_deny: Option<String>,
    pub latency_ms: Option<u64>,
    /// The error message that the model read.
    pub message: Option<String>,
    /// The failed connection to the service.
    pub connection: Option<FailedConnection>,
    /// What persons decided about the call. `None`: nobody was asked, or nobody has decided.
    pub approval: Option<CallApproval>,
    /// The id of a later attempt with the same idempotency key that succeeded. So the call has had its
    /// effect once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
}

/// What persons decided about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallApproval {
    /// The word of a [`DecisionVerdict`].
    pub verdict: &'static str,
    /// The ToolApproval; `None` if none was made.
    pub name: Option<String>,
    /// Usernames of the persons who decided.
    pub decided_by: Vec<String>,
    /// Why they decided so, in their words. Only the `decision` line has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CallApproval {
    pub(super) fn is_approval(&self) -> bool {
        self.verdict == DecisionVerdict::Approved.word()
    }

    /// Words such as `approved by carol`.
    pub fn words(&self) -> String {
        match self.decided_by.as_slice() {
            [] => self.verdict.to_owned(),
            persons => format!("{} by {}", self.verdict, persons.join(", ")),
        }
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Ok,
    Failed,
    /// Not allowed, so it did not run.
    Denied,
    /// An intent without an outcome: the call may have run.
    Unknown,
    /// A person has to approve the call, and it has not run.
    Waiting,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Denied => "denied",
            Outcome::Unknown => "outcome unknown",
            Outcome::Waiting => "waits for an approval",
        }
    }
}

impl Call {
    /// True if a person must find out whether it ran.
    pub fn is_unsettled(&self) -> bool {
        let unclear = [ResultCode::Canceled, ResultCode::Timeout];
        let is_unclear = |code: &String| unclear.iter().any(|it| it.to_string() == *code);
        let may_have_run = self.outcome == Outcome::Unknown
            || (self.executed == Some(true) && self.code.as_ref().is_some_and(is_unclear));
        may_have_run && self.settled_by.is_none()
    }

    /// The id by which an intent and its outcome find each other; earlier releases wrote none.
    pub(super) fn key(&self) -> &str {
        match self.call_id.is_empty() {
            true => &self.tool,
            false => &self.call_id,
        }
    }

    pub(super) fn weight(&self) -> usize {
        let policies = self.policies.iter().flatten();
        let policies: usize = policies.map(|it| it.len() + size_of::<String>()).sum();
        self.arguments.get().len() + policies + 512
    }
}

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    pub when: String,
    pub namespace: String,
    pub agent: String,
    pub pod: String,
    pub request_id: String,
    pub model: Option<String>,
    pub http_status: u16,
    pub error: Option<String>,
    pub duration_ms: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub calls: usize,
    /// The tools that the model called although neither the mediator nor the program has them. The
    /// calls were passed to the program. Bounded by the length of a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undeclared_calls: Vec<String>,
    /// The failed connection to the last provider.
    pub connection: Option<FailedConnection>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Call(Box<Call>),
    /// A call that waits for an approval, although its request has ended: the program or the model asks
    /// again. The call is an [`Entry::Call`] too, with the answer that it got.
    Question(Box<Call>),
    Request(Box<Request>),
    Rules(Box<RecordedRules>),
}

/// The rules of a tool that were in force from a line of the record on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRules {
    pub namespace: String,
    pub agent: String,
    pub tool: String,
    /// Digest of each rule, and words for its conditions.
    pub rules: Vec<(String, String)>,
}

/// A name or an id, at most [`MAX_NAME`] bytes of it.
pub(super) fn short(text: &str) -> String {
    cut(text, MAX_NAME).into_owned()
}

fn grant_name(grant: &GrantRef) -> String {
    short(&format!("{}/{}", grant.namespace, grant.name))
}

pub(super) fn of_intent(intent: IntentLine<'_>) -> Call {
    Call {
        when: short(&intent.timestamp),
        namespace: short(&intent.namespace.unwrap_or_default()),
        agent: short(&intent.agent_id),
        pod: short(&intent.pod),
        request_id: short(&intent.request_id),
        call_id: short(&intent.call_id.unwrap_or_default()),
        tool: short(&intent.name),
        arguments: intent.arguments.into_owned(),
        outcome: Outcome::Unknown,
        code: None,
        executed: None,
        tier: Some(short(&intent.tier)),
        read_only: Some(intent.read_only),
        grant: intent.grant.as_deref().map(grant_name),
        rule: intent.rule.as_deref().map(short),
        policies: Some(policies(&intent.policies)),
        would_deny: intent.would_deny.map(|it| it.into_owned()),
        latency_ms: None,
        message: None,
        connection: None,
        approval: intent.approval.as_deref().map(of_used),
        settled_by: None,
    }
}

/// A call about which persons are asked.
pub(super) fn of_question(question: QuestionLine<'_>) -> Call {
    Call {
        when: short(&question.timestamp),
        namespace: short(&question.namespace),
        agent: short(&question.agent_id),
        pod: short(&question.pod),
        request_id: short(&question.request_id),
        call_id: short(&question.call_id),
        tool: short(&question.name),
        arguments: question.arguments.into_owned(),
        outcome: Outcome::Waiting,
        code: None,
        executed: Some(false),
        tier: Some(short(&question.tier)),
        read_only: None,
        grant: question.rules.first().map(|it| grant_name(&it.grant)),
        rule: question.rules.first().map(|it| short(&it.rule)),
        policies: None,
        would_deny: None,
        latency_ms: None,
        message: Some(format!("until {}", short(&question.expires_at))),
        connection: None,
        approval: None,
        settled_by: None,
    }
}

fn of_used(used: &UsedApproval) -> CallApproval {
    CallApproval {
        verdict: DecisionVerdict::Approved.word(),
        name: Some(short(&used.name)),
        decided_by: persons(&used.decided_by),
        reason: None,
    }
}

pub(super) fn of_decision(decision: &DecisionLine<'_>) -> CallApproval {
    CallApproval {
        verdict: decision.verdict.word(),
        name: decision.approval.as_ref().map(|it| short(&it.name)),
        decided_by: persons(&decision.decided_by),
        reason: Some(decision.reason.as_ref())
            .filter(|reason| !reason.is_empty())
            .map(short),
    }
}

/// Most persons of a decision; a ToolApproval needs fewer.
const MAX_PERSONS: usize = 32;

fn persons(names: &[String]) -> Vec<String> {
    names.iter().take(MAX_PERSONS).map(|it| short(it)).collect()
}

fn policies(names: &[String]) -> Vec<String> {
    let names = names.iter().take(MAX_POLICIES);
    names.map(|it| short(it)).collect()
}

/// `None`: a newer mediator wrote rules that this release cannot read.
pub(super) fn of_rules(line: &RulesLine<'_>) -> Option<RecordedRules> {
    let rules = line.read().ok()?;
    let rules = rules
        .iter()
        .map(|rule| (short(&rule.digest), limits_of(rule)));
    Some(RecordedRules {
        namespace: short(&line.namespace),
        agent: short(&line.agent),
        tool: short(&line.name),
        rules: rules.collect(),
    })
}

/// The time of the reply that has the calls of a round; `None` in lines of earlier releases.
pub(super) fn received(turn: &TurnLine<'_>, round: &TraceRound) -> Option<Timestamp> {
    let end: Timestamp = turn.timestamp.parse().ok()?;
    let since_end = turn.duration_ms.checked_sub(round.received_ms?)?;
    end.checked_sub(Duration::from_millis(since_end)).ok()
}

pub(super) fn of_trace(turn: &TurnLine<'_>, call: &TraceCall) -> Call {
    let code = call.error_code();
    let is_denial = |code: &String| {
        let mut denials = ResultCode::DENIALS.iter();
        denials.any(|it| it.to_string() == *code)
    };
    let outcome = match &code {
        None => Outcome::Ok,
        Some(code) if !call.executed && is_denial(code) => Outcome::Denied,
        Some(_) => Outcome::Failed,
    };
    Call {
        when: short(&turn.timestamp),
        namespace: turn.namespace.as_deref().map(short).unwrap_or_default(),
        agent: short(&turn.agent_id),
        pod: short(&turn.pod),
        request_id: short(&turn.request_id),
        call_id: short(&call.call_id),
        tool: short(&call.name),
        arguments: call.arguments.clone(),
        outcome,
        message: code.as_ref().and_then(|_| call.error_message()),
        code,
        executed: Some(call.executed),
        tier: call.tier.as_deref().map(short),
        read_only: call.read_only,
        grant: call.grant.as_ref().map(grant_name),
        rule: call.rule.as_deref().map(short),
        policies: Some(policies(&turn.policies)),
        would_deny: call.would_deny.clone(),
        latency_ms: Some(call.latency_ms),
        connection: call.connection.as_ref().map(FailedConnection::of),
        approval: None,
        settled_by: None,
    }
}

pub(super) fn of_turn(turn: &TurnLine<'_>, calls: usize) -> Request {
    Request {
        when: short(&turn.timestamp),
        namespace: turn.namespace.as_deref().map(short).unwrap_or_default(),
        agent: short(&turn.agent_id),
        pod: short(&turn.pod),
        request_id: short(&turn.request_id),
        model: turn.model.as_deref().map(short),
        http_status: turn.http_status,
        error: turn.error.as_deref().map(short),
        duration_ms: turn.duration_ms,
        prompt_tokens: turn.usage.prompt_tokens,
        completion_tokens: turn.usage.completion_tokens,
        calls,
        undeclared_calls: turn
            .undeclared_calls
            .iter()
            .map(|name| short(name))
            .collect(),
        connection: turn.connection.as_ref().map(FailedConnection::of),
    }
}
