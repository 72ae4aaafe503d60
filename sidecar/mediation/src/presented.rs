//! What one request showed the model: the tools, under names of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use toolcrib_dialect::{Request, ToolDeclaration};

use crate::authority::Authority;
use crate::catalog::CatalogTool;
use crate::codes::ResultCode;
use crate::names::{alias, yielding_alias};

/// Fixed for the turn, whatever is loaded meanwhile.
#[derive(Clone, Debug)]
pub struct Presented {
    tools: Vec<(String, Arc<CatalogTool>)>,
    by_alias: HashMap<String, usize>,
    by_canonical: HashMap<String, usize>,
    runner: HashSet<String>,
    withheld: HashMap<String, ResultCode>,
}

/// Who a call's name means.
#[derive(Clone, Debug)]
pub enum Resolved<'a> {
    Managed(&'a Arc<CatalogTool>),
    Runner,
    /// Nobody's: answered with this code, never executed, never shown to the runner.
    Nobody(ResultCode),
}

impl Presented {
    /// An alias yields to a runner's tool of the same name; the map stays injective.
    pub fn new(authority: &Authority, request: &Request) -> Self {
        let runner: HashSet<String> = request.tools().iter().cloned().collect();
        let mut presented = Self {
            tools: Vec::new(),
            by_alias: HashMap::new(),
            by_canonical: HashMap::new(),
            withheld: HashMap::new(),
            runner,
        };
        for tool in authority.offered() {
            let alias = presented.free_alias(tool.name());
            let at = presented.tools.len();
            presented.by_alias.insert(alias.clone(), at);
            presented.by_canonical.insert(tool.name().to_string(), at);
            presented.tools.push((alias, tool.clone()));
        }
        let catalog = authority.catalog();
        for withheld in catalog.withheld() {
            if let Some(code) = catalog.withheld_code(&withheld.tool) {
                presented.withheld.insert(alias(&withheld.tool), code);
                presented.withheld.insert(withheld.tool, code);
            }
        }
        presented
    }

    /// No managed tools: the request passes through.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Alias or canonical name to whose it is. A runner's declared name is the
    /// runner's, whatever it looks like.
    pub fn resolve(&self, name: &str) -> Resolved<'_> {
        if self.runner.contains(name) {
            return Resolved::Runner;
        }
        match self
            .by_alias
            .get(name)
            .or_else(|| self.by_canonical.get(name))
        {
            Some(at) => Resolved::Managed(&self.tools[*at].1),
            None => Resolved::Nobody(
                self.withheld
                    .get(name)
                    .copied()
                    .unwrap_or(ResultCode::UnsupportedTool),
            ),
        }
    }

    /// The name to write for a call in the history, if it must be another than it is:
    /// managed names as they are presented now, unknown ones so that providers take them.
    pub fn spelling(&self, name: &str) -> Option<String> {
        let spelled = match self.by_canonical.get(name) {
            _ if self.runner.contains(name) => return None,
            Some(at) => self.tools[*at].0.clone(),
            None if self.by_alias.contains_key(name) => return None,
            None if name.contains('.') || !valid(name) => alias(name),
            None => return None,
        };
        (spelled != name).then_some(spelled)
    }

    /// The canonical name of a managed tool that is called by its alias.
    pub(crate) fn canonical(&self, name: &str) -> Option<String> {
        match self.resolve(name) {
            Resolved::Managed(tool) if tool.name() != name => Some(tool.name().to_string()),
            Resolved::Managed(_) | Resolved::Runner | Resolved::Nobody(_) => None,
        }
    }

    /// What is appended to the runner's tools: name, description, schema; nothing else.
    pub(crate) fn declarations(&self) -> Vec<ToolDeclaration> {
        self.tools
            .iter()
            .map(|(alias, tool)| ToolDeclaration {
                name: alias.clone(),
                description: tool.tool.description.clone(),
                schema: tool.shown_schema.clone(),
            })
            .collect()
    }

    /// Each tool's alias and canonical name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tools
            .iter()
            .map(|(alias, tool)| (alias.as_str(), tool.name()))
    }

    fn free_alias(&self, canonical: &str) -> String {
        let taken = |name: &String| self.runner.contains(name) || self.by_alias.contains_key(name);
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
}

fn valid(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
