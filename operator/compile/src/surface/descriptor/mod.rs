//! `claw.describe`: a service's description of itself, read part by part.
//!
//! An unusable tool must not affect the other tools, so each part is read by itself, and a fault
//! becomes a finding. Unknown keys are kept (they count for the digest) and ignored. Results are
//! cached, by the text's hash and by the object that holds the text: one surface is compiled into
//! many agents.
//!
//! Here: the descriptor as a whole, and the parts that are one field. Reading order: [`members`]
//! (reads a part), [`hidden`] (invisible characters), [`versions`] (the parts of each version),
//! [`tools`] with [`http`], [`feeds`]. Not here: the source of the text, and the parts that an
//! agent gets.
//!
//! Invariant: the same text gives the same descriptor, and every fault has a finding.

mod feeds;
pub(crate) mod hidden;
mod http;
mod members;
mod tools;
mod versions;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_crds::decode_part;

use crate::Code;
use crate::canonical::digest::sha256;
use crate::canonical::normalize::normalize;
use crate::diagnostics::finding::Finding;
pub(crate) use feeds::DescribedFeed;
use members::{ByName, Members, Reader, member, members_of};
pub(crate) use tools::{DescribedTool, OtherArguments};
use versions::Version;

/// A descriptor of which at least a part is usable.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    /// `sha256:<hex>` of the normalized text.
    pub digest: String,
    /// Upper bound of the memory in bytes.
    pub weight: usize,
    pub description: String,
    pub tools: ByName<DescribedTool>,
    /// Whether there is a value under `tools`, usable or not.
    pub declares_tools: bool,
    pub feeds: ByName<DescribedFeed>,
    pub endpoints: Vec<DescribedEndpoint>,
    pub skill: Option<Skill>,
    pub auth: Option<DescribedAuth>,
    pub mcp_path: Option<String>,
    /// Findings with fields relative to the descriptor, those of tools and feeds included.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DescribedEndpoint {
    #[serde(default)]
    pub method: String,
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub description: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Skill {
    /// A file of the descriptor's ConfigMap.
    Path(String),
    Text(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DescribedAuth {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The usual variable of the credential: the default key of the Secret.
    pub env: Option<String>,
    pub header: Option<String>,
}

impl Descriptor {
    /// Counts the weight. The texts of a descriptor are parts of `text`, and its findings quote it.
    fn count(&self, text: &str) -> usize {
        let refused = self.tools.values().filter_map(|tool| tool.as_ref().err());
        let refused = refused.chain(self.feeds.values().filter_map(|feed| feed.as_ref().err()));
        let found: usize = refused
            .chain(&self.findings)
            .map(|finding| ENTRY + finding.field.len() + finding.message.len())
            .sum();
        let entries = self.tools.len() + self.feeds.len();
        let endpoints = self.endpoints.capacity() * size_of::<DescribedEndpoint>();
        size_of::<Self>() + 2 * NODE + text.len() + entries * ENTRY + endpoints + found
    }
}

/// Bytes of one tool, feed or finding beside its texts: itself, in a map that may be half empty.
const ENTRY: usize = 1024;
/// Bytes of a map's first node, which has room for eleven entries.
const NODE: usize = 4096;

/// Limits the cached descriptors; one takes a few KiB to a few hundred.
const MAX_CACHED: usize = 2048;
/// Limits the bytes of all cached descriptors.
const MAX_CACHED_WEIGHT: usize = 32 * 1024 * 1024;
static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

type Verdict = Result<Arc<Descriptor>, Finding>;

#[derive(Default)]
struct Cache {
    by_text: HashMap<String, Verdict>,
    /// Shares the verdicts of `by_text`. The pointer keeps an object's address from being given to
    /// another.
    by_object: HashMap<TextKey, (Weak<dyn Any + Send + Sync>, Verdict)>,
    /// Weight of `by_text`.
    weight: usize,
}

impl Cache {
    fn insert_text(&mut self, hash: String, verdict: Verdict, weight: usize) {
        let full = self.by_text.len() >= MAX_CACHED;
        if full || self.weight.saturating_add(weight) > MAX_CACHED_WEIGHT {
            *self = Self::default();
        }
        self.weight = self.weight.saturating_add(weight);
        self.by_text.insert(hash, verdict);
    }

    fn insert_object(
        &mut self,
        place: TextKey,
        object: Weak<dyn Any + Send + Sync>,
        verdict: Verdict,
    ) {
        if self.by_object.len() >= MAX_CACHED {
            self.by_object.clear();
        }
        self.by_object.insert(place, (object, verdict));
    }
}

/// An object's address, and a key in it.
type TextKey = (usize, String);

/// Calls [`read`] with a text that `object` has under `key`. Objects are shared and never change, so
/// the text of a cached one is not even hashed.
pub(crate) fn read_of<T: Any + Send + Sync>(object: &Arc<T>, key: &str, text: &str) -> Verdict {
    let place: TextKey = (Arc::as_ptr(object).addr(), key.to_owned());
    let known = with_cache(|cache| {
        let (_, verdict) = cache.by_object.get(&place)?;
        Some(verdict.clone())
    });
    known.unwrap_or_else(|| {
        let verdict = read(text);
        let object: Weak<T> = Arc::downgrade(object);
        with_cache(|cache| cache.insert_object(place, object, verdict.clone()));
        verdict
    })
}

/// Reads a descriptor's text, and returns an error if no part of it is usable. A pure function with
/// a cache.
fn read(text: &str) -> Verdict {
    let hash = sha256(text.as_bytes());
    let known = with_cache(|cache| cache.by_text.get(&hash).cloned());
    known.unwrap_or_else(|| {
        let verdict = descriptor(text).map(Arc::new);
        let weight = match &verdict {
            Ok(descriptor) => descriptor.weight,
            Err(finding) => ENTRY + finding.field.len() + finding.message.len(),
        };
        with_cache(|cache| cache.insert_text(hash, verdict.clone(), weight));
        verdict
    })
}

fn with_cache<T>(use_it: impl FnOnce(&mut Cache) -> T) -> T {
    use_it(CACHE.lock().get_or_insert_default())
}

fn descriptor(text: &str) -> Result<Descriptor, Finding> {
    let mut reader = Reader::default();
    let normalized = normalize(text)
        .map_err(|error| Finding::new("", Code::DescriptorInvalid, error.to_string()))?;
    for number in &normalized.rewritten {
        reader.find(
            "",
            Code::NumberRewritten,
            format!(
                "holds the number {number}, which the API server would change: use fewer digits, or a string"
            ),
        );
    }
    let visible = hidden::without(&normalized.text, &mut reader);
    let members: Members = serde_json::from_str(visible.as_deref().unwrap_or(&normalized.text))
        .map_err(|_| {
            Finding::new(
                "",
                Code::DescriptorInvalid,
                "must be a JSON object: write {\"version\": 2, \"tools\": [...]}",
            )
        })?;
    reader.misspelt(&members, "");
    for part in ["auth", "mcp"] {
        reader.misspelt(&members_of(member(&members, part)), part);
    }
    let version = Version::of(&members)?;
    version.refuse_later_fields(&members, &mut reader);
    let auth = reader
        .field(&members, "auth")
        .map(|auth| version.auth(auth));
    let written = version.later(&members, "tools");
    let tools = tools::read(&mut reader, written);
    let mut descriptor = Descriptor {
        declares_tools: written.is_some_and(|list| !matches!(list.get(), "null" | "[]")),
        digest: format!("sha256:{}", sha256(normalized.text.as_bytes())),
        description: reader.field(&members, "description").unwrap_or_default(),
        tools,
        feeds: feeds::read(&mut reader, member(&members, "feeds")),
        endpoints: reader.field(&members, "endpoints").unwrap_or_default(),
        skill: skill(&mut reader, &members),
        auth,
        mcp_path: mcp_path(&mut reader, version.later(&members, "mcp")),
        findings: reader.findings,
        weight: 0,
    };
    descriptor.weight = descriptor.count(&normalized.text);
    Ok(descriptor)
}

fn skill(reader: &mut Reader, members: &Members) -> Option<Skill> {
    let text: Option<String> = reader.field(members, "skillText");
    let path: Option<String> = reader.field(members, "skill");
    text.map(Skill::Text).or(path.map(Skill::Path))
}

fn mcp_path(reader: &mut Reader, written: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Mcp {
        path: Option<String>,
    }
    let at = ["spec", "descriptor", "mcp"];
    let mcp: Mcp = match decode_part::<Option<Mcp>>("Surface", &at, written?.get()) {
        Ok(mcp) => mcp?,
        Err(error) => {
            let field = members::joined("mcp", &error.field);
            reader.find(&field, Code::DescriptorInvalid, error.message);
            return None;
        }
    };
    Some(mcp.path.unwrap_or_else(|| "/mcp".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the weight bounds the memory that stays allocated, and is not far above it.
    #[track_caller]
    fn check_weight(text: &str) {
        // The first read fills caches of the libraries.
        drop(descriptor(text));
        let mut read = None;
        let used = allocation_counter::measure(|| read = descriptor(text).ok());
        let kept = used.bytes_current.unsigned_abs();
        let weight = read.expect("is readable").weight as u64;
        assert!(kept < weight, "keeps {kept}, weighs {weight}");
        assert!(
            weight < 8 * kept + 16 * 1024,
            "keeps {kept}, weighs {weight}"
        );
    }

    #[test]
    fn the_weight_bounds_the_memory() {
        let list = |count: usize, entry: &dyn Fn(usize) -> String| {
            let entries: Vec<String> = (0..count).map(entry).collect();
            entries.join(",")
        };
        check_weight(r#"{"version": 2}"#);
        for count in [1, 12, 200] {
            let tools = list(count, &|at| {
                format!(
                    r#"{{"name": "t{at}", "description": "{}", "http": {{"method": "GET", "path": "/{at}"}},
                    "inputSchema": {{"type": "object", "properties": {{"a": {{"enum": ["x", "y"]}}}}}},
                    "annotations": {{"readOnly": true}}}}"#,
                    "d".repeat(at)
                )
            });
            check_weight(&format!(r#"{{"version": 2, "tools": [{tools}]}}"#));
            let refused = list(count, &|at| format!(r#"{{"name": "t{at}"}}"#));
            check_weight(&format!(
                r#"{{"version": 2, "tools": [{refused}], "feeds": [{refused}]}}"#
            ));
            let endpoints = list(count, &|_| "{}".to_owned());
            check_weight(&format!(r#"{{"version": 2, "endpoints": [{endpoints}]}}"#));
        }
    }

    #[test]
    fn the_text_of_an_object_is_read_once_and_not_confused_with_anothers() {
        let text = |name: &str| format!(r#"{{"version": 2, "description": "{name}"}}"#);
        let description = |object: &Arc<String>, key: &str, text: &str| {
            read_of(object, key, text).map(|read| read.description.clone())
        };
        let reed = Arc::new("reed".to_owned());
        assert_eq!(
            description(&reed, "a", &text("heron")),
            Ok("heron".to_owned())
        );
        assert_eq!(
            description(&reed, "b", &text("newt")),
            Ok("newt".to_owned())
        );
        // The object cannot change, so its text is not read again.
        assert_eq!(
            description(&reed, "a", &text("toad")),
            Ok("heron".to_owned())
        );
        for number in 0..100 {
            let name = format!("otter-{number}");
            // Each object is dropped when the next one is created, perhaps at the same address.
            let object = Arc::new(name.clone());
            assert_eq!(description(&object, "a", &text(&name)), Ok(name));
        }
    }
}
