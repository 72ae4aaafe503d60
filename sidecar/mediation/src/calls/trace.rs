//! A turn's entry in the record. The caller adds the identity, the time and the bodies.

use serde::Serialize;
use toolcrib_dialect::Usage;
pub use toolcrib_record::{DuplicateOf, RecordStatus, TraceCall, TraceRound, TraceUsage};

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

/// Token counts with the number of model calls.
pub(crate) fn usage(usage: Usage, total_rounds: Option<u32>) -> TraceUsage {
    TraceUsage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        total_rounds,
    }
}
