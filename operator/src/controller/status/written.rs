//! The outcome of writing an agent's objects, for its status.

use toolcrib_compile::{FeedSummary, ToolSummary};
use toolcrib_crds::{NOTHING_WRITTEN, StateReason, WithheldStatus};

/// Limits the bytes of the name of a withheld item.
pub(super) const MAX_NAME: usize = 256;

/// The outcome of all writes. The texts are for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Conflict(String),
    Failed(String),
}

impl WriteOutcome {
    /// Returns the tools and feeds as withheld, for an agent none of whose objects was ever written.
    pub(super) fn withheld(
        &self,
        tools: &[ToolSummary],
        feeds: &[FeedSummary],
    ) -> Vec<WithheldStatus> {
        let reason = match self {
            Self::Done => return Vec::new(),
            Self::Conflict(_) => StateReason::Conflict,
            Self::Failed(_) => StateReason::ApplyFailed,
        };
        let tools = tools.iter().map(|tool| tool.name.clone());
        let feeds = feeds.iter().map(|feed| format!("feed {}", feed.name));
        tools
            .chain(feeds)
            .map(|name| WithheldStatus {
                name: toolcrib_bounds::cut(&name, MAX_NAME).into_owned(),
                reason: reason.as_str().to_owned(),
                message: Some(NOTHING_WRITTEN.to_owned()),
            })
            .collect()
    }
}
