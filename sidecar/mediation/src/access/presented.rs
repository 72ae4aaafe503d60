//! The tools that one request showed the model, with the names it saw.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use toolcrib_dialect::{DeclaredTools, Dialect, Request};

use crate::access::authority::Authority;
use crate::codes::ResultCode;
use crate::tools::names::alias;
use crate::tools::offer::{Offer, OfferedTool};

/// The presented tools, with the rules that allow their calls: fixed for the turn, whatever is loaded
/// or expires meanwhile.
#[derive(Clone, Debug)]
pub struct PresentedTools {
    offer: Arc<Offer>,
    at: Timestamp,
    runner: HashSet<String>,
    remembered: Arc<RememberedTools>,
}

/// Tools that earlier requests presented, which a model may still call.
#[derive(Clone, Debug, Default)]
pub struct RememberedTools {
    /// Canonical names, by alias and by canonical name.
    canonical: HashMap<String, String>,
}

impl RememberedTools {
    pub fn insert(&mut self, alias: &str, canonical: &str) {
        for name in [alias, canonical] {
            self.canonical
                .insert(name.to_string(), canonical.to_string());
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.canonical.contains_key(name)
    }

    /// Counts names; most tools have two.
    pub fn len(&self) -> usize {
        self.canonical.len()
    }

    pub fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }
}

/// The owner of a call's name.
#[derive(Clone, Debug)]
pub enum NameOwner<'a> {
    Managed(&'a Arc<OfferedTool>),
    Runner,
    /// A tool that this agent does not get, or no longer gets, by its canonical name. A call is
    /// answered with this code, never executed and never shown to the runner.
    Denied(&'a str, ResultCode),
    /// A name that neither the files nor the runner declares. A call is answered as one of an
    /// unknown tool and never shown to the runner.
    Unknown,
}

impl PresentedTools {
    pub fn new(authority: &Authority, request: &Request, now: Timestamp) -> Self {
        let runner: HashSet<String> = request.tools().iter().cloned().collect();
        let offer = authority.offer(now);
        let yields = runner.iter().any(|name| offer.has_alias(name));
        let offer = if yields {
            Arc::new(offer.beside(&runner))
        } else {
            offer
        };
        Self {
            offer,
            at: now,
            runner,
            remembered: Arc::default(),
        }
    }

    /// The same, for a model that may still call `remembered` tools.
    pub fn remembering(self, remembered: Arc<RememberedTools>) -> Self {
        Self { remembered, ..self }
    }

    /// The tools for a client that has no tools of its own.
    pub fn alone(authority: &Authority, now: Timestamp) -> Self {
        Self {
            offer: authority.offer(now),
            at: now,
            runner: HashSet::new(),
            remembered: Arc::default(),
        }
    }

    /// The time at which the tools were presented.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns true if no managed tool is presented.
    pub fn is_empty(&self) -> bool {
        self.offer.tools().is_empty()
    }

    /// Returns true if the mediator answers calls of this request. Otherwise the request passes
    /// through.
    pub fn answers_calls(&self) -> bool {
        !(self.is_empty() && !self.offer.denies_tools() && self.remembered.is_empty())
    }

    pub fn len(&self) -> usize {
        self.offer.tools().len()
    }

    /// Finds the owner of an alias or a canonical name. A name that the runner declares is always
    /// the runner's.
    pub fn resolve(&self, name: &str) -> NameOwner<'_> {
        if self.runner.contains(name) {
            return NameOwner::Runner;
        }
        match self.offer.tool(name) {
            Some(tool) => NameOwner::Managed(tool),
            None => match self.denied(name) {
                Some((canonical, code)) => NameOwner::Denied(canonical, code),
                // If no managed tool is presented, an unknown name is left to the runner.
                None if self.is_empty() => NameOwner::Runner,
                None => NameOwner::Unknown,
            },
        }
    }

    fn denied(&self, name: &str) -> Option<(&str, ResultCode)> {
        if let Some(denied) = self.offer.denied(name) {
            return Some(denied);
        }
        let canonical = self.remembered.canonical.get(name)?;
        Some((canonical, ResultCode::PermissionDenied))
    }

    /// Returns the new name for a call in the history, or `None` to keep its name. Managed tools
    /// get the name that is presented now; unknown names become valid for providers.
    pub fn new_name(&self, name: &str) -> Option<String> {
        let new_name = match self.offer.alias(name) {
            _ if self.runner.contains(name) => return None,
            Some(alias) => alias.to_string(),
            None if self.offer.has_alias(name) => return None,
            None if name.contains('.') || !valid(name) => alias(name),
            None => return None,
        };
        (new_name != name).then_some(new_name)
    }

    /// Returns the canonical name of a managed tool that is called by its alias.
    pub(crate) fn canonical(&self, name: &str) -> Option<String> {
        match self.resolve(name) {
            NameOwner::Managed(tool) if tool.name() != name => Some(tool.name().to_string()),
            NameOwner::Managed(_)
            | NameOwner::Runner
            | NameOwner::Denied(..)
            | NameOwner::Unknown => None,
        }
    }

    /// Returns false if this JSON text has no string that is the name of a presented tool. Fast: may
    /// also return true for other texts.
    pub(crate) fn may_name_a_tool(&self, json: &str) -> bool {
        self.offer.may_name_a_tool(json)
    }

    /// Each tool with its alias.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &OfferedTool)> {
        let tools = self.offer.tools().iter();
        tools.map(|(alias, tool)| (alias.as_str(), &**tool))
    }

    /// The declarations that are appended to the runner's tools.
    pub(crate) fn declared(&self, dialect: Dialect) -> DeclaredTools {
        self.offer.declared(dialect)
    }
}

fn valid(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
