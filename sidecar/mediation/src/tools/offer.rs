//! The tools of an authority as models see them: aliases and declarations.
//!
//! Not here: the tools that may run (`authority`), and the names of one request (`presented`).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use toolcrib_dialect::{DeclaredTools, Dialect, ToolDeclaration};

use crate::codes::ResultCode;
use crate::tools::catalog::{Catalog, CatalogTool};
use crate::tools::names::{alias, yielding_alias};

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
    pub(crate) fn declared(&self, dialect: Dialect) -> DeclaredTools {
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

    /// Each tool with its alias, in the catalog's order.
    pub(crate) fn tools(&self) -> &[(String, Arc<CatalogTool>)] {
        &self.tools
    }

    /// Finds a tool by its alias, else by its canonical name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        let at = self.by_alias.get(name);
        let at = at.or_else(|| self.by_canonical.get(name))?;
        Some(&self.tools[*at].1)
    }

    pub(crate) fn has_alias(&self, name: &str) -> bool {
        self.by_alias.contains_key(name)
    }

    /// Returns the alias of the tool with this canonical name.
    pub(crate) fn alias(&self, canonical: &str) -> Option<&str> {
        let at = self.by_canonical.get(canonical)?;
        Some(&self.tools[*at].0)
    }

    /// Returns true if the files name a tool that the agent does not get.
    pub(crate) fn denies_tools(&self) -> bool {
        !self.denied.is_empty()
    }

    /// Returns the canonical name and the code for a tool that the agent does not get.
    pub(crate) fn denied(&self, name: &str) -> Option<(&str, ResultCode)> {
        let (canonical, code) = self.denied.get(name)?;
        Some((canonical, *code))
    }
}
