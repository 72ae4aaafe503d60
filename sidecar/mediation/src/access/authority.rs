//! The tools that may run now. Checked at each dispatch, just before the write-ahead line.
//!
//! The caller passes two times: at the time at which tools are presented, the open rules decide how
//! calls are read; at the time of a dispatch, the open rules decide whether the call runs.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use toolcrib_manifest::{AllowedRules, Budget, LinkAllowlist};
use toolcrib_rules::{Coverage, Exhaustion, Rule};

use crate::access::approval::{ApprovalNeed, PendingNeed};
use crate::access::budgets::BudgetCounts;
use crate::access::denial::Denial;
use crate::access::rates::RateCounts;
use crate::calls::call::ManagedCall;
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

#[derive(Clone, Copy, Debug)]
struct Check<'a> {
    /// A person has approved the call, after an approval was asked as the need says.
    approved: Option<&'a ApprovalNeed>,
    rates: &'a RateCounts,
}

/// The result for a call that may run.
#[derive(Debug, Default)]
struct CallPermission {
    /// `None`: the tool has no rules.
    allowed_by: Option<AllowedBy>,
    /// Digests of the rules whose rates count the call.
    counted: BTreeSet<String>,
}

/// The open rules that a call meets.
#[derive(Debug, Default)]
struct RulesMet<'t> {
    met: Vec<&'t Rule>,
    /// A rule that is tried out and whose pinned arguments the call has.
    audit: Option<&'t Rule>,
    /// Whether the window of any rule is open.
    is_open: bool,
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

    /// Returns the tool if this call may run at this moment without an approval, and counts it against
    /// the rates of the rules that it meets, and against the agent's budgets.
    pub fn permits(
        &self,
        call: &ManagedCall,
        rates: &RateCounts,
        budgets: &BudgetCounts,
        now: Timestamp,
    ) -> Result<LiveTool, Denial> {
        let approved = None;
        self.count(call, Check { approved, rates }, budgets, now)
    }

    /// Like [`Self::permits`], for a call that was approved after an approval was asked as `asked`
    /// says. The approval replaces the person, nothing else.
    pub fn permits_approved(
        &self,
        call: &ManagedCall,
        asked: &ApprovalNeed,
        rates: &RateCounts,
        budgets: &BudgetCounts,
        now: Timestamp,
    ) -> Result<LiveTool, Denial> {
        let approved = Some(asked);
        self.count(call, Check { approved, rates }, budgets, now)
    }

    /// Returns what has become of the need of a call that waits for an approval, which was asked as `asked`
    /// says. An error: something was taken away, and the call would be denied with the approval too. A
    /// rate or a budget that is used up takes nothing away: both hold for the call once it is approved.
    /// Counts nothing.
    pub fn pending_need(
        &self,
        call: &ManagedCall,
        asked: &ApprovalNeed,
        rates: &RateCounts,
        now: Timestamp,
    ) -> Result<PendingNeed, Denial> {
        let tool = self.granted(call)?;
        let need = self.allowed.pending_need(tool, call, asked, rates, now)?;
        Ok(PendingNeed::of(asked, need.as_ref()))
    }

    /// Decides a call, and counts it if it may run.
    fn count(
        &self,
        call: &ManagedCall,
        check: Check<'_>,
        budgets: &BudgetCounts,
        now: Timestamp,
    ) -> Result<LiveTool, Denial> {
        let tool = self.granted(call)?;
        let permit = || self.allowed.permitted(tool, call, check, now);
        let exhausted = |exhaustion: Exhaustion| Denial::Exhausted {
            tool: call.name().to_string(),
            wait: exhaustion.wait(now),
            exhaustion,
        };
        let permitted = budgets.count_call(&self.budgets, now, permit, exhausted)?;
        Ok(LiveTool {
            tool: tool.clone(),
            allowed_by: permitted.allowed_by,
            counted: permitted.counted,
        })
    }

    /// Returns the tool of a call, if a rule still gives it as it was presented.
    fn granted(&self, call: &ManagedCall) -> Result<&Arc<CatalogTool>, Denial> {
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
        Ok(live)
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

    /// Returns the time until [`Self::next_change`].
    pub fn until_change(&self, now: Timestamp) -> Option<Duration> {
        let change = self.next_change(now)?;
        Some(change.duration_since(now).unsigned_abs())
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

impl RulesMet<'_> {
    /// The denial of the call if no rule allows it. `waits`: for each rule that it meets, the time until
    /// the rule has room.
    fn denial(&self, tool: String, waits: &[Option<Duration>]) -> Denial {
        match waits.iter().flatten().min() {
            Some(wait) => Denial::RateLimited { tool, wait: *wait },
            None if self.is_open => Denial::Unmet { tool },
            None => Denial::Closed { tool },
        }
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
    /// room, else the first one that is tried out and whose pinned arguments the call has. A rule that
    /// needs no approval goes before the others; a rule that is tried out needs its approval all the
    /// same. Also returns the digests of the rules whose rates count the call.
    fn permitted(
        &self,
        tool: &CatalogTool,
        call: &ManagedCall,
        check: Check<'_>,
        now: Timestamp,
    ) -> Result<CallPermission, Denial> {
        let name = || call.name().to_string();
        let settled = |asking: &[&Rule]| match (ApprovalNeed::of(tool, asking), check.approved) {
            (None, _) => Ok(()),
            (Some(need), Some(asked)) if asked.covers(&need) => Ok(()),
            (Some(_), Some(_)) => Err(Denial::OtherApproval { tool: name() }),
            (Some(need), None) => Err(Denial::NeedsApproval {
                tool: name(),
                need: Box::new(need),
            }),
        };
        if tool.rules.is_empty() {
            settled(&[])?;
            return Ok(CallPermission::default());
        }
        let found = self.rules_met(tool, call, now);
        let RulesMet { met, audit, .. } = &found;
        let permit = |waits: &[Option<Duration>]| {
            let free = met.iter().zip(waits).filter(|(_, wait)| wait.is_none());
            let free: Vec<&Rule> = free.map(|(rule, _)| *rule).collect();
            let silent = free.iter().find(|rule| !rule.needs_approval());
            let asking = if silent.is_some() {
                &[]
            } else {
                free.as_slice()
            };
            if let Some(rule) = silent.or(free.first()) {
                settled(asking)?;
                return Ok(AllowedBy::of(rule, None));
            }
            let denial = found.denial(name(), waits);
            let Some(rule) = *audit else {
                return Err(denial);
            };
            let asking: &[&Rule] = match rule.needs_approval() {
                true => &[rule],
                false => &[],
            };
            settled(asking)?;
            // The refusal from when the call was read, unless a rule that allowed the call has been
            // removed since.
            let would_deny = match call.refused_when_read() {
                Some((code, message)) => (code, message.to_owned()),
                None => (denial.code(), denial.to_string()),
            };
            Ok(AllowedBy::of(rule, Some(would_deny)))
        };
        let rated = met.iter().filter(|rule| !rule.rates().is_empty());
        let counted: BTreeSet<String> = rated.map(|rule| rule.digest().to_owned()).collect();
        let allowed_by = match counted.is_empty() {
            true => permit(&vec![None; met.len()])?,
            false => check.rates.count(call.name(), met, now, permit)?,
        };
        Ok(CallPermission {
            allowed_by: Some(allowed_by),
            counted,
        })
    }

    /// Returns the need of a call that waits for the approval that was asked. Of what is used of rates, only
    /// one thing matters: whether a rule that does not ask has room, if it had none when the approval was
    /// asked.
    fn pending_need(
        &self,
        tool: &CatalogTool,
        call: &ManagedCall,
        asked: &ApprovalNeed,
        rates: &RateCounts,
        now: Timestamp,
    ) -> Result<Option<ApprovalNeed>, Denial> {
        if tool.rules.is_empty() {
            return Ok(ApprovalNeed::of(tool, &[]));
        }
        let found = self.rules_met(tool, call, now);
        let waits = rates.waits(call.name(), &found.met, now);
        let (mut asking, mut silent) = (Vec::new(), Vec::new());
        for (rule, wait) in found.met.iter().zip(&waits) {
            match rule.needs_approval() {
                true => asking.push(*rule),
                false => silent.push(wait),
            }
        }
        let tried_out = found.audit.map(Rule::needs_approval);
        if tried_out == Some(true) {
            asking.extend(found.audit);
        }
        // Without a rule that asked, the call was to run by one that does not ask.
        let is_silent = match asked.rules.is_empty() {
            true => !silent.is_empty() || tried_out == Some(false),
            false => silent.iter().any(|wait| wait.is_none()),
        };
        match (is_silent, asking.is_empty(), tried_out) {
            (true, _, _) | (false, true, Some(_)) => Ok(ApprovalNeed::of(tool, &[])),
            (false, false, _) => Ok(ApprovalNeed::of(tool, &asking)),
            (false, true, None) => Err(found.denial(call.name().to_string(), &waits)),
        }
    }

    /// Finds the open rules that the call meets.
    fn rules_met<'t>(
        &self,
        tool: &'t CatalogTool,
        call: &ManagedCall,
        now: Timestamp,
    ) -> RulesMet<'t> {
        let text = call.arguments().get();
        let arguments = LazyCell::new(|| {
            serde_json::from_str::<Value>(text)
                .expect("arguments were parsed when the call was read")
        });
        let facts = tool.facts(now);
        let has_rates = self.rules(tool).any(|(_, it)| !it.rule.rates().is_empty());
        let mut found = RulesMet::default();
        for (_, rule) in self.rules(tool) {
            if !rule.rule.is_open(now) {
                continue;
            }
            found.is_open = true;
            // The digest covers the conditions, so the same rule accepts these arguments again.
            let is_read = call.was_met_when_read(rule.rule.digest());
            let meets = |coverage| match coverage {
                Coverage::All if is_read => rule.is_still_met(&facts, || &arguments),
                Coverage::All | Coverage::Pins => {
                    rule.check(coverage, &facts, &arguments, text).is_ok()
                }
            };
            let is_met = meets(Coverage::All);
            if is_met {
                found.met.push(&rule.rule);
                // Others would change nothing: this one allows the call.
                if !has_rates && !rule.rule.needs_approval() {
                    break;
                }
            }
            let is_tried_out = found.audit.is_none() && rule.rule.is_audit();
            if is_tried_out && (is_met || meets(Coverage::Pins)) {
                found.audit = Some(&rule.rule);
            }
        }
        found
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
