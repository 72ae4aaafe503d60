//! Feeds of a descriptor: their paths, and how long an answer may be reused.
//!
//! Not here: fetching a feed.
//!
//! Invariant: the agent's name is the only placeholder of a feed's path.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_crds::decode_part;

use super::members::{ByName, Reader, known, members_of, missing};
use crate::Code;
use crate::diagnostics::finding::Finding;
use crate::names;
use crate::surface::template;

#[derive(Clone, Debug)]
pub(crate) struct DescribedFeed {
    pub path: String,
    /// Lifetime of an answer, in seconds.
    pub ttl: u64,
}

pub(super) fn read(reader: &mut Reader, written: Option<&RawValue>) -> ByName<DescribedFeed> {
    reader.items(written, "feeds", Code::InvalidFeed, |raw, at, _| {
        feed(raw, at)
    })
}

fn feed(raw: &RawValue, at: &str) -> Result<DescribedFeed, Finding> {
    #[derive(Deserialize)]
    struct FeedDeclaration {
        path: Option<String>,
        ttl: Option<u64>,
    }
    let place = ["spec", "descriptor", "feeds", "[]"];
    let declaration: FeedDeclaration = decode_part("Surface", &place, raw.get())
        .map_err(|error| Finding::new(error.field, Code::InvalidFeed, error.message))?;
    let path = declaration.path.ok_or_else(|| {
        let cure = "write the path that is fetched, such as /news";
        let keys = members_of(Some(raw));
        let message = missing("path", keys.keys(), &known(at), cure);
        Finding::new("path", Code::InvalidFeed, message)
    })?;
    let placeholders = template::placeholders(&path)
        .map_err(|message| Finding::new("path", Code::InvalidFeed, message))?;
    if let Some(other) = placeholders.iter().find(|name| *name != names::CLAW_ID) {
        return Err(Finding::new(
            "path",
            Code::InvalidFeed,
            format!(
                "has the placeholder {{{other}}}: a feed knows {{claw_id}} only: write {{claw_id}}, or a fixed path"
            ),
        ));
    }
    let ttl = declaration.ttl.unwrap_or(60);
    if !(1..=86_400).contains(&ttl) {
        return Err(Finding::new(
            "ttl",
            Code::InvalidFeed,
            "must be between 1 and 86400: write how many seconds a copy is good for",
        ));
    }
    Ok(DescribedFeed { path, ttl })
}
