//! The tools that one request showed the model, with the names it saw.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use toolcrib_dialect::{DeclaredTools, Dialect, Request, ToolDeclaration};

use crate::authority::Authority;
use crate::catalog::{Catalog, CatalogTool};
use crate::codes::ResultCode;
use crate::names::{alias, yielding_alias};

/// The presented tools, fixed for the turn, whatever is loaded meanwhile.
#[derive(Clone, Debug)]
pub struct Presented {
    offer: Arc<Offer>,
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

/// The tools of an authority with their aliases. Built once and shared by all requests, except
/// those whose runner has tools with the same names.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    tools: Vec<(String, Arc<CatalogTool>)>,
    by_alias: HashMap<String, usize>,
    by_canonical: HashMap<String, usize>,
    /// Tools of the files that the agent does not get. Keys are aliases and canonical names; values
    /// are the canonical name and the code that a call gets.
    denied: HashMap<String, (String, ResultCode)>,
    /// Declarations by dialect, built on first use.
    declared: [OnceLock<DeclaredTools>; Dialect::ALL.len()],
}

/// The owner of a call's name.
#[derive(Clone, Debug)]
pub enum Resolved<'a> {
    Managed(&'a Arc<CatalogTool>),
    Runner,
    /// A tool that this agent does not get, or no longer gets, by its canonical name. A call is
    /// answered with this code, never executed and never shown to the runner.
    Denied(&'a str, ResultCode),
    /// A name that neither the files nor the runner declares. A call is answered as one of an
    /// unknown tool and never shown to the runner.
    Unknown,
}

impl Offer {
    /// Offers the tools of `catalog` that `stands` accepts. A tool whose alias is the name of a
    /// runner's tool gets another alias, so names stay distinct.
    pub(crate) fn new(
        catalog: &Catalog,
        stands: impl Fn(&CatalogTool) -> bool,
        runner: &HashSet<String>,
    ) -> Self {
        let mut offer = Self::default();
        for tool in catalog.tools() {
            if !stands(tool) {
                offer.deny(tool.name(), ResultCode::PermissionDenied);
                continue;
            }
            let alias = offer.free_alias(tool.name(), runner);
            let at = offer.tools.len();
            offer.by_alias.insert(alias.clone(), at);
            offer.by_canonical.insert(tool.name().to_string(), at);
            offer.tools.push((alias, tool.clone()));
        }
        for withheld in catalog.withheld() {
            if let Some(code) = catalog.withheld_code(&withheld.tool) {
                offer.deny(&withheld.tool, code);
            }
        }
        offer
    }

    fn deny(&mut self, canonical: &str, code: ResultCode) {
        for name in [alias(canonical), canonical.to_string()] {
            self.denied.insert(name, (canonical.to_string(), code));
        }
    }

    fn free_alias(&self, canonical: &str, runner: &HashSet<String>) -> String {
        let taken = |name: &String| runner.contains(name) || self.by_alias.contains_key(name);
        let first = alias(canonical);
        if !taken(&first) {
            return first;
        }
        // There are at most as many attempts as names, so the range always has a free one.
        (0..=u32::MAX)
            .map(|attempt| yielding_alias(canonical, attempt))
            .find(|name| !taken(name))
            .unwrap_or(first)
    }

    /// The declaration: name, description and schema only.
    fn declared(&self, dialect: Dialect) -> DeclaredTools {
        let declare = || {
            let tools: Vec<ToolDeclaration> = self
                .tools
                .iter()
                .map(|(alias, tool)| ToolDeclaration {
                    name: alias.clone(),
                    description: tool.tool.description.clone(),
                    schema: tool.shown_schema.clone(),
                })
                .collect();
            DeclaredTools::new(dialect, &tools)
        };
        let at = match dialect {
            Dialect::OpenaiChat => 0,
            Dialect::AnthropicMessages => 1,
            Dialect::OpenaiResponses => 2,
        };
        self.declared[at].get_or_init(declare).clone()
    }
}

impl Presented {
    pub fn new(authority: &Authority, request: &Request) -> Self {
        let runner: HashSet<String> = request.tools().iter().cloned().collect();
        let offer = authority.offer();
        let yields = runner.iter().any(|name| offer.by_alias.contains_key(name));
        let offer = if yields {
            Arc::new(authority.offer_beside(&runner))
        } else {
            offer.clone()
        };
        Self {
            offer,
            runner,
            remembered: Arc::default(),
        }
    }

    /// The same, for a model that may still call `remembered` tools.
    pub fn remembering(self, remembered: Arc<RememberedTools>) -> Self {
        Self { remembered, ..self }
    }

    /// The tools for a client that has no tools of its own.
    pub fn alone(authority: &Authority) -> Self {
        Self {
            offer: authority.offer().clone(),
            runner: HashSet::new(),
            remembered: Arc::default(),
        }
    }

    /// Returns true if no managed tool is presented.
    pub fn is_empty(&self) -> bool {
        self.offer.tools.is_empty()
    }

    /// Returns true if the mediator answers calls of this request. Otherwise the request passes
    /// through.
    pub fn answers_calls(&self) -> bool {
        !(self.is_empty() && self.offer.denied.is_empty() && self.remembered.is_empty())
    }

    pub fn len(&self) -> usize {
        self.offer.tools.len()
    }

    /// Finds the owner of an alias or a canonical name. A name that the runner declares is always
    /// the runner's.
    pub fn resolve(&self, name: &str) -> Resolved<'_> {
        if self.runner.contains(name) {
            return Resolved::Runner;
        }
        match self
            .offer
            .by_alias
            .get(name)
            .or_else(|| self.offer.by_canonical.get(name))
        {
            Some(at) => Resolved::Managed(&self.offer.tools[*at].1),
            None => match self.denied(name) {
                Some((canonical, code)) => Resolved::Denied(canonical, code),
                // If no managed tool is presented, an unknown name is left to the runner.
                None if self.is_empty() => Resolved::Runner,
                None => Resolved::Unknown,
            },
        }
    }

    fn denied(&self, name: &str) -> Option<(&str, ResultCode)> {
        if let Some((canonical, code)) = self.offer.denied.get(name) {
            return Some((canonical, *code));
        }
        let canonical = self.remembered.canonical.get(name)?;
        Some((canonical, ResultCode::PermissionDenied))
    }

    /// Returns the new name for a call in the history, or `None` to keep its name. Managed tools
    /// get the name that is presented now; unknown names become valid for providers.
    pub fn new_name(&self, name: &str) -> Option<String> {
        let new_name = match self.offer.by_canonical.get(name) {
            _ if self.runner.contains(name) => return None,
            Some(at) => self.offer.tools[*at].0.clone(),
            None if self.offer.by_alias.contains_key(name) => return None,
            None if name.contains('.') || !valid(name) => alias(name),
            None => return None,
        };
        (new_name != name).then_some(new_name)
    }

    /// Returns the canonical name of a managed tool that is called by its alias.
    pub(crate) fn canonical(&self, name: &str) -> Option<String> {
        match self.resolve(name) {
            Resolved::Managed(tool) if tool.name() != name => Some(tool.name().to_string()),
            Resolved::Managed(_) | Resolved::Runner | Resolved::Denied(..) | Resolved::Unknown => {
                None
            }
        }
    }

    /// The alias and canonical name of each tool.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.offer
            .tools
            .iter()
            .map(|(alias, tool)| (alias.as_str(), tool.name()))
    }

    /// Each tool with its alias.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &CatalogTool)> {
        let tools = self.offer.tools.iter();
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
