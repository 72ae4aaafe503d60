//! The rules of tools in the files: their order, their bounds, and the features that a reader must
//! support.
//!
//! A tool whose rules all have no conditions has no rules in the files, so its bytes are the same
//! as in earlier releases. Over a bound the rules of the last grants in name order are withheld. A
//! rule without conditions is withheld last, since it allows all calls that the others allow.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_manifest::{Rule, Tool, ToolExtension, names};

use crate::compilation::limits::{limits, limits_of};
use crate::compilation::{GrantSource, RuleSummary};
use crate::compile::authority::conditions::Conditions;
use crate::{Kind, ObjectRef, ToolSummary};

/// One tool of the files, and its summary for status.
pub(crate) struct ToolEntry<'r> {
    pub tool: Tool,
    pub summary: ToolSummary,
    /// The rules that give it; [`write`] puts them into the tool.
    pub rules: ToolRules<'r>,
}

/// Limits the rules of one tool: a call is compared with each of them.
pub(crate) const MAX_RULES: usize = 32;
/// Limits the rules of all tools of an agent. The mediator keeps a validator for each.
const MAX_AGENT_RULES: usize = 1024;

/// The order in which rules are kept: first those without conditions, then by grant and digest.
type Rank<'r> = (bool, &'r str, &'r str, &'r str);

fn rank(rule: &Rule) -> Rank<'_> {
    (
        !rule.is_unconditional(),
        &rule.grant.namespace,
        &rule.grant.name,
        &rule.digest,
    )
}

/// Two grants of one tool. `audit` tries its limits out and so allows every call; the limits of
/// `enforced` refuse nothing.
pub(crate) struct LiftedLimits {
    pub audit: GrantSource,
    pub enforced: GrantSource,
}

/// The rules that give one tool: one for each grant and digest, at most [`MAX_RULES`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolRules<'r> {
    kept: BTreeMap<Rank<'r>, (Kind, &'r Conditions)>,
    dropped: bool,
}

impl<'r> ToolRules<'r> {
    /// Adds a rule of an object of this kind.
    pub fn add(&mut self, kind: Kind, conditions: &'r Conditions) {
        self.kept.insert(rank(&conditions.rule), (kind, conditions));
        if self.kept.len() > MAX_RULES {
            self.kept.pop_last();
            self.dropped = true;
        }
    }

    /// True if a rule was dropped and the agent loses calls by it.
    pub fn are_incomplete(&self) -> bool {
        self.dropped && !self.have_unconditional()
    }

    /// Returns the first rule that is tried out and the first enforced rule of another object. A
    /// call that the enforced rule refuses runs because of the other one. `None`: one of the two is
    /// missing.
    pub fn lifted(&self) -> Option<LiftedLimits> {
        if self.have_unconditional() {
            return None;
        }
        let of = |is_audit: bool| {
            let mut kept = self.kept.values();
            let (kind, kept) = kept.find(|(_, it)| it.rule.audit == is_audit)?;
            Some(object_of(*kind, &kept.rule))
        };
        let (audit, enforced) = (of(true)?, of(false)?);
        (audit != enforced).then_some(LiftedLimits { audit, enforced })
    }

    fn have_unconditional(&self) -> bool {
        let first = self.kept.values().next();
        first.is_some_and(|(_, it)| it.rule.is_unconditional())
    }

    fn have_conditions(&self) -> bool {
        self.kept
            .values()
            .any(|(_, it)| !it.rule.is_unconditional())
    }
}

/// Withholds the rules over the bound of an agent, and writes the others into the tools. Returns
/// the names of the tools that lost calls by that, each with whether it is still given.
pub(crate) fn write(entries: &mut Vec<ToolEntry<'_>>) -> Vec<(String, bool)> {
    let mut lost = Vec::new();
    let written = |entry: &ToolEntry<'_>| match entry.rules.have_conditions() {
        true => entry.rules.kept.len(),
        false => 0,
    };
    if entries.iter().map(written).sum::<usize>() > MAX_AGENT_RULES {
        let conditional = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| written(entry) > 0);
        let ranked: BTreeSet<(Rank<'_>, usize)> = conditional
            .flat_map(|(at, entry)| entry.rules.kept.keys().map(move |rank| (*rank, at)))
            .collect();
        for (rank, at) in ranked.into_iter().skip(MAX_AGENT_RULES) {
            let rules = &mut entries[at].rules;
            rules.kept.remove(&rank);
            rules.dropped = true;
        }
        for entry in entries.iter().filter(|entry| entry.rules.are_incomplete()) {
            lost.push((entry.tool.name.clone(), !entry.rules.kept.is_empty()));
        }
        entries.retain(|entry| !entry.rules.kept.is_empty());
    }
    for entry in entries {
        if !entry.rules.have_conditions() {
            continue;
        }
        let extension = &mut entry.tool.extension;
        if !entry.rules.have_unconditional() {
            extension.requires.push(names::RULES.to_owned());
        }
        let any = |has: fn(&Rule) -> bool| entry.rules.kept.values().any(|(_, it)| has(&it.rule));
        if any(|rule| !rule.when.is_empty()) {
            extension.requires.push(names::WHEN.to_owned());
        }
        if any(|rule| !rule.rate.is_empty()) {
            extension.requires.push(names::RATES.to_owned());
        }
        if any(|rule| rule.approval) {
            requires_approval(extension);
        }
        let mut rules: Vec<(Kind, &Conditions)> = entry.rules.kept.values().copied().collect();
        rules.sort_by_key(|(_, it)| {
            let rule = &it.rule;
            (&rule.grant.namespace, &rule.grant.name, &rule.digest)
        });
        extension.rules = rules.iter().map(|(_, it)| it.rule.clone()).collect();
        let summary = &mut entry.summary;
        summary.rules = rules.into_iter().map(summary_of).collect();
        summary.limits = limits(&entry.tool);
    }
    lost
}

fn object_of(kind: Kind, rule: &Rule) -> GrantSource {
    GrantSource {
        kind,
        key: ObjectRef::new(rule.grant.namespace.clone(), rule.grant.name.clone()),
    }
}

/// Adds the requirement to a tool that needs approvals, once.
pub(crate) fn requires_approval(extension: &mut ToolExtension) {
    let name = names::APPROVAL;
    if !extension.requires.iter().any(|it| it == name) {
        extension.requires.push(name.to_owned());
    }
}

fn summary_of((kind, conditions): (Kind, &Conditions)) -> RuleSummary {
    let rule = &conditions.rule;
    RuleSummary {
        grant: object_of(kind, rule),
        digest: rule.digest.clone(),
        limits: limits_of(rule),
        not_before: rule.not_before.clone(),
        not_after: rule.not_after.clone(),
        approval: conditions.approval.clone(),
    }
}

/// The message for rules over the bound of an agent.
pub(crate) fn too_many() -> String {
    format!(
        "the agent's tools have more than {MAX_AGENT_RULES} rules together, so those of the last grants in name order are withheld: remove some, or merge grants with the same limits, or name fewer tools in them"
    )
}
