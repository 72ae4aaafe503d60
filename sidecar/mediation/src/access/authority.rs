//! The tools that may run now. Checked at each dispatch, just before the write-ahead line.
//!
//! The caller passes two times: at the time at which tools are presented, the open rules decide how
//! calls are read; at the time of a dispatch, the open rules decide whether the call runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use toolcrib_manifest::{AllowedRules, Budget, LinkAllowlist, Tier};
use toolcrib_rules::{Coverage, Exhaustion, Rule};

use crate::access::budgets::BudgetCounts;
use crate::access::rates::RateCounts;
use crate::calls::call::ManagedCall;
use crate::calls::outcome::{Certainty, ToolFailure, ToolOutcome, whole_seconds};
use crate::codes::ResultCode;
use crate::tools::catalog::{Catalog, CatalogTool};
use crate::tools::offer::{Offer, OfferedTool};
use crate::tools::rules::{AllowedBy, GrantRule};

/// The loaded catalog, reduced by the link's allowlist, which can deny, never grant:
/// only names and rules of the catalog are looked up in it.
#[derive(Clone, Debug)]
pub struct Authority {
    allowed: AllowedCatalog,
    offers: Offers,
    budgets: Arc<[Budget]>,
}

/// The rules of the catalog that the link's allowlist leaves.
#[derive(Clone, Debug)]
struct AllowedCatalog {
    catalog: Arc<Catalog>,
    /// `None`: nothing in the catalog is revoked.
    allowlist: Option<Arc<Allowlist>>,
}

#[derive(Debug)]
struct Allowlist {
    tools: BTreeMap<String, String>,
    rules: BTreeMap<String, AllowedRules>,
}

/// The offer of an authority, built once for each set of open windows.
#[derive(Clone, Debug)]
enum Offers {
    /// No rule has a window.
    Fixed(Arc<Offer>),
    /// `None`: not built yet.
    Timed(Arc<Mutex<Option<TimedOffer>>>),
}

/// An offer, and the time for which its windows stay as they are.
#[derive(Clone, Debug)]
struct TimedOffer {
    offer: Arc<Offer>,
    from: Timestamp,
    until: Option<Timestamp>,
}

/// The current version of a call's tool, with its current credential.
#[derive(Clone, Debug)]
pub struct LiveTool {
    tool: Arc<CatalogTool>,
    allowed_by: Option<AllowedBy>,
    counted: BTreeSet<String>,
}

/// The reason for which a call may not run, or may no longer run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("{tool} is no longer granted")]
    Withdrawn { tool: String },
    #[error("{tool} is not granted at this time")]
    Closed { tool: String },
    #[error("{tool} is no longer granted with these arguments")]
    Unmet { tool: String },
    #[error(
        "{tool} was called as often as it is granted; the next call is allowed in {} s",
        whole_seconds(*.wait)
    )]
    RateLimited { tool: String, wait: Duration },
    #[error("{tool} was not called: {exhaustion}")]
    Exhausted {
        tool: String,
        exhaustion: Exhaustion,
        wait: Duration,
    },
    #[error("{tool} has changed since it was presented")]
    Changed { tool: String },
    #[error("{tool} needs an approval, which is not available")]
    Elevated { tool: String },
    #[error("{tool} has a restriction that this release does not know")]
    UnknownRequirement { tool: String },
}

impl Authority {
    pub fn new(catalog: Arc<Catalog>, allowlist: Option<&LinkAllowlist>) -> Self {
        let allowlist = allowlist.map(|allowlist| {
            Arc::new(Allowlist {
                tools: allowlist.tools.clone(),
                rules: allowlist.rules.clone(),
            })
        });
        let allowed = AllowedCatalog { catalog, allowlist };
        let offers = match allowed.next_change(Timestamp::MIN) {
            None => Offers::Fixed(Arc::new(allowed.offer(Timestamp::MIN))),
            Some(_) => Offers::Timed(Arc::default()),
        };
        Self {
            allowed,
            offers,
            budgets: Arc::default(),
        }
    }

    /// Limits the calls by the agent's budgets, too.
    pub fn with_budgets(self, budgets: &[Budget]) -> Self {
        Self {
            budgets: budgets.into(),
            ..self
        }
    }

    /// Returns the tool if this call may run at this moment, and counts it against the rates of the rules
    /// that it meets, and against the agent's budgets.
    pub fn permits(
        &self,
        call: &ManagedCall,
        rates: &RateCounts,
        budgets: &BudgetCounts,
        now: Timestamp,
    ) -> Result<LiveTool, Denial> {
        let tool = || call.name().to_string();
        let catalog = &self.allowed.catalog;
        let Some(live) = catalog.get(call.name()) else {
            return Err(match catalog.withheld_code(call.name()) {
                Some(ResultCode::UnsupportedRequirement) => {
                    Denial::UnknownRequirement { tool: tool() }
                }
                _ => Denial::Withdrawn { tool: tool() },
            });
        };
        if !self.allowed.has(live) {
            return Err(Denial::Withdrawn { tool: tool() });
        }
        if live.digest != call.digest() {
            return Err(Denial::Changed { tool: tool() });
        }
        if live.tier == Tier::Elevated {
            return Err(Denial::Elevated { tool: tool() });
        }
        let permit = || self.allowed.rule_met(live, call, rates, now);
        let exhausted = |exhaustion: Exhaustion| Denial::Exhausted {
            tool: tool(),
            wait: exhaustion.wait(now),
            exhaustion,
        };
        let (allowed_by, counted) = budgets.count_call(&self.budgets, now, permit, exhausted)?;
        Ok(LiveTool {
            tool: live.clone(),
            allowed_by,
            counted,
        })
    }

    /// The tools that a rule gives, whatever its conditions.
    pub fn tools(&self) -> impl Iterator<Item = &CatalogTool> {
        let tools = self.allowed.catalog.tools().iter().map(Arc::as_ref);
        tools.filter(|tool| self.allowed.has(tool))
    }

    /// The rules with rates that stand, each with its tool.
    pub fn rated_rules(&self) -> impl Iterator<Item = (&str, &Rule)> {
        let tools = self.allowed.catalog.tools().iter();
        let rules = tools.flat_map(|tool| {
            let rules = self.allowed.rules(tool);
            rules.map(|(_, rule)| (tool.name(), &rule.rule))
        });
        rules.filter(|(_, rule)| !rule.rates().is_empty())
    }

    /// Returns the first time after `now` at which the offer can change by itself.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.offers {
            Offers::Fixed(_) => None,
            Offers::Timed(_) => self.allowed.next_change(now),
        }
    }

    /// The tools that a request may be shown.
    pub(crate) fn offer(&self, now: Timestamp) -> Arc<Offer> {
        let timed = match &self.offers {
            Offers::Fixed(offer) => return offer.clone(),
            Offers::Timed(timed) => timed,
        };
        // Locked while an offer is built, so that requests do not build it beside each other.
        let mut timed = timed.lock();
        if let Some(built) = timed.as_ref().filter(|built| built.holds(now)) {
            return built.offer.clone();
        }
        let offer = Arc::new(self.allowed.offer(now));
        *timed = Some(TimedOffer {
            offer: offer.clone(),
            from: now,
            until: self.allowed.next_change(now),
        });
        offer
    }
}

impl TimedOffer {
    fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }
}

impl AllowedCatalog {
    /// Returns true if a rule gives the tool, whatever its conditions.
    fn has(&self, tool: &CatalogTool) -> bool {
        if tool.rules.is_empty() {
            return self.lists(tool);
        }
        self.rules(tool).next().is_some()
    }

    /// Returns true if the allowlist has the tool as given without conditions.
    fn lists(&self, tool: &CatalogTool) -> bool {
        match &self.allowlist {
            None => true,
            Some(allowlist) => allowlist.tools.get(tool.name()) == Some(&tool.digest),
        }
    }

    /// The rules of a tool that stand, with their indexes.
    fn rules<'t>(&self, tool: &'t CatalogTool) -> impl Iterator<Item = (usize, &'t GrantRule)> {
        let lists = self.lists(tool);
        let left = self.allowlist.as_ref().map(|allowlist| {
            let left = allowlist.rules.get(tool.name());
            left.filter(|left| left.entry == tool.digest)
        });
        let stands = move |(_, rule): &(usize, &GrantRule)| match left {
            None => true,
            Some(_) if rule.rule.is_unconditional() => lists,
            Some(left) => left.is_some_and(|left| left.rules.contains(rule.rule.digest())),
        };
        tool.rules.iter().enumerate().filter(stands)
    }

    /// Chooses the rule that allows the call: the first one that the call meets and whose rates have
    /// room, else the first one that is tried out and whose pinned arguments the call has. `None`: the
    /// tool has no rules. Also returns the digests of the rules whose rates count the call.
    fn rule_met(
        &self,
        tool: &CatalogTool,
        call: &ManagedCall,
        rates: &RateCounts,
        now: Timestamp,
    ) -> Result<(Option<AllowedBy>, BTreeSet<String>), Denial> {
        if tool.rules.is_empty() {
            return Ok((None, BTreeSet::new()));
        }
        let text = call.arguments().get();
        let arguments: Value =
            serde_json::from_str(text).expect("arguments were parsed when the call was read");
        let facts = tool.facts(now);
        let has_rates = self.rules(tool).any(|(_, it)| !it.rule.rates().is_empty());
        let mut is_open = false;
        let mut met: Vec<&Rule> = Vec::new();
        let mut audit = None;
        for (_, rule) in self.rules(tool) {
            if !rule.rule.is_open(now) {
                continue;
            }
            is_open = true;
            // The digest covers the schema, so it accepts these arguments as it did when they were read.
            let is_read = call.was_met_when_read(rule.rule.digest());
            let meets = |coverage| match coverage {
                Coverage::All if is_read => rule.check_when(&facts, &arguments, text).is_ok(),
                Coverage::All | Coverage::Pins => {
                    rule.check(coverage, &facts, &arguments, text).is_ok()
                }
            };
            let is_met = meets(Coverage::All);
            if is_met {
                met.push(&rule.rule);
                if !has_rates {
                    break;
                }
            }
            if audit.is_none() && rule.rule.is_audit() && (is_met || meets(Coverage::Pins)) {
                audit = Some(&rule.rule);
            }
        }
        let rated = met.iter().filter(|rule| !rule.rates().is_empty());
        let counted: BTreeSet<String> = rated.map(|rule| rule.digest().to_owned()).collect();
        let name = call.name().to_string();
        let denial = if let Some(first) = met.first() {
            let room = match counted.is_empty() {
                true => Ok(*first),
                false => {
                    let at = rates.count(call.name(), &met, audit.is_some(), now);
                    at.map(|at| met[at])
                }
            };
            match room {
                Ok(rule) => return Ok((Some(AllowedBy::of(rule, None)), counted)),
                Err(wait) => Denial::RateLimited { tool: name, wait },
            }
        } else if is_open {
            Denial::Unmet { tool: name }
        } else {
            Denial::Closed { tool: name }
        };
        let Some(rule) = audit else {
            return Err(denial);
        };
        // The refusal from when the call was read, unless a rule that allowed the call has been
        // removed since.
        let would_deny = match call.refused_when_read() {
            Some((code, message)) => (code, message.to_owned()),
            None => (denial.code(), denial.to_string()),
        };
        Ok((Some(AllowedBy::of(rule, Some(would_deny))), counted))
    }

    fn offer(&self, now: Timestamp) -> Offer {
        Offer::new(&self.catalog, |tool| {
            if tool.rules.is_empty() {
                return match self.lists(tool) {
                    true => OfferedTool::new(tool.clone(), Vec::new()),
                    false => None,
                };
            }
            let open = self.rules(tool).filter(|(_, rule)| rule.rule.is_open(now));
            let open: Vec<usize> = open.map(|(at, _)| at).collect();
            match open.is_empty() {
                true => None,
                false => OfferedTool::new(tool.clone(), open),
            }
        })
    }

    /// Returns the first time after `now` at which the window of a rule in it opens or closes.
    fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let tools = self.catalog.tools().iter();
        tools
            .flat_map(|tool| self.rules(tool))
            .filter_map(|(_, rule)| rule.rule.next_change(now))
            .min()
    }
}

impl LiveTool {
    pub fn tool(&self) -> &toolcrib_manifest::Tool {
        &self.tool.tool
    }

    pub fn catalog_tool(&self) -> &Arc<CatalogTool> {
        &self.tool
    }

    /// The rule that allows the call; `None` if the tool is given without conditions.
    pub fn allowed_by(&self) -> Option<&AllowedBy> {
        self.allowed_by.as_ref()
    }

    /// The digests of the rules whose rates count the call.
    pub fn counted(&self) -> &BTreeSet<String> {
        &self.counted
    }
}

impl Denial {
    pub fn code(&self) -> ResultCode {
        match self {
            Denial::Withdrawn { .. }
            | Denial::Closed { .. }
            | Denial::Changed { .. }
            | Denial::Elevated { .. } => ResultCode::PermissionDenied,
            Denial::Unmet { .. } => ResultCode::ConditionFailed,
            Denial::RateLimited { .. } => ResultCode::RateLimited,
            Denial::Exhausted { .. } => ResultCode::QuotaExhausted,
            Denial::UnknownRequirement { .. } => ResultCode::UnsupportedRequirement,
        }
    }
}

impl From<Denial> for ToolFailure {
    fn from(denied: Denial) -> Self {
        let failure = ToolFailure::new(denied.code(), Certainty::NeverRan, denied.to_string());
        match denied {
            Denial::RateLimited { wait, .. } | Denial::Exhausted { wait, .. } => {
                failure.after(wait)
            }
            Denial::Withdrawn { .. }
            | Denial::Closed { .. }
            | Denial::Unmet { .. }
            | Denial::Changed { .. }
            | Denial::Elevated { .. }
            | Denial::UnknownRequirement { .. } => failure,
        }
    }
}

impl From<Denial> for ToolOutcome {
    fn from(denied: Denial) -> Self {
        ToolOutcome::Failed(denied.into())
    }
}
