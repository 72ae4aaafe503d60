//! `claw.describe`: what a service says of itself, read part by part.
//!
//! One tool that cannot be used must not take the others along, so each part is read by
//! itself and what is wrong becomes a finding. Unknown keys are kept (they count for the
//! digest) and mean nothing. Results are remembered, by the text's hash and by the object
//! that holds the text: one surface is compiled into many agents.
//!
//! Here: the parts together, and those that are one field. Reading order: [`members`] (how
//! a part is read), [`hidden`] (characters that nobody sees), [`versions`] (which parts count),
//! [`tools`] with [`http`], [`feeds`].
//! Not here: where the text comes from, and what an agent is given of it.
//!
//! Invariant: the same text gives the same descriptor; nothing that is wrong goes unsaid.

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
use members::{ByName, Members, Reader, member};
pub(crate) use tools::{DescribedTool, OtherArguments};
use versions::Version;

/// A descriptor that could be read, at least in part.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    /// `sha256:<hex>` of the normalized text.
    pub digest: String,
    /// An upper bound of the descriptor's memory, in bytes.
    pub weight: usize,
    pub description: String,
    pub tools: ByName<DescribedTool>,
    /// Something stands under `tools`, usable or not.
    pub declares_tools: bool,
    pub feeds: ByName<DescribedFeed>,
    pub endpoints: Vec<DescribedEndpoint>,
    pub skill: Option<Skill>,
    pub auth: Option<DescribedAuth>,
    pub mcp_path: Option<String>,
    /// Fields are relative to the descriptor. Findings of tools and feeds are among them.
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
    /// The variable that the credential usually stands in: the default key of the Secret.
    pub env: Option<String>,
    pub header: Option<String>,
}

/// Entries that are kept in memory; one is a few KiB to a few hundred.
const REMEMBERED: usize = 1024;
/// What they may weigh together. A descriptor that is in use is held by whoever uses it as well.
const REMEMBERED_WEIGHT: usize = 32 * 1024 * 1024;
static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

type Verdict = Result<Arc<Descriptor>, Finding>;

#[derive(Default)]
struct Memory {
    by_text: HashMap<String, Verdict>,
    /// The pointer keeps an object's address from being given to another.
    by_object: HashMap<Place, (Weak<dyn Any + Send + Sync>, Verdict)>,
    /// Of all entries, one that is remembered twice counted twice.
    weight: usize,
}

impl Memory {
    /// Makes room for one more entry. What is forgotten is read again.
    fn make_room(&mut self, weight: usize) {
        let many = self.by_object.len().max(self.by_text.len()) >= REMEMBERED;
        if many || self.weight.saturating_add(weight) > REMEMBERED_WEIGHT {
            *self = Self::default();
        }
        self.weight = self.weight.saturating_add(weight);
    }
}

/// An object's address, and a key in it.
type Place = (usize, String);

/// [`read`], of a text that `object` holds under `key`. Objects are shared and never change, so
/// the text of one that was read before is not even hashed.
pub(crate) fn read_of<T: Any + Send + Sync>(object: &Arc<T>, key: &str, text: &str) -> Verdict {
    let place: Place = (Arc::as_ptr(object).addr(), key.to_owned());
    let known = with_memory(|memory| {
        let (_, verdict) = memory.by_object.get(&place)?;
        Some(verdict.clone())
    });
    known.unwrap_or_else(|| {
        let verdict = read(text);
        with_memory(|memory| {
            memory.make_room(weight_of(&verdict));
            let object: Weak<T> = Arc::downgrade(object);
            memory.by_object.insert(place, (object, verdict.clone()));
        });
        verdict
    })
}

/// Reads a descriptor's text. `Err`: nothing of it can be used. A pure function whose
/// results are remembered.
fn read(text: &str) -> Verdict {
    let hash = sha256(text.as_bytes());
    let known = with_memory(|memory| memory.by_text.get(&hash).cloned());
    known.unwrap_or_else(|| {
        let verdict = descriptor(text).map(Arc::new);
        with_memory(|memory| {
            memory.make_room(weight_of(&verdict));
            memory.by_text.insert(hash, verdict.clone());
        });
        verdict
    })
}

fn weight_of(verdict: &Verdict) -> usize {
    verdict.as_ref().map_or(0, |descriptor| descriptor.weight)
}

fn with_memory<T>(use_it: impl FnOnce(&mut Memory) -> T) -> T {
    // A panic elsewhere leaves at worst an entry out.
    let mut memory = MEMORY.lock();
    use_it(memory.get_or_insert_default())
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
    let version = Version::of(&members)?;
    version.refuse_later_fields(&members, &mut reader);
    let auth = reader
        .field(&members, "auth")
        .map(|auth| version.auth(auth));
    let written = version.later(&members, "tools");
    let tools = tools::read(&mut reader, written);
    Ok(Descriptor {
        declares_tools: written.is_some_and(|list| !matches!(list.get(), "null" | "[]")),
        digest: format!("sha256:{}", sha256(normalized.text.as_bytes())),
        weight: toolcrib_bounds::weight(&normalized.text),
        description: reader.field(&members, "description").unwrap_or_default(),
        tools,
        feeds: feeds::read(&mut reader, member(&members, "feeds")),
        endpoints: reader.field(&members, "endpoints").unwrap_or_default(),
        skill: skill(&mut reader, &members),
        auth,
        mcp_path: mcp_path(&mut reader, version.later(&members, "mcp")),
        findings: reader.findings,
    })
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

    #[test]
    fn what_an_object_holds_is_read_once_and_never_taken_for_anothers() {
        let text = |name: &str| format!(r#"{{"version": 2, "description": "{name}"}}"#);
        let said = |object: &Arc<String>, key: &str, text: &str| {
            read_of(object, key, text).map(|read| read.description.clone())
        };
        let reed = Arc::new("reed".to_owned());
        assert_eq!(said(&reed, "a", &text("heron")), Ok("heron".to_owned()));
        assert_eq!(said(&reed, "b", &text("newt")), Ok("newt".to_owned()));
        // The object cannot change, so nobody looks.
        assert_eq!(said(&reed, "a", &text("toad")), Ok("heron".to_owned()));
        for number in 0..100 {
            let name = format!("otter-{number}");
            // Each goes as the next one comes, perhaps to the same place.
            let object = Arc::new(name.clone());
            assert_eq!(said(&object, "a", &text(&name)), Ok(name));
        }
    }
}
