//! The two closed vocabularies: codes in results for the model, codes in errors for the
//! runner.

use std::fmt;

use toolcrib_dialect::error_body;
use toolcrib_dialect::{Dialect, DialectError, ErrorShape, error_events};

/// The reason for which a call has no good result; `error.code` of the result that the model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResultCode {
    InvalidArguments,
    SchemaValidation,
    /// The arguments meet no rule of the grants that give the tool.
    ConditionFailed,
    /// A pinned argument is left out, and the rules have several values for it.
    AmbiguousArguments,
    /// The rules that the call meets have allowed as many calls as their rates say.
    RateLimited,
    /// A budget of the agent has no call left in its period.
    QuotaExhausted,
    PermissionDenied,
    RetriesExhausted,
    /// A person denied the call, or nobody decided on it before its approval expired.
    ApprovalDenied,
    /// Nobody has decided on the call yet. The same call can be made again.
    ApprovalPending,
    /// The call needs an approval, and its arguments are too large for a person to review.
    ApprovalTooLarge,
    /// Too many calls wait for approvals.
    TooManyPending,
    /// People denied the agent's calls several times within an hour.
    TooManyDenied,
    Timeout,
    Canceled,
    /// The service answered with this HTTP status.
    Http(u16),
    McpError,
    ToolError,
    DuplicateToolCall,
    MixedToolOrder,
    TerminalOnSuccessOrder,
    ToolBudgetExhausted,
    UnsupportedTool,
    UnsupportedRequirement,
    RequestFailed,
}

impl ResultCode {
    /// All codes but those of HTTP statuses.
    pub const NAMED: [ResultCode; 24] = [
        ResultCode::InvalidArguments,
        ResultCode::SchemaValidation,
        ResultCode::ConditionFailed,
        ResultCode::AmbiguousArguments,
        ResultCode::RateLimited,
        ResultCode::QuotaExhausted,
        ResultCode::PermissionDenied,
        ResultCode::RetriesExhausted,
        ResultCode::ApprovalDenied,
        ResultCode::ApprovalPending,
        ResultCode::ApprovalTooLarge,
        ResultCode::TooManyPending,
        ResultCode::TooManyDenied,
        ResultCode::Timeout,
        ResultCode::Canceled,
        ResultCode::McpError,
        ResultCode::ToolError,
        ResultCode::DuplicateToolCall,
        ResultCode::MixedToolOrder,
        ResultCode::TerminalOnSuccessOrder,
        ResultCode::ToolBudgetExhausted,
        ResultCode::UnsupportedTool,
        ResultCode::UnsupportedRequirement,
        ResultCode::RequestFailed,
    ];

    /// Codes of calls that were denied and never sent; a wrong call has other codes.
    pub const DENIALS: [ResultCode; 11] = [
        ResultCode::PermissionDenied,
        ResultCode::ConditionFailed,
        ResultCode::RateLimited,
        ResultCode::QuotaExhausted,
        ResultCode::ApprovalDenied,
        ResultCode::ApprovalPending,
        ResultCode::ApprovalTooLarge,
        ResultCode::TooManyPending,
        ResultCode::TooManyDenied,
        ResultCode::UnsupportedTool,
        ResultCode::UnsupportedRequirement,
    ];
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResultCode::InvalidArguments => "invalid_arguments",
            ResultCode::SchemaValidation => "schema_validation",
            ResultCode::ConditionFailed => "condition_failed",
            ResultCode::AmbiguousArguments => "ambiguous_arguments",
            ResultCode::RateLimited => "rate_limited",
            ResultCode::QuotaExhausted => "quota_exhausted",
            ResultCode::PermissionDenied => "permission_denied",
            ResultCode::RetriesExhausted => "retries_exhausted",
            ResultCode::ApprovalDenied => "approval_denied",
            ResultCode::ApprovalPending => "approval_pending",
            ResultCode::ApprovalTooLarge => "approval_too_large",
            ResultCode::TooManyPending => "too_many_pending",
            ResultCode::TooManyDenied => "too_many_denied",
            ResultCode::Timeout => "timeout",
            ResultCode::Canceled => "canceled",
            ResultCode::Http(status) => return write!(f, "http_{status}"),
            ResultCode::McpError => "mcp_error",
            ResultCode::ToolError => "tool_error",
            ResultCode::DuplicateToolCall => "duplicate_tool_call",
            ResultCode::MixedToolOrder => "mixed_tool_order",
            ResultCode::TerminalOnSuccessOrder => "terminal_on_success_order",
            ResultCode::ToolBudgetExhausted => "tool_budget_exhausted",
            ResultCode::UnsupportedTool => "unsupported_tool",
            ResultCode::UnsupportedRequirement => "unsupported_requirement",
            ResultCode::RequestFailed => "request_failed",
        })
    }
}

/// The reason for which a runner gets no answer; `error.code` of its error body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunnerCode {
    Unauthorized,
    ManifestBroken,
    AccessWithdrawn,
    /// The Agent object says `suspend: true`.
    AgentSuspended,
    ModelNotAllowed,
    NNotSupported,
    FieldRefused,
    TotalTimeout,
    BudgetExhausted,
    /// A budget of the agent has nothing left in its period.
    QuotaExhausted,
    NoUsableKey,
    /// No connection to a provider, or a connection that broke off.
    UpstreamUnreachable,
    /// A provider was reached and answered with an error.
    UpstreamError,
    /// A provider's answer cannot be used.
    UpstreamMalformed,
    Overloaded,
    UnknownToolChoice,
    ModelMissing,
    DialectUnsupported,
    /// The body cannot be decoded in the dialect.
    InvalidRequest,
    /// Neither the disk nor stdout accepts another line.
    RecordUnavailable,
    /// No route has this method and path.
    NotFound,
    /// The request would open a WebSocket.
    WebsocketNotSupported,
    /// The pod's name cannot be the agent's identity.
    IdentityRefused,
}

impl RunnerCode {
    pub const ALL: [RunnerCode; 23] = [
        RunnerCode::Unauthorized,
        RunnerCode::ManifestBroken,
        RunnerCode::AccessWithdrawn,
        RunnerCode::AgentSuspended,
        RunnerCode::ModelNotAllowed,
        RunnerCode::NNotSupported,
        RunnerCode::FieldRefused,
        RunnerCode::TotalTimeout,
        RunnerCode::BudgetExhausted,
        RunnerCode::QuotaExhausted,
        RunnerCode::NoUsableKey,
        RunnerCode::UpstreamUnreachable,
        RunnerCode::UpstreamError,
        RunnerCode::UpstreamMalformed,
        RunnerCode::Overloaded,
        RunnerCode::UnknownToolChoice,
        RunnerCode::ModelMissing,
        RunnerCode::DialectUnsupported,
        RunnerCode::InvalidRequest,
        RunnerCode::RecordUnavailable,
        RunnerCode::NotFound,
        RunnerCode::WebsocketNotSupported,
        RunnerCode::IdentityRefused,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RunnerCode::Unauthorized => "unauthorized",
            RunnerCode::ManifestBroken => "manifest_broken",
            RunnerCode::AccessWithdrawn => "access_withdrawn",
            RunnerCode::AgentSuspended => "agent_suspended",
            RunnerCode::ModelNotAllowed => "model_not_allowed",
            RunnerCode::NNotSupported => "n_not_supported",
            RunnerCode::FieldRefused => "field_refused",
            RunnerCode::TotalTimeout => "total_timeout",
            RunnerCode::BudgetExhausted => "budget_exhausted",
            RunnerCode::QuotaExhausted => "quota_exhausted",
            RunnerCode::NoUsableKey => "no_usable_key",
            RunnerCode::UpstreamUnreachable => "upstream_unreachable",
            RunnerCode::UpstreamError => "upstream_error",
            RunnerCode::UpstreamMalformed => "upstream_malformed",
            RunnerCode::Overloaded => "overloaded",
            RunnerCode::UnknownToolChoice => "unknown_tool_choice",
            RunnerCode::ModelMissing => "model_missing",
            RunnerCode::DialectUnsupported => "dialect_unsupported",
            RunnerCode::InvalidRequest => "invalid_request",
            RunnerCode::RecordUnavailable => "record_unavailable",
            RunnerCode::NotFound => "not_found",
            RunnerCode::WebsocketNotSupported => "websocket_not_supported",
            RunnerCode::IdentityRefused => "identity_refused",
        }
    }

    pub fn status(self) -> u16 {
        match self {
            RunnerCode::Unauthorized => 401,
            RunnerCode::AccessWithdrawn
            | RunnerCode::AgentSuspended
            | RunnerCode::ModelNotAllowed
            | RunnerCode::IdentityRefused => 403,
            RunnerCode::NNotSupported
            | RunnerCode::FieldRefused
            | RunnerCode::UnknownToolChoice
            | RunnerCode::ModelMissing
            | RunnerCode::DialectUnsupported
            | RunnerCode::InvalidRequest => 400,
            RunnerCode::NotFound => 404,
            // Clients with another transport change to it at this status, without further attempts.
            RunnerCode::WebsocketNotSupported => 426,
            RunnerCode::QuotaExhausted => 429,
            RunnerCode::TotalTimeout
            | RunnerCode::BudgetExhausted
            | RunnerCode::UpstreamUnreachable
            | RunnerCode::UpstreamError
            | RunnerCode::UpstreamMalformed => 502,
            RunnerCode::ManifestBroken
            | RunnerCode::NoUsableKey
            | RunnerCode::Overloaded
            | RunnerCode::RecordUnavailable => 503,
        }
    }
}

impl RunnerCode {
    /// Returns what to do about the error, for the person who reads the program's log. Empty if the
    /// advice depends on the request; the message then carries it.
    fn advice(self) -> &'static str {
        match self {
            RunnerCode::Unauthorized => "use the address and key that the environment holds",
            RunnerCode::ManifestBroken => "`kubectl describe agent` says what is wrong",
            RunnerCode::AccessWithdrawn => {
                "ask the owner of the Agent to restore it, and then to delete this pod if the Agent was created again"
            }
            RunnerCode::AgentSuspended => {
                "ask the owner of the Agent to run `kubectl toolcrib resume`"
            }
            RunnerCode::NNotSupported => "leave `n` out, or ask several times",
            RunnerCode::FieldRefused => "leave it out",
            RunnerCode::IdentityRefused => {
                "give the pod a name without dots, or have spec.identity of the Agent set to Agent"
            }
            RunnerCode::TotalTimeout => "ask for less at once, or have policy.totalTimeout raised",
            RunnerCode::BudgetExhausted => "ask for less at once, or have policy.maxRounds raised",
            RunnerCode::QuotaExhausted => {
                "try again then, or ask the owner of the Agent object for a higher budget"
            }
            RunnerCode::NoUsableKey => {
                "try again later, or have a key of the provider corrected or added"
            }
            RunnerCode::UpstreamUnreachable => "try again; the mediator's log has the cause",
            RunnerCode::UnknownToolChoice => "name a tool of the request, or one that is granted",
            RunnerCode::DialectUnsupported => "call the API that it speaks, or name another model",
            RunnerCode::InvalidRequest => "correct the request and send it whole",
            RunnerCode::WebsocketNotSupported => "send the same request with POST over HTTP",
            RunnerCode::ModelNotAllowed
            | RunnerCode::ModelMissing
            | RunnerCode::UpstreamError
            | RunnerCode::UpstreamMalformed
            | RunnerCode::Overloaded
            | RunnerCode::RecordUnavailable
            | RunnerCode::NotFound => "",
        }
    }
}

/// Describes a provider's status and what to do about it, for the program and for the log.
pub fn upstream_status(status: u16) -> String {
    let cure = match status {
        401 | 403 => "check the provider's key, and that it may use the model",
        402 => "check the provider's account: it asks for payment",
        404 => "check the model's name and the provider's address",
        408 | 500..=599 => "look at the provider's status",
        429 => "ask less often, or have the provider's limits raised",
        _ => "the provider refuses the request: check the model's name and what the model takes",
    };
    format!("answered with status {status}: {cure}")
}

/// Added to the error of a turn that called services.
const CALLED: &str = "services were called before it, and the same request would call them \
    again: see what they did before it is sent again";

/// An error for the runner. Its text is for people, says what happened and what to do, and names no
/// host or secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RunnerError {
    pub code: RunnerCode,
    what: String,
    after_calls: bool,
}

impl fmt::Display for RunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let (advice, called) = match (self.after_calls, self.code) {
            (false, code) => (code.advice(), ""),
            // After calls, the advice must not be to try again.
            (true, RunnerCode::UpstreamUnreachable) => ("the mediator's log has the cause", CALLED),
            (true, RunnerCode::NoUsableKey) => {
                ("have a key of the provider corrected or added", CALLED)
            }
            (true, code) => (code.advice(), CALLED),
        };
        for said in [advice, called] {
            if !said.is_empty() {
                write!(f, "; {said}")?;
            }
        }
        Ok(())
    }
}

impl RunnerError {
    /// `what` says what happened; the code adds what to do about it.
    pub fn new(code: RunnerCode, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            after_calls: false,
        }
    }

    /// The whole request took too long.
    pub fn total_timeout(limit_ms: u64) -> Self {
        let what = format!("the turn took longer than {limit_ms} ms");
        Self::new(RunnerCode::TotalTimeout, what)
    }

    /// The provider answered with this HTTP status.
    pub fn upstream_error(status: u16) -> Self {
        let what = format!("the provider {}", upstream_status(status));
        Self::new(RunnerCode::UpstreamError, what)
    }

    /// Marks the error as one of a turn that called services before it.
    pub(crate) fn after_calls(self) -> Self {
        Self {
            after_calls: true,
            ..self
        }
    }

    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// The error as the JSON body of an HTTP response in this dialect.
    pub fn body(&self, dialect: Dialect) -> Vec<u8> {
        self.shaped(|shape| error_body(dialect, shape))
    }

    /// The error as events on a stream that has begun, with the stream's terminator.
    pub fn events(&self, dialect: Dialect) -> Vec<u8> {
        self.shaped(|shape| error_events(dialect, shape))
    }

    pub(crate) fn shaped<T>(&self, write: impl FnOnce(ErrorShape<'_>) -> T) -> T {
        write(ErrorShape {
            status: self.status(),
            code: self.code.name(),
            message: &self.to_string(),
        })
    }
}

/// Converts an error in the *runner's* request. An error in a model's reply is
/// [`crate::ModelFailure`].
impl From<DialectError> for RunnerError {
    fn from(error: DialectError) -> Self {
        let code = match &error {
            DialectError::FieldRefused(_)
            | DialectError::FieldReadsAs { .. }
            | DialectError::ProviderSide(_)
            | DialectError::HeldElsewhere(_) => RunnerCode::FieldRefused,
            DialectError::NotUtf8
            | DialectError::NotJson(_)
            | DialectError::Missing(_)
            | DialectError::WrongType { .. }
            | DialectError::Repeated(_)
            | DialectError::StreamTooLarge { .. }
            | DialectError::ReplyTooLarge { .. }
            | DialectError::StreamCut
            | DialectError::StreamError(_) => RunnerCode::InvalidRequest,
        };
        Self::new(code, error.to_string())
    }
}
