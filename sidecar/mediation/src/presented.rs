//! What one request showed the model: the tools, under names of their own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use toolcrib_dialect::{DeclaredTools, Dialect, Request, ToolDeclaration};

use crate::authority::Authority;
use crate::catalog::{Catalog, CatalogTool};
use crate::codes::ResultCode;
use crate::names::{alias, yielding_alias};

/// Fixed for the turn, whatever is loaded meanwhile.
#[derive(Clone, Debug)]
pub struct Presented {
    offer: Arc<Offer>,
    runner: HashSet<String>,
    remembered: Arc<RememberedTools>,
}

/// Tools that earlier requests were shown, which a model may still call.
#[derive(Clone, Debug, Default)]
pub struct RememberedTools {
    /// Aliases and canonical names, each with the canonical name.
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

    /// Counts names, of which most tools have two.
    pub fn len(&self) -> usize {
        self.canonical.len()
    }

    pub fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }
}

/// The tools of an authority under their names. The same for every request but one whose
/// runner has tools of such names itself, so it is made once.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    tools: Vec<(String, Arc<CatalogTool>)>,
    by_alias: HashMap<String, usize>,
    by_canonical: HashMap<String, usize>,
    /// Tools of the files that the agent does not get: by alias and canonical name, the
    /// canonical name and the code that a call gets.
    denied: HashMap<String, (String, ResultCode)>,
    /// By dialect, when first asked for.
    declared: [OnceLock<DeclaredTools>; Dialect::ALL.len()],
}

/// Who a call's name means.
#[derive(Clone, Debug)]
pub enum Resolved<'a> {
    Managed(&'a Arc<CatalogTool>),
    Runner,
    /// A tool that this agent does not get, or not any more, by its canonical name: answered with
    /// this code, never executed, never shown to the runner.
    Denied(&'a str, ResultCode),
    /// A name that neither the files nor the runner declares: answered as an unknown tool, never
    /// shown to the runner.
    Nobody,
}

impl Offer {
    /// Offers the tools of `catalog` that `stands` does not take away. An alias yields to a
    /// runner's tool of the same name; the map stays injective.
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
        // At most as many tries as there are names, so the range always has a free one.
        (0..=u32::MAX)
            .map(|attempt| yielding_alias(canonical, attempt))
            .find(|name| !taken(name))
            .unwrap_or(first)
    }

    /// Name, description, schema; nothing else.
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

    /// The same to a model that may still call these.
    pub fn remembering(self, remembered: Arc<RememberedTools>) -> Self {
        Self { remembered, ..self }
    }

    /// The same to a client that has no tools of its own beside them.
    pub fn alone(authority: &Authority) -> Self {
        Self {
            offer: authority.offer().clone(),
            runner: HashSet::new(),
            remembered: Arc::default(),
        }
    }

    /// Whether no managed tool is shown.
    pub fn is_empty(&self) -> bool {
        self.offer.tools.is_empty()
    }

    /// Whether a call can be answered here. If not, the request passes through.
    pub fn answers_calls(&self) -> bool {
        !(self.is_empty() && self.offer.denied.is_empty() && self.remembered.is_empty())
    }

    pub fn len(&self) -> usize {
        self.offer.tools.len()
    }

    /// Alias or canonical name to whose it is. A runner's declared name is the
    /// runner's, whatever it looks like.
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
                // Without a tool of ours, an unknown name is the runner's affair.
                None if self.is_empty() => Resolved::Runner,
                None => Resolved::Nobody,
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

    /// The name to write for a call in the history, if it must be another than it is:
    /// managed names as they are presented now, unknown ones so that providers take them.
    pub fn spelling(&self, name: &str) -> Option<String> {
        let spelled = match self.offer.by_canonical.get(name) {
            _ if self.runner.contains(name) => return None,
            Some(at) => self.offer.tools[*at].0.clone(),
            None if self.offer.by_alias.contains_key(name) => return None,
            None if name.contains('.') || !valid(name) => alias(name),
            None => return None,
        };
        (spelled != name).then_some(spelled)
    }

    /// The canonical name of a managed tool that is called by its alias.
    pub(crate) fn canonical(&self, name: &str) -> Option<String> {
        match self.resolve(name) {
            Resolved::Managed(tool) if tool.name() != name => Some(tool.name().to_string()),
            Resolved::Managed(_) | Resolved::Runner | Resolved::Denied(..) | Resolved::Nobody => {
                None
            }
        }
    }

    /// Each tool's alias and canonical name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.offer
            .tools
            .iter()
            .map(|(alias, tool)| (alias.as_str(), tool.name()))
    }

    /// Each tool under the name that it is shown by.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &CatalogTool)> {
        let tools = self.offer.tools.iter();
        tools.map(|(alias, tool)| (alias.as_str(), &**tool))
    }

    /// What is appended to the runner's tools.
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
