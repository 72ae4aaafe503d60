//! Feeds of a descriptor: where each is, and for how long an answer holds.
//!
//! Not here: fetching one.
//!
//! Invariant: a feed's path knows the agent, and nothing else.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_crds::decode_part;

use super::members::{ByName, Reader};
use crate::Code;
use crate::diagnostics::finding::Finding;
use crate::names;
use crate::surface::template;

#[derive(Clone, Debug)]
pub(crate) struct DescribedFeed {
    pub path: String,
    /// Seconds.
    pub ttl: u64,
}

pub(super) fn read(reader: &mut Reader, written: Option<&RawValue>) -> ByName<DescribedFeed> {
    reader.items(written, "feeds", Code::InvalidFeed, |raw, _, _| feed(raw))
}

fn feed(raw: &RawValue) -> Result<DescribedFeed, Finding> {
    #[derive(Deserialize)]
    struct FeedOnPaper {
        path: Option<String>,
        ttl: Option<u64>,
    }
    let at = ["spec", "descriptor", "feeds", "[]"];
    let paper: FeedOnPaper = decode_part("Surface", &at, raw.get())
        .map_err(|error| Finding::new(error.field, Code::InvalidFeed, error.message))?;
    let path = paper.path.ok_or_else(|| {
        let message = "is missing: write the path that is fetched, such as /news";
        Finding::new("path", Code::InvalidFeed, message)
    })?;
    let placeholders = template::placeholders(&path)
        .map_err(|message| Finding::new("path", Code::InvalidFeed, message))?;
    if let Some(other) = placeholders.iter().find(|name| *name != names::CLAW_ID) {
        return Err(Finding::new(
            "path",
            Code::InvalidFeed,
            format!("has the placeholder {{{other}}}: a feed knows {{claw_id}} only"),
        ));
    }
    let ttl = paper.ttl.unwrap_or(60);
    if !(1..=86_400).contains(&ttl) {
        return Err(Finding::new(
            "ttl",
            Code::InvalidFeed,
            "must be between 1 and 86400: write how many seconds a copy is good for",
        ));
    }
    Ok(DescribedFeed { path, ttl })
}
