//! Detects fabricated calls: calls of managed tools in the history that the runner sent.
//!
//! Hidden rounds never reach a runner, so calls of managed tools in a runner's history were not
//! made by the mediator. The history goes to the model unchanged; with the count the record shows
//! that none of these calls was executed here.

use toolcrib_dialect::{HistoryPart, Request, history_item};

use crate::access::presented::{NameOwner, PresentedTools};

/// Counts the fabricated calls. Items that contain no name of a managed tool are not decoded.
pub fn fabricated_calls(request: &Request, presented: &PresentedTools) -> usize {
    request
        .history()
        .filter(|item| presented.may_name_a_tool(item))
        // Items that cannot be decoded are refused where the request is decoded.
        .filter_map(|item| history_item(request.dialect(), item).ok())
        .flat_map(|item| item.parts)
        .filter(|part| match part {
            HistoryPart::Call { name, .. } => {
                matches!(presented.resolve(name), NameOwner::Managed(_))
            }
            HistoryPart::Text(_) | HistoryPart::Result { .. } | HistoryPart::Other(_) => false,
        })
        .count()
}
