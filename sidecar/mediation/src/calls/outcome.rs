//! The outcome of a call, and the result that the model reads.

use std::time::Duration;

use toolcrib_dialect::json;
use toolcrib_mcp::code;

use crate::calls::connection::ConnectionFailure;
use crate::codes::ResultCode;

/// The outcome that an executor reports. Bytes are decompressed and scrubbed already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    /// An HTTP service answered, with any status.
    Responded { status: u16, body: ToolBody },
    /// An MCP server returned a result (`structuredContent`, or the text blocks joined).
    Mcp { is_error: bool, body: ToolBody },
    /// An MCP server answered with a JSON-RPC error; `body` is its message.
    McpError { code: i64, body: ToolBody },
    /// The service gave no answer, or the call was never sent.
    Failed(ToolFailure),
}

/// The bytes of a result, at least `max_tool_result_bytes + 1` of them if the result is longer.
/// Scrub before cutting: read [`crate::Scrubber::longest`] bytes more, so that no part of a secret
/// remains at the edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolBody {
    pub bytes: Vec<u8>,
    /// Length of the whole result, if known.
    pub original_bytes: Option<u64>,
}

/// The reason for a missing answer. `message` names the tool, never a host, address or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    pub code: ResultCode,
    pub message: String,
    pub certainty: Certainty,
    /// The time after which the same call is allowed, if that is known.
    pub retry_after: Option<Duration>,
    /// For the record: the failure of the connection, if that is the reason.
    pub connection: Option<ConnectionFailure>,
}

/// How sure it is whether the service acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The mediator refused the call: the same call is refused again.
    NeverRan,
    /// The call did not reach the service: trying again is safe.
    Unreached,
    /// The service said "later": trying again is safe.
    Transient,
    /// The call was sent, and its outcome is unknown.
    Unclear,
    /// The service executed or decided the call.
    Ran,
}

impl Certainty {
    /// Returns true if the call was sent to its service, as far as is known.
    pub(crate) fn is_sent(self) -> bool {
        match self {
            Certainty::NeverRan | Certainty::Unreached => false,
            Certainty::Transient | Certainty::Unclear | Certainty::Ran => true,
        }
    }
}

/// Codes of MCP errors that say that the server examined the call and ran nothing.
const DECIDED: [i64; 7] = [
    code::PARSE_ERROR,
    code::INVALID_REQUEST,
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::HEADER_MISMATCH,
    code::MISSING_CAPABILITY,
    code::UNSUPPORTED_VERSION,
];
/// Codes of MCP errors for a tool, an argument or a mirrored argument that the server does not
/// know. The arguments were valid by the reviewed schema, so the tool has changed.
const CHANGED: [i64; 3] = [
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::HEADER_MISMATCH,
];

impl ToolFailure {
    pub fn new(code: ResultCode, certainty: Certainty, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            certainty,
            retry_after: None,
            connection: None,
        }
    }

    /// Adds the time after which the same call is allowed.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// Adds the connection failure that is the reason.
    pub fn because(self, connection: ConnectionFailure) -> Self {
        Self {
            connection: Some(connection),
            ..self
        }
    }

    /// No connection, no address or no TLS: nothing was sent.
    pub fn unreachable(tool: &str) -> Self {
        Self::new(
            ResultCode::RequestFailed,
            Certainty::Unreached,
            format!("the service of {tool} could not be reached"),
        )
    }

    /// The call was sent, but the answer broke off.
    pub fn broken_off(tool: &str) -> Self {
        Self::new(
            ResultCode::RequestFailed,
            Certainty::Unclear,
            format!("the answer of {tool} broke off; it may have run"),
        )
    }

    /// The mediator refused the call.
    pub fn refused(code: ResultCode, message: impl Into<String>) -> Self {
        Self::new(code, Certainty::NeverRan, message)
    }

    pub fn timeout(tool: &str) -> Self {
        Self::new(
            ResultCode::Timeout,
            Certainty::Unclear,
            format!("{tool} did not answer in time; it may have run"),
        )
    }

    pub fn canceled(tool: &str) -> Self {
        Self::new(
            ResultCode::Canceled,
            Certainty::Unclear,
            format!("{tool} was canceled"),
        )
    }
}

impl ToolOutcome {
    pub(crate) fn certainty(&self) -> Certainty {
        match self {
            // With these statuses the service says that it did nothing.
            ToolOutcome::Responded {
                status: 425 | 429 | 503,
                ..
            } => Certainty::Transient,
            ToolOutcome::Responded {
                status: 500..=599 | 408,
                ..
            } => Certainty::Unclear,
            ToolOutcome::Responded { .. } | ToolOutcome::Mcp { .. } => Certainty::Ran,
            ToolOutcome::McpError { code, .. } if DECIDED.contains(code) => Certainty::Ran,
            ToolOutcome::McpError { .. } => Certainty::Unclear,
            ToolOutcome::Failed(failure) => failure.certainty,
        }
    }

    pub(crate) fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            ToolOutcome::Failed(failure) => failure.connection.as_ref(),
            ToolOutcome::Responded { .. }
            | ToolOutcome::Mcp { .. }
            | ToolOutcome::McpError { .. } => None,
        }
    }

    /// Returns true if the result has `ok: true`.
    pub fn is_success(&self) -> bool {
        match self {
            ToolOutcome::Responded { status, .. } => (200..300).contains(status),
            ToolOutcome::Mcp { is_error, .. } => !is_error,
            ToolOutcome::McpError { .. } | ToolOutcome::Failed(_) => false,
        }
    }

    /// Returns the result as JSON text. `repeatable`: a second run of the call does no more than
    /// the first.
    pub(crate) fn result(&self, tool: &str, repeatable: bool, max_bytes: usize) -> String {
        let retryable = || ("retryable", self.retryable(repeatable).to_string());
        match self {
            ToolOutcome::Responded { status, body } if (200..300).contains(status) => {
                json::object(&members_ok(Some(*status), body, max_bytes))
            }
            ToolOutcome::Responded { status, body } => {
                let mut details = vec![retryable()];
                details.extend(data(body, "body", max_bytes));
                error_result(
                    ResultCode::Http(*status),
                    &format!("{tool} answered with status {status}"),
                    Some(&json::object(&details)),
                    Some(*status),
                )
            }
            ToolOutcome::Mcp {
                is_error: false,
                body,
            } => json::object(&members_ok(None, body, max_bytes)),
            ToolOutcome::Mcp {
                is_error: true,
                body,
            } => {
                let mut details = vec![retryable()];
                details.extend(data(body, "body", max_bytes));
                error_result(
                    ResultCode::ToolError,
                    &format!("{tool} reported an error"),
                    Some(&json::object(&details)),
                    None,
                )
            }
            ToolOutcome::McpError { code, body } => {
                let message = if CHANGED.contains(code) {
                    format!(
                        "the server of {tool} does not take this call (error {code}): the tool may have changed since review"
                    )
                } else {
                    format!("the server of {tool} answered with error {code}")
                };
                let mut details = vec![retryable(), ("rpc_code", code.to_string())];
                details.extend(data(body, "body", max_bytes));
                error_result(
                    ResultCode::McpError,
                    &message,
                    Some(&json::object(&details)),
                    None,
                )
            }
            ToolOutcome::Failed(failure) => {
                let mut details = vec![retryable()];
                let wait = failure.retry_after.map(whole_seconds);
                details.extend(wait.map(|wait| ("retry_after_s", wait.to_string())));
                error_result(
                    failure.code,
                    &failure.message,
                    Some(&json::object(&details)),
                    None,
                )
            }
        }
    }

    /// Returns true if the same call, or the call with another value, may succeed.
    fn retryable(&self, repeatable: bool) -> bool {
        match (self.certainty(), self) {
            (Certainty::Unreached | Certainty::Transient, _) => true,
            (Certainty::Unclear, _) => repeatable,
            (Certainty::NeverRan, ToolOutcome::Failed(failure)) => {
                let codes = [
                    ResultCode::InvalidArguments,
                    ResultCode::ConditionFailed,
                    ResultCode::RateLimited,
                    ResultCode::QuotaExhausted,
                    ResultCode::ApprovalPending,
                    ResultCode::ApprovalTooLarge,
                    ResultCode::TooManyPending,
                    ResultCode::TooManyDenied,
                ];
                codes.contains(&failure.code)
            }
            (Certainty::NeverRan | Certainty::Ran, _) => false,
        }
    }
}

/// Rounds up, so that a client that waits this long has waited long enough.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_millis()
        .div_ceil(1000)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// `{"ok":false,"error":{"code","message","details"?},"status_code"?}`
pub(crate) fn error_result(
    code: ResultCode,
    message: &str,
    details: Option<&str>,
    status: Option<u16>,
) -> String {
    let mut error = vec![
        ("code", json::quote(&code.to_string())),
        ("message", json::quote(message)),
    ];
    error.extend(details.map(|details| ("details", details.to_string())));
    let mut members = vec![("ok", "false".to_string()), ("error", json::object(&error))];
    members.extend(status.map(|status| ("status_code", status.to_string())));
    json::object(&members)
}

fn members_ok(
    status: Option<u16>,
    body: &ToolBody,
    max_bytes: usize,
) -> Vec<(&'static str, String)> {
    let mut members = vec![("ok", "true".to_string())];
    members.extend(status.map(|status| ("status_code", status.to_string())));
    members.extend(data(body, "data", max_bytes));
    members
}

/// The body under `key`: JSON unchanged, other bodies as text. A body of more than `max_bytes`
/// bytes is cut to text and marked.
fn data(body: &ToolBody, key: &'static str, max_bytes: usize) -> Vec<(&'static str, String)> {
    if body.bytes.len() > max_bytes {
        let mut members = vec![
            (key, json::quote(&lossy_prefix(&body.bytes, max_bytes))),
            ("truncated", "true".to_string()),
        ];
        members.extend(
            body.original_bytes
                .map(|bytes| ("original_bytes", bytes.to_string())),
        );
        return members;
    }
    let value = match std::str::from_utf8(&body.bytes) {
        Ok(text) if text.trim_ascii().is_empty() => "null".to_string(),
        Ok(text) => match json::checked(text) {
            Some(json) => json.to_string(),
            None => json::quote(text),
        },
        Err(_) => json::quote(&String::from_utf8_lossy(&body.bytes)),
    };
    vec![(key, value)]
}

/// Returns the first `max` bytes, without a character that would be split.
fn lossy_prefix(bytes: &[u8], max: usize) -> String {
    let mut end = max.min(bytes.len());
    // A UTF-8 character has at most three continuation bytes.
    for _ in 0..3 {
        match bytes.get(end) {
            Some(byte) if byte & 0b1100_0000 == 0b1000_0000 && end > 0 => end -= 1,
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
