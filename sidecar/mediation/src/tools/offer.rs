//! The tools of an authority as models see them: aliases and declarations.
//!
//! Not here: the tools that may run (`authority`), and the names of one request (`presented`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use toolcrib_dialect::{DeclaredTools, Dialect, ToolDeclaration};
use toolcrib_rules::shown_schema;

use crate::codes::ResultCode;
use crate::text::search::FirstOf;
use crate::tools::catalog::{Catalog, CatalogTool};
use crate::tools::names::{alias, yielding_alias};
use crate::tools::rules::GrantRule;

/// A tool as it is offered, with the rules that stood and whose window was open at that time.
#[derive(Debug)]
pub struct OfferedTool {
    tool: Arc<CatalogTool>,
    /// Indexes among the tool's rules; empty if the tool has none.
    rules: Vec<usize>,
    /// The schema for a model, if the only rule narrows it.
    narrowed: Option<String>,
}

/// The tools of an authority with their aliases. Built once and shared by all requests, except
/// those whose runner has tools with the same names.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    tools: Vec<(String, Arc<OfferedTool>)>,
    by_alias: HashMap<String, usize>,
    by_canonical: HashMap<String, usize>,
    /// Tools of the files that the agent does not get. Keys are aliases and canonical names; values
    /// are the canonical name and the code that a call gets.
    denied: Arc<HashMap<String, (String, ResultCode)>>,
    /// Declarations by dialect, built on first use.
    declared: [OnceLock<DeclaredTools>; Dialect::ALL.len()],
    /// Finds the beginnings of all names, built on first use.
    beginnings: OnceLock<FirstOf>,
}

impl OfferedTool {
    /// Returns `None` if no call can meet the only rule. A tool with several rules is shown with
    /// its whole schema, since no merged schema accepts exactly the calls that they accept.
    pub(crate) fn new(tool: Arc<CatalogTool>, rules: Vec<usize>) -> Option<Self> {
        let narrowed = match rules[..] {
            [only] => Some(shown_schema(&tool.shown_schema, &tool.rules[only].rule).ok()?),
            [] | [_, _, ..] => None,
        };
        Some(Self {
            tool,
            rules,
            narrowed,
        })
    }

    /// Canonical name, `surface.tool`.
    pub fn name(&self) -> &str {
        self.tool.name()
    }

    pub fn catalog_tool(&self) -> &Arc<CatalogTool> {
        &self.tool
    }

    /// The schema for a model or a client: without `claw_id` and pinned arguments, which the
    /// mediator supplies.
    pub fn shown_schema(&self) -> &str {
        self.narrowed.as_ref().unwrap_or(&self.tool.shown_schema)
    }

    /// The rules of the offer, in the order of the file; none if the tool has none.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &GrantRule> {
        self.rules.iter().map(|at| &self.tool.rules[*at])
    }
}

impl Offer {
    /// Offers the tools of `catalog` for which `offered` has an offer.
    pub(crate) fn new(
        catalog: &Catalog,
        offered: impl Fn(&Arc<CatalogTool>) -> Option<OfferedTool>,
    ) -> Self {
        let mut denied = HashMap::new();
        let mut deny = |canonical: &str, code: ResultCode| {
            for name in [alias(canonical), canonical.to_string()] {
                denied.insert(name, (canonical.to_string(), code));
            }
        };
        let mut tools = Vec::new();
        for tool in catalog.tools() {
            match offered(tool) {
                Some(offered) => tools.push(Arc::new(offered)),
                None => deny(tool.name(), ResultCode::PermissionDenied),
            }
        }
        for withheld in catalog.withheld() {
            if let Some(code) = catalog.withheld_code(&withheld.tool) {
                deny(&withheld.tool, code);
            }
        }
        Self::named(tools, Arc::new(denied), &HashSet::new())
    }

    /// The same offer for a runner that has tools with these names.
    pub(crate) fn beside(&self, runner: &HashSet<String>) -> Self {
        let tools = self.tools.iter().map(|(_, tool)| tool.clone());
        Self::named(tools, self.denied.clone(), runner)
    }

    /// Names the tools. A tool whose alias is the name of a runner's tool gets another alias, so
    /// names stay distinct.
    fn named(
        tools: impl IntoIterator<Item = Arc<OfferedTool>>,
        denied: Arc<HashMap<String, (String, ResultCode)>>,
        runner: &HashSet<String>,
    ) -> Self {
        let mut offer = Self {
            denied,
            ..Self::default()
        };
        for tool in tools {
            let alias = offer.free_alias(tool.name(), runner);
            let at = offer.tools.len();
            offer.by_alias.insert(alias.clone(), at);
            offer.by_canonical.insert(tool.name().to_string(), at);
            offer.tools.push((alias, tool));
        }
        offer
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
                    description: tool.catalog_tool().tool.description.clone(),
                    schema: tool.shown_schema().to_string(),
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
    pub(crate) fn tools(&self) -> &[(String, Arc<OfferedTool>)] {
        &self.tools
    }

    /// Finds a tool by its alias, else by its canonical name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<OfferedTool>> {
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

    /// Returns false if this JSON text has no string that is the name of a tool. Fast: may also return
    /// true for other texts.
    pub(crate) fn may_name_a_tool(&self, json: &str) -> bool {
        let beginnings = self.beginnings.get_or_init(|| {
            let beginnings: BTreeSet<String> = self.tools.iter().flat_map(beginnings).collect();
            let beginnings: Vec<Vec<u8>> = beginnings.into_iter().map(String::into_bytes).collect();
            FirstOf::new(&beginnings)
        });
        !self.tools.is_empty() && beginnings.first(json.as_bytes()).is_some()
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

/// Returns the prefixes of a tool's names, as they stand in JSON. Tools of one surface share them, so
/// there are few.
fn beginnings((alias, tool): &(String, Arc<OfferedTool>)) -> [String; 2] {
    let up_to = |name: &str, mark: &str| {
        let end = name.find(mark).map_or(name.len(), |at| at + mark.len());
        format!("\"{}", &name[..end])
    };
    [up_to(alias, "__"), up_to(tool.name(), ".")]
}
