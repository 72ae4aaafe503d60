//! A turn's entry in the record. The caller adds the identity, the time and the bodies.

use crate::calls::connection::ConnectionFailure;
use crate::text::display::Display;
use serde::Serialize;
use toolcrib_dialect::Usage;
use toolcrib_manifest::{GrantRef, RawJson, Tier, Transport};

/// The part of a record line that comes from the turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnRecord {
    pub status: RecordStatus,
    /// The error code that the runner got, or `canceled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    pub usage: TraceUsage,
    /// Managed rounds only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_trace: Vec<TraceRound>,
    /// Interventions of the mediator other than executing calls: codes, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interventions: Vec<String>,
    /// Names of calls that the runner got and did not declare. The mediator executed none of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undeclared_calls: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordStatus {
    Ok,
    Error,
}

/// Token counts, with the same names in every dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Number of model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_rounds: Option<u32>,
}

impl TraceUsage {
    pub(crate) fn of(usage: Usage, total_rounds: Option<u32>) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_rounds,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceRound {
    /// Counts from 1.
    pub round: u32,
    pub tool_calls: Vec<TraceCall>,
    pub round_usage: TraceUsage,
}

/// One call and its result. `arguments` are as executed, or as the model wrote them if the call was
/// not executed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceCall {
    pub name: String,
    /// For the metrics: true if `name` is the canonical name of a tool that the files have or had,
    /// not a name that a model invented.
    #[serde(skip)]
    pub compiled: bool,
    pub arguments: RawJson,
    pub result: RawJson,
    pub latency_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Omitted for HTTP.
    #[serde(skip_serializing_if = "Transport::is_http")]
    pub transport: Transport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRef>,
    /// Digest of the grant's rule that allowed the call, if the tool has rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// True if the call was sent to a service.
    pub executed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<DuplicateOf>,
    /// The reason for which the connection to the service failed, and its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionFailure>,
    /// One line about the result for people, if the tool gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<Display>,
}

/// An earlier call of the same turn that this one repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateOf {
    pub round: u32,
    /// Number of repetitions so far.
    pub count: u32,
}
