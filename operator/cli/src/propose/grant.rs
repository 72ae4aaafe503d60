//! The proposed grants, with the number of calls behind each line.
//!
//! There are several grants only if one cannot hold all entries. Not here: which limits follow from
//! the calls ([`super::limits`]).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use toolcrib_bounds::count;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::{FeedRule, ToolGrant};

use super::evidence::{Evidence, ToolEvidence};
use super::limits::{ArgumentLimit, FEWEST_CALLS, Limit, OpenReason};
use super::offers::OfferedTool;
use crate::print::{self, Note, Notes};

/// Most entries of a grant, as its definition bounds them.
const MOST_ENTRIES: usize = 64;
/// Most tools of an entry, as the definition of ToolGrant bounds them.
const MOST_ALLOWED: usize = 256;

/// One used tool.
pub struct UsedTool<'e> {
    /// `ALIAS.TOOL`.
    pub called: &'e str,
    pub offer: &'e OfferedTool,
    pub evidence: &'e ToolEvidence,
    pub limits: Vec<ArgumentLimit>,
}

/// A grant as JSON, with its comments.
pub struct ProposedGrant {
    pub object: Value,
    pub notes: Notes,
}

impl ProposedGrant {
    /// Reads the grant as its kind.
    pub fn typed(&self) -> anyhow::Result<ToolGrant> {
        // Parsed from text, so that values of arguments keep their bytes.
        Ok(serde_json::from_str(&self.object.to_string())?)
    }
}

/// Returns the tools with at least one successful call, by name.
pub fn used<'e>(
    evidence: &'e Evidence,
    offers: &'e BTreeMap<String, OfferedTool>,
    bounds: bool,
) -> Vec<UsedTool<'e>> {
    let tools = evidence.tools.iter();
    let succeeded = tools.filter(|(_, tool)| tool.calls.succeeded > 0);
    succeeded
        .filter_map(|(called, evidence)| {
            let offer = offers.get(called)?;
            Some(UsedTool {
                called,
                offer,
                evidence,
                limits: super::limits::limits(evidence, offer, bounds),
            })
        })
        .collect()
}

/// Returns the grants of these tools and feeds.
pub fn grants(
    agent: &ObjectRef,
    name: &str,
    used: &[UsedTool<'_>],
    feeds: &[FeedRule],
) -> anyhow::Result<Vec<ProposedGrant>> {
    let entries = entries(agent, used);
    let feeds = serde_json::to_value(feeds)?;
    let chunks: Vec<&[Entry]> = entries.chunks(MOST_ENTRIES).collect();
    let grants = chunks.iter().enumerate().map(|(index, entries)| {
        let name = match index {
            0 => name.to_owned(),
            _ => format!("{name}-{}", index + 1),
        };
        let feeds = (index == 0).then_some(&feeds);
        grant(agent, &name, entries, feeds)
    });
    Ok(grants.collect())
}

fn grant(agent: &ObjectRef, name: &str, entries: &[Entry], feeds: Option<&Value>) -> ProposedGrant {
    let mut notes = Notes::new();
    let mut tools = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let at = path(&["spec", "tools", &index.to_string()]);
        for (below, note) in &entry.notes {
            notes.insert([at.as_slice(), below].concat(), note.clone());
        }
        tools.push(Value::Object(entry.object.clone()));
    }
    let mut spec = json!({"agents": [agent.name], "tools": tools});
    if let Some(Value::Array(feeds)) = feeds
        && !feeds.is_empty()
    {
        spec["feeds"] = json!(feeds);
        let note = Note {
            above: vec!["As granted now: a record does not name feeds.".to_owned()],
            beside: None,
        };
        notes.insert(path(&["spec", "feeds"]), note);
    }
    ProposedGrant {
        object: json!({
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": "ToolGrant",
            "metadata": {"name": name, "namespace": agent.namespace},
            "spec": spec,
        }),
        notes,
    }
}

/// One entry of `tools`. The paths of its notes are relative to it.
struct Entry {
    object: Map<String, Value>,
    notes: Notes,
}

/// Tools of a surface without limits share entries; each other tool has its own.
fn entries(agent: &ObjectRef, used: &[UsedTool<'_>]) -> Vec<Entry> {
    let mut open: BTreeMap<&ObjectRef, Vec<&UsedTool<'_>>> = BTreeMap::new();
    let mut limited: Vec<&UsedTool<'_>> = Vec::new();
    for tool in used {
        let is_open = |it: &ArgumentLimit| matches!(it.limit, Limit::Open(_));
        match tool.limits.iter().all(is_open) {
            true => open.entry(&tool.offer.surface).or_default().push(tool),
            false => limited.push(tool),
        }
    }
    let shared = open.values().flat_map(|tools| tools.chunks(MOST_ALLOWED));
    let mut entries: Vec<Entry> = shared.map(|tools| Entry::of(agent, tools)).collect();
    entries.extend(limited.iter().map(|tool| {
        let mut entry = Entry::of(agent, &[*tool]);
        entry.limit(tool);
        entry
    }));
    entries
}

impl Entry {
    fn of(agent: &ObjectRef, tools: &[&UsedTool<'_>]) -> Self {
        let mut entry = Self {
            object: Map::new(),
            notes: Notes::new(),
        };
        // The agent may have one surface under two aliases, and a grant does not know them.
        let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
        for tool in tools {
            *calls.entry(&tool.offer.name).or_default() += tool.evidence.calls.succeeded;
            entry.object.entry("surface").or_insert_with(|| {
                let surface = &tool.offer.surface;
                match surface.namespace == agent.namespace {
                    true => json!({"name": surface.name}),
                    false => json!({"name": surface.name, "namespace": surface.namespace}),
                }
            });
        }
        for (index, (_, calls)) in calls.iter().enumerate() {
            entry.beside(&["allow", &index.to_string()], calls_of(*calls));
        }
        let names: Vec<&str> = calls.into_keys().collect();
        entry.object.insert("allow".to_owned(), json!(names));
        let open = tools.iter().filter_map(|tool| open_arguments(tool));
        let above = open.collect();
        entry.notes.insert(
            Vec::new(),
            Note {
                above,
                beside: None,
            },
        );
        entry
    }

    fn limit(&mut self, tool: &UsedTool<'_>) {
        let calls = tool.evidence.calls.succeeded;
        let mut pins = Map::new();
        let mut properties = Map::new();
        let mut required = Vec::new();
        for argument in &tool.limits {
            let name = argument.name.as_str();
            let property = ["arguments", "schema", "properties", name];
            let resting = calls_of(argument.calls);
            match &argument.limit {
                Limit::Open(_) => continue,
                Limit::Pin(value) => {
                    pins.insert(name.to_owned(), value.clone());
                    self.beside(&["arguments", "pin", name], format!("{resting}, 1 value"));
                    continue;
                }
                Limit::OneOf(values) => {
                    let list: Vec<&Value> = values.iter().map(|(value, _)| value).collect();
                    properties.insert(name.to_owned(), json!({"enum": list}));
                    let note = format!("{resting}, {}", count(values.len(), "value"));
                    self.beside(&[&property[..], &["enum"]].concat(), note);
                    for (index, (_, calls)) in values.iter().enumerate() {
                        let index = index.to_string();
                        let at = [&property[..], &["enum", &index]].concat();
                        self.beside(&at, calls_of(*calls));
                    }
                }
                Limit::Range(low, high) => {
                    let range = json!({"minimum": low, "maximum": high});
                    properties.insert(name.to_owned(), range);
                    for bound in ["minimum", "maximum"] {
                        self.beside(&[&property[..], &[bound]].concat(), resting.clone());
                    }
                }
            }
            if argument.is_always_sent {
                let at = required.len().to_string();
                let note = format!("in all {}", calls_of(calls));
                self.beside(&["arguments", "schema", "required", &at], note);
                required.push(name);
            }
        }
        let mut arguments = Map::new();
        if !pins.is_empty() {
            arguments.insert("pin".to_owned(), Value::Object(pins));
        }
        if !properties.is_empty() {
            let mut schema = json!({"properties": properties});
            if !required.is_empty() {
                schema["required"] = json!(required);
            }
            arguments.insert("schema".to_owned(), schema);
        }
        self.object
            .insert("arguments".to_owned(), Value::Object(arguments));
    }

    fn beside(&mut self, at: &[&str], comment: String) {
        let note = self.notes.entry(path(at)).or_default();
        note.beside = Some(comment);
    }
}

/// Says which arguments of a tool stay open, and why.
fn open_arguments(tool: &UsedTool<'_>) -> Option<String> {
    let mut open: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut few = false;
    for argument in &tool.limits {
        let Limit::Open(reason) = argument.limit else {
            continue;
        };
        few |= reason == OpenReason::FewCalls;
        let name = print::plain(&argument.name).into_owned();
        open.entry(reason.words()).or_default().insert(name);
    }
    if open.is_empty() {
        return None;
    }
    let name = print::plain(&tool.offer.name);
    if few {
        return Some(format!(
            "{name}: all arguments are open: it has fewer than {FEWEST_CALLS} calls"
        ));
    }
    let parts = open.iter().map(|(reason, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("{} ({reason})", names.join(", "))
    });
    let parts: Vec<String> = parts.collect();
    Some(format!("{name}: open arguments: {}", parts.join("; ")))
}

/// Writes a number of calls.
pub fn calls_of(calls: u64) -> String {
    count(usize::try_from(calls).unwrap_or(usize::MAX), "call")
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
