//! Detects fabricated calls: calls of managed tools in the history that the runner sent.
//!
//! Hidden rounds never reach a runner, so calls of managed tools in a runner's history were not
//! made by the mediator. The history goes to the model unchanged; with the count the record shows
//! that none of these calls was executed here.

use std::collections::BTreeSet;

use toolcrib_dialect::{HistoryPart, Request, history_item};

use crate::access::presented::{NameOwner, PresentedTools};

/// Counts the fabricated calls. Items that contain no name of a managed tool are not decoded.
pub fn fabricated_calls(request: &Request, presented: &PresentedTools) -> usize {
    let beginnings = beginnings(presented);
    let suspicious = |item: &&str| beginnings.iter().any(|it| item.contains(it));
    request
        .history()
        .filter(suspicious)
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

/// Returns the prefixes, as they stand in JSON, of all names of managed tools. There are few, since
/// tools of one surface share a prefix.
fn beginnings(presented: &PresentedTools) -> BTreeSet<String> {
    let up_to = |name: &str, mark: &str| {
        let end = name.find(mark).map_or(name.len(), |at| at + mark.len());
        format!("\"{}", &name[..end])
    };
    presented
        .names()
        .flat_map(|(alias, canonical)| [up_to(alias, "__"), up_to(canonical, ".")])
        .collect()
}
