//! Calls of managed tools that the runner's own history claims.
//!
//! Hidden rounds never reach a runner, so whatever its history says of a managed tool was
//! written by somebody else. It is the runner's text and goes to the model as such; here it
//! is only noticed, so that the record can say that nothing of it was executed here.

use std::collections::BTreeSet;

use toolcrib_dialect::{HistoryPart, Request, history_item};

use crate::presented::{Presented, Resolved};

/// How many there are. Items without a managed tool's name are not read.
pub fn claimed_calls(request: &Request, presented: &Presented) -> usize {
    let beginnings = beginnings(presented);
    let suspicious = |item: &&str| beginnings.iter().any(|it| item.contains(it));
    request
        .history()
        .filter(suspicious)
        // What cannot be read is refused where it is needed.
        .filter_map(|item| history_item(request.dialect(), item).ok())
        .flat_map(|item| item.parts)
        .filter(|part| match part {
            HistoryPart::Call { name, .. } => {
                matches!(presented.resolve(name), Resolved::Managed(_))
            }
            _ => false,
        })
        .count()
}

/// What every spelling of a managed tool's name begins with, as it stands in JSON: few,
/// since tools of one surface share it.
fn beginnings(presented: &Presented) -> BTreeSet<String> {
    let up_to = |name: &str, mark: &str| {
        let end = name.find(mark).map_or(name.len(), |at| at + mark.len());
        format!("\"{}", &name[..end])
    };
    presented
        .names()
        .flat_map(|(alias, canonical)| [up_to(alias, "__"), up_to(canonical, ".")])
        .collect()
}
