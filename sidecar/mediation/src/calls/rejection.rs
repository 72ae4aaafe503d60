//! Results for calls that are not executed.

use toolcrib_dialect::json;

use crate::calls::call::Unready;
use crate::calls::call_state::CallResult;
use crate::calls::outcome::error_result;
use crate::calls::trace::DuplicateOf;
use crate::codes::ResultCode;
use crate::tools::offer::OfferedTool;

/// From this failure on, the schema is no longer repeated.
const RETRIES_EXHAUSTED_AT: u32 = 3;

/// The result for a call that cannot be executed. `failures` counts the failed validations of this
/// tool, this one included; the first two results repeat the schema, unless it is the conditions of
/// the grants that refuse the call.
pub(crate) fn unready_result(tool: &OfferedTool, why: &Unready, failures: u32) -> CallResult {
    let Unready(refusal) = why;
    if !why.is_in_arguments() {
        let result = error_result(refusal.code, &refusal.message, None, None);
        return CallResult::rejected(result, true);
    }
    let exhausted = failures >= RETRIES_EXHAUSTED_AT;
    let mut details = vec![("retryable", (!exhausted).to_string())];
    if let Some((path, rule)) = &refusal.place {
        details.push(("path", json::quote(path)));
        details.push(("rule", json::quote(rule)));
    }
    let is_condition =
        [ResultCode::ConditionFailed, ResultCode::AmbiguousArguments].contains(&refusal.code);
    if !exhausted && !is_condition {
        details.push(("schema", tool.shown_schema().to_owned()));
    }
    let code = if exhausted {
        ResultCode::RetriesExhausted
    } else {
        refusal.code
    };
    let details = json::object(&details);
    CallResult::rejected(
        error_result(code, &refusal.message, Some(&details), None),
        exhausted,
    )
}

/// The result for each call of a reply that was rejected as a whole.
pub(crate) fn order_result(code: ResultCode) -> String {
    let message = match code {
        ResultCode::TerminalOnSuccessOrder => {
            "nothing was run: a call that ends the turn must be the last of its message"
        }
        ResultCode::ToolBudgetExhausted => {
            "this call was not run: the turn has no rounds left; answer with what is known"
        }
        ResultCode::InvalidArguments
        | ResultCode::SchemaValidation
        | ResultCode::ConditionFailed
        | ResultCode::AmbiguousArguments
        | ResultCode::RateLimited
        | ResultCode::QuotaExhausted
        | ResultCode::PermissionDenied
        | ResultCode::RetriesExhausted
        | ResultCode::ApprovalDenied
        | ResultCode::ApprovalPending
        | ResultCode::ApprovalTooLarge
        | ResultCode::TooManyPending
        | ResultCode::TooManyDenied
        | ResultCode::Timeout
        | ResultCode::Canceled
        | ResultCode::Http(_)
        | ResultCode::McpError
        | ResultCode::ToolError
        | ResultCode::DuplicateToolCall
        | ResultCode::MixedToolOrder
        | ResultCode::UnsupportedTool
        | ResultCode::UnsupportedRequirement
        | ResultCode::RequestFailed => {
            "nothing was run: call the managed service tools first, alone, and other tools in a \
             later message, one kind at a time"
        }
    };
    error_result(code, message, None, None)
}

pub(crate) fn duplicate_result(name: &str, duplicate: DuplicateOf) -> String {
    let details = json::object(&[
        ("round", duplicate.round.to_string()),
        ("count", duplicate.count.to_string()),
    ]);
    error_result(
        ResultCode::DuplicateToolCall,
        &format!(
            "{name} was called with these arguments in round {}; it was not run again, \
             see that result",
            duplicate.round
        ),
        Some(&details),
        None,
    )
}

pub(crate) fn unknown_result(code: ResultCode, name: &str) -> String {
    let message = match code {
        ResultCode::PermissionDenied => format!("{name} is not granted"),
        ResultCode::UnsupportedRequirement => {
            format!("{name} has a restriction that this release does not know")
        }
        ResultCode::InvalidArguments
        | ResultCode::SchemaValidation
        | ResultCode::ConditionFailed
        | ResultCode::AmbiguousArguments
        | ResultCode::RateLimited
        | ResultCode::QuotaExhausted
        | ResultCode::RetriesExhausted
        | ResultCode::ApprovalDenied
        | ResultCode::ApprovalPending
        | ResultCode::ApprovalTooLarge
        | ResultCode::TooManyPending
        | ResultCode::TooManyDenied
        | ResultCode::Timeout
        | ResultCode::Canceled
        | ResultCode::Http(_)
        | ResultCode::McpError
        | ResultCode::ToolError
        | ResultCode::DuplicateToolCall
        | ResultCode::MixedToolOrder
        | ResultCode::TerminalOnSuccessOrder
        | ResultCode::ToolBudgetExhausted
        | ResultCode::UnsupportedTool
        | ResultCode::RequestFailed => format!("there is no tool `{name}`"),
    };
    error_result(code, &message, None, None)
}
