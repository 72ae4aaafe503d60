//! The lines of the record. A line is one JSON object with a `kind`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use toolcrib_manifest::{GrantRef, RawJson};

use crate::approval::{DecisionLine, QuestionLine, UsedApproval};
use crate::chain::Head;
#[cfg(feature = "schema")]
use crate::fields::GrantSchema;
use crate::fields::is_empty;
use crate::rules::RulesLine;

/// Version of the lines, in each `start` line. It changes when a field changes its meaning.
pub const VERSION: u32 = 1;

/// One line of the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line<'a> {
    Start(StartLine<'a>),
    Rules(RulesLine<'a>),
    ModelCall(ModelCallLine<'a>),
    Question(QuestionLine<'a>),
    Decision(DecisionLine<'a>),
    Intent(IntentLine<'a>),
    Turn(Box<TurnLine<'a>>),
    Gap(GapLine),
}

/// A text that is not a line of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadLine {
    /// JSON of another kind, such as a line of the mediator's log, which `kubectl logs` mixes in.
    OtherKind,
    /// Not JSON, such as a line that a kill cut off, or a line without a field that every release writes.
    Broken,
}

impl<'a> Line<'a> {
    /// Reads one line.
    pub fn parse(text: &'a [u8]) -> Result<Self, UnreadLine> {
        fn of<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, UnreadLine> {
            serde_json::from_slice(text).map_err(|_| UnreadLine::Broken)
        }
        match &*Self::kind(text)? {
            "start" => of(text).map(Line::Start),
            "rules" => of(text).map(Line::Rules),
            "model_call" => of(text).map(Line::ModelCall),
            "question" => of(text).map(Line::Question),
            "decision" => of(text).map(Line::Decision),
            "intent" => of(text).map(Line::Intent),
            "turn" => of(text).map(|line| Line::Turn(Box::new(line))),
            "gap" => of(text).map(Line::Gap),
            _ => Err(UnreadLine::OtherKind),
        }
    }

    /// Reads the kind of a line, and nothing else of a line that the mediator wrote.
    pub fn kind(text: &'a [u8]) -> Result<Cow<'a, str>, UnreadLine> {
        #[derive(Deserialize)]
        struct Kind<'k> {
            #[serde(borrow, default)]
            kind: Cow<'k, str>,
        }
        // The mediator writes the kind first, so most lines are not read twice.
        if let Some(rest) = text.strip_prefix(br#"{"kind":""#)
            && let Some(end) = rest.iter().take(32).position(|byte| *byte == b'"')
            && let Ok(kind) = std::str::from_utf8(&rest[..end])
            && !kind.contains('\\')
        {
            return Ok(kind.into());
        }
        let read: Kind<'_> = serde_json::from_slice(text).map_err(|_| UnreadLine::Broken)?;
        Ok(read.kind)
    }
}

/// The first line that a process of the mediator writes. It begins a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartLine<'a> {
    /// [`VERSION`] of the lines of this process.
    pub version: u32,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    /// The last whole line of an earlier process that was found on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Head>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Written before a call is sent, so that a kill between call and record loses nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntentLine<'a> {
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    /// Id of this attempt: `REQUEST_ID-ROUND-INDEX`. The call in the `turn` line has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Cow<'a, str>>,
    /// Value of the tool's `idempotencyHeader`, by which its service recognizes a repeated call: the
    /// `call_id` of the first attempt with these arguments in the turn. Omitted if the tool names no
    /// such header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Cow<'a, str>>,
    /// The identity that services see: the agent's name, or the pod's with `identity: Pod`.
    pub agent_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Cow<'a, str>>,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    /// `native` for calls by the runner itself, as an MCP client. Omitted for calls by a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    /// Counts from 1.
    pub round: u32,
    /// Canonical name of the tool, `SURFACE.TOOL`.
    pub name: Cow<'a, str>,
    /// The arguments as sent.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub arguments: Cow<'a, RawJson>,
    pub service: Cow<'a, str>,
    /// Omitted for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Cow<'a, str>>,
    pub tier: Cow<'a, str>,
    pub read_only: bool,
    /// Names of the ClusterToolPolicies that matched the agent when the call was sent, at most 32.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub policies: Cow<'a, [String]>,
    /// The object that allowed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<GrantSchema>"))]
    pub grant: Option<Cow<'a, GrantRef>>,
    /// Digest of the grant's rule that allows the call. Omitted if no rule of the tool has
    /// conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Cow<'a, str>>,
    /// The code and the message of the refusal that the call would have had if its rule were
    /// enforced and not tried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<Cow<'a, str>>,
    /// Omitted if the call needs no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Cow<'a, UsedApproval>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Written before a request is sent to a model, so that a killed process leaves a trace of it. It goes
/// to standard output only if the disk does not accept it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelCallLine<'a> {
    /// The request's `turn` line has the same id.
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    pub agent_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Cow<'a, str>>,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    pub dialect: Cow<'a, str>,
    /// Omitted for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Cow<'a, str>>,
    /// `provider/model` of the first candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Cow<'a, str>>,
    /// Id of the runner's token.
    pub token: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    /// `seq` of the line of the chain that this line follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// One finished request, successful or not. In the file the members `request` and `response` follow,
/// which this crate does not read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnLine<'a> {
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    pub agent_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Cow<'a, str>>,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    /// `native` for calls by the runner itself, as an MCP client. Omitted for calls by a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    pub dialect: Cow<'a, str>,
    /// Omitted for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Cow<'a, str>>,
    /// Id of the provider's key, never its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// Id of the runner's token, never its text.
    pub token: Cow<'a, str>,
    /// The status sent to the runner.
    pub http_status: u16,
    pub duration_ms: u64,
    /// The reason why no provider could be reached, and the address of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    pub status: RecordStatus,
    /// The error code that the runner got, or `canceled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    pub usage: TraceUsage,
    /// The rounds with managed calls.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub tool_trace: Cow<'a, [TraceRound]>,
    /// Interventions of the mediator other than executing calls: codes, in order.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub interventions: Cow<'a, [String]>,
    /// Names of calls of undeclared tools that were passed to the runner. The mediator executed none of
    /// them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub undeclared_calls: Cow<'a, [String]>,
    /// Names of the ClusterToolPolicies that matched the agent when the request began, at most 32.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub policies: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// The number of lines that are missing here. The file and standard output each have gaps of their own,
/// so these lines are in no chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapLine {
    pub lines: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RecordStatus {
    Ok,
    Error,
}

/// Token counts, with the same names in every dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Number of model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_rounds: Option<u32>,
}

/// One round whose calls were answered by the mediator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceRound {
    /// Counts from 1.
    pub round: u32,
    /// Milliseconds from the request to the model's reply with these calls. Lines of earlier releases
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_ms: Option<u64>,
    pub tool_calls: Vec<TraceCall>,
    pub round_usage: TraceUsage,
}

/// One call and its result. `arguments` are as executed, or as the model wrote them if the call was
/// not executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceCall {
    /// Index of the call in the model's reply.
    #[serde(skip)]
    pub index: usize,
    /// Id of this attempt: `REQUEST_ID-ROUND-INDEX`. Set when the line is written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call_id: String,
    /// Round and index of the attempt whose id is the idempotency key.
    #[serde(skip)]
    pub first_attempt: Option<(u32, usize)>,
    /// Value of the tool's `idempotencyHeader`, by which its service recognizes a repeated call: the
    /// `call_id` of the first attempt with these arguments in the turn. Omitted if the tool names no
    /// such header, or the call was refused. Set when the line is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub name: String,
    /// For the metrics: true if `name` is the canonical name of a tool that the files have or had,
    /// not a name that a model invented.
    #[serde(skip)]
    pub compiled: bool,
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub arguments: RawJson,
    /// The result as the model read it.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub result: RawJson,
    pub latency_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Omitted for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Cow<'static, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Cow<'static, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// The object that allowed the call; of a refused call, the object that gives the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<GrantSchema>"))]
    pub grant: Option<GrantRef>,
    /// Digest of the grant's rule that allowed the call. Omitted if no rule of the tool has
    /// conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The code and the message of the refusal that the call would have had if its rule were
    /// enforced and not tried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<String>,
    /// True if the call was sent to a service.
    pub executed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<DuplicateOf>,
    /// The reason for which the connection to the service failed, and its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// One line about the result for people, if the tool gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

impl TraceCall {
    /// The error code in the result; `None`: the call succeeded.
    pub fn error_code(&self) -> Option<String> {
        Some(self.error()?.code.into_owned())
    }

    /// The error message in the result.
    pub fn error_message(&self) -> Option<String> {
        Some(self.error()?.message?.into_owned())
    }

    fn error(&self) -> Option<CallError<'_>> {
        let result: CallResult<'_> = serde_json::from_str(self.result.get()).ok()?;
        result.error
    }
}

#[derive(Deserialize)]
struct CallResult<'a> {
    #[serde(borrow)]
    error: Option<CallError<'a>>,
}

#[derive(Deserialize)]
struct CallError<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

/// An earlier call of the same turn that this one repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DuplicateOf {
    pub round: u32,
    /// Number of repetitions so far.
    pub count: u32,
}

/// A connection that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Connection {
    /// A word of a list; later releases may add words.
    pub cause: Cow<'static, str>,
    /// `scheme://host:port`.
    pub address: String,
}
