//! The reasons for which a call is denied at its dispatch.

use std::time::Duration;

use toolcrib_rules::Exhaustion;

use crate::access::approval::ApprovalNeed;
use crate::calls::outcome::{Certainty, ToolFailure, ToolOutcome, whole_seconds};
use crate::codes::ResultCode;

/// The reason for which a call may not run, or may no longer run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("{tool} is no longer granted")]
    Withdrawn { tool: String },
    #[error("{tool} is not granted at this time")]
    Closed { tool: String },
    #[error("{tool} is no longer granted with these arguments")]
    Unmet { tool: String },
    #[error(
        "{tool} was called as often as it is granted; the next call is allowed in {} s",
        whole_seconds(*.wait)
    )]
    RateLimited { tool: String, wait: Duration },
    #[error("{tool} was not called: {exhaustion}")]
    Exhausted {
        tool: String,
        exhaustion: Exhaustion,
        wait: Duration,
    },
    #[error("{tool} has changed since it was presented")]
    Changed { tool: String },
    #[error("{tool} needs an approval, which is not available")]
    NeedsApproval {
        tool: String,
        need: Box<ApprovalNeed>,
    },
    #[error("{tool} was approved, but other rules or policies ask for its approval now")]
    OtherApproval { tool: String },
    #[error("{tool} has a restriction that this release does not know")]
    UnknownRequirement { tool: String },
}

impl Denial {
    pub fn code(&self) -> ResultCode {
        match self {
            Denial::Withdrawn { .. }
            | Denial::Closed { .. }
            | Denial::Changed { .. }
            | Denial::NeedsApproval { .. }
            | Denial::OtherApproval { .. } => ResultCode::PermissionDenied,
            Denial::Unmet { .. } => ResultCode::ConditionFailed,
            Denial::RateLimited { .. } => ResultCode::RateLimited,
            Denial::Exhausted { .. } => ResultCode::QuotaExhausted,
            Denial::UnknownRequirement { .. } => ResultCode::UnsupportedRequirement,
        }
    }
}

impl From<Denial> for ToolFailure {
    fn from(denied: Denial) -> Self {
        let failure = ToolFailure::new(denied.code(), Certainty::NeverRan, denied.to_string());
        match denied {
            Denial::RateLimited { wait, .. } | Denial::Exhausted { wait, .. } => {
                failure.after(wait)
            }
            Denial::Withdrawn { .. }
            | Denial::Closed { .. }
            | Denial::Unmet { .. }
            | Denial::Changed { .. }
            | Denial::NeedsApproval { .. }
            | Denial::OtherApproval { .. }
            | Denial::UnknownRequirement { .. } => failure,
        }
    }
}

impl From<Denial> for ToolOutcome {
    fn from(denied: Denial) -> Self {
        ToolOutcome::Failed(denied.into())
    }
}
