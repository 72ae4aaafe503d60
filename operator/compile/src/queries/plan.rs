//! The gains and losses of each agent between two sets of objects.
//!
//! Pure, so that the CLI's `plan` and admission give the same result. The two compilations of each
//! agent are compared by their entitlements, item by item. A difference is a gain or a loss only
//! if the agent can call, read or choose more or less afterwards. Any other difference (a tool
//! that is executed elsewhere, another credential, a budget) is a change.
//!
//! Invariant: an agent that is not in a [`Plan`] is served as before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use toolcrib_manifest::Tier;
use toolcrib_rules::models::{covers, matches_each};

use crate::compile::authority::policies::models::of_words;
use crate::compile::authority::suspension::sentence;
use crate::near::Suggestions;
use crate::queries::entitlements::{
    ANY_MODEL, APPROVAL, APPROVERS, EXECUTED, Facts, Item, ItemKind, LIMITS, MATCHING, RULES, TIER,
    VALUE, WOULD_DENY, entitlements, references_of_item,
};
use crate::queries::why::{WhyNot, why_no_feed, why_not_each};
use crate::{
    Code, Compilation, Inputs, Kind, ObjectRef, Objects, SecretKeyRef, SourceState, Subject,
    check_provider, compile,
};

/// The agents that differ, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub agents: Vec<AgentPlan>,
}

/// The differences for one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPlan {
    pub agent: ObjectRef,
    pub fate: Fate,
    /// Set if the agent is suspended afterwards: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Sorted by item.
    pub changes: Vec<Change>,
    /// Set if the agent is not accepted afterwards, for a reason that it did not have before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Objects that could not be read before or afterwards, which makes the result uncertain.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fate {
    /// The agent exists before and afterwards.
    Kept,
    Created,
    /// The agent is deleted; its pods are denied everything.
    Deleted,
    /// The agent stays, and can no longer be decoded.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub item: Item,
    pub effect: Effect,
    /// The facts that differ.
    pub details: Vec<Detail>,
    /// For a gain, the object that grants the item, and the Secrets that it needs. For a loss, the
    /// reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Effect {
    Gain,
    Loss,
    /// The agent can do as much as before, in another way.
    Change,
}

/// A fact of an item that differs. At least one side has the fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Detail {
    pub field: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Compares the entitlements of all agents of either side.
pub fn plan(before: &Inputs, after: &Inputs) -> Plan {
    let agents: BTreeSet<&ObjectRef> = before.agents.keys().chain(after.agents.keys()).collect();
    Plan {
        agents: agents
            .into_iter()
            .filter_map(|agent| plan_agent(before, after, agent))
            .collect(),
    }
}

/// Compares one agent; `None` if it is served as before.
pub fn plan_agent(
    before: &dyn Objects,
    after: &dyn Objects,
    agent: &ObjectRef,
) -> Option<AgentPlan> {
    let old = compile(before, agent);
    let new = compile(after, agent);
    plan_compiled(after, agent, old.as_ref(), new.as_ref())
}

/// [`plan_agent`] for an agent that is compiled already: `old` on the objects before, `new` on `after`.
pub fn plan_compiled(
    after: &dyn Objects,
    agent: &ObjectRef,
    old: Option<&Compilation>,
    new: Option<&Compilation>,
) -> Option<AgentPlan> {
    let fate = match (old, new) {
        (None, None) => return None,
        (Some(_), Some(_)) => Fate::Kept,
        (None, Some(_)) => Fate::Created,
        (Some(_), None) if after.unusable(Kind::Agent, agent).is_some() => Fate::Unreadable,
        (Some(_), None) => Fate::Deleted,
    };
    let held = old.map(entitlements).unwrap_or_default();
    let holds = match new {
        // The files of the earlier compilation stay in force.
        Some(new) if new.blocked.is_some() => held.clone(),
        Some(_) | None => new.map(entitlements).unwrap_or_default(),
    };
    let changes = Comparison {
        held,
        holds,
        fate,
        after,
        new,
        suggestions: Suggestions::default(),
    }
    .changes();
    let refusal = |compilation: Option<&Compilation>| {
        let refusal = compilation?.refusal.as_ref()?;
        Some(format!("{}: {}", refusal.code, refusal.message))
    };
    let refused = refusal(new).filter(|refused| refusal(old).as_ref() != Some(refused));
    if fate == Fate::Kept && changes.is_empty() && refused.is_none() {
        return None;
    }
    let unknown = [old, new]
        .into_iter()
        .flatten()
        .flat_map(|compilation| &compilation.unknown)
        .map(|(kind, key)| format!("{} {key}", kind.name()))
        .collect();
    let suspended = new.and_then(|new| {
        let suspension = new.suspension()?;
        Some(sentence(agent, suspension))
    });
    Some(AgentPlan {
        agent: agent.clone(),
        fate,
        suspended,
        changes,
        refused,
        unknown,
    })
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Counts the changes with this effect.
    pub fn count(&self, effect: Effect) -> usize {
        self.agents
            .iter()
            .flat_map(|agent| &agent.changes)
            .filter(|change| change.effect == effect)
            .count()
    }
}

/// Both sides of one agent's comparison.
struct Comparison<'a> {
    held: BTreeMap<Item, Facts>,
    holds: BTreeMap<Item, Facts>,
    fate: Fate,
    after: &'a dyn Objects,
    new: Option<&'a Compilation>,
    /// Many tools may be lost.
    suggestions: Suggestions,
}

impl Comparison<'_> {
    fn changes(&mut self) -> Vec<Change> {
        let items = self.held.keys().chain(self.holds.keys());
        let items: BTreeSet<Item> = items.cloned().collect();
        items.iter().filter_map(|item| self.change(item)).collect()
    }

    fn change(&mut self, item: &Item) -> Option<Change> {
        let (old, new) = (self.held.get(item), self.holds.get(item));
        let details = details(old, new);
        if details.is_empty() {
            return None;
        }
        // Every new agent has settings, so they are not reported.
        if item.kind == ItemKind::Setting && self.fate != Fate::Kept {
            return None;
        }
        let effect = match (old, new) {
            (Some(old), Some(new)) => match of_approval(old, new) {
                Effect::Change if item.kind == ItemKind::Model => of_matching(old, new),
                Effect::Change => of_rules(old.get(RULES), new.get(RULES)),
                effect @ (Effect::Gain | Effect::Loss) => effect,
            },
            (None, _) => self.of_presence(item, &self.held, Effect::Gain),
            (_, None) => self.of_presence(item, &self.holds, Effect::Loss),
        };
        let is_limit = |detail: &Detail| detail.field == RULES;
        let is_approval =
            matches!((old, new), (Some(old), Some(new)) if of_approval(old, new) != Effect::Change);
        let because = match effect {
            Effect::Gain | Effect::Loss
                if is_kept(&details) && !is_approval && details.iter().any(is_limit) =>
            {
                let approvers = details.iter().any(|it| it.field == APPROVERS);
                let approvers = new.filter(|_| approvers).and_then(asks);
                std::iter::once(limits_changed(old, new))
                    .chain(approvers)
                    .collect()
            }
            Effect::Gain | Effect::Loss
                if details.iter().any(|it| it.field == MATCHING)
                    && old.is_some()
                    && new.is_some() =>
            {
                vec![matching_changed(old, new)]
            }
            Effect::Gain => {
                let given_by = new.and_then(|facts| facts.get("givenBy")).cloned();
                let secrets = self.new.map(|new| unread_secrets(new, item));
                let conditions = secrets
                    .into_iter()
                    .flatten()
                    .map(|secret| format!("if Secret {secret} may be used"));
                let limits = new.and_then(|facts| facts.get(LIMITS)).cloned();
                let would_deny = new.and_then(|facts| facts.get(WOULD_DENY)).cloned();
                given_by
                    .into_iter()
                    .chain(limits)
                    .chain(new.and_then(asks))
                    .chain(would_deny)
                    .chain(conditions)
                    .collect()
            }
            Effect::Loss if new.is_some() => {
                let approvers = new.and_then(|facts| facts.get(APPROVERS));
                let approvers = approvers.map_or_else(String::new, |who| format!(": {who}"));
                vec![format!("a person must approve each call{approvers}")]
            }
            Effect::Loss => self.why_lost(item),
            Effect::Change => Vec::new(),
        };
        Some(Change {
            item: item.clone(),
            effect,
            details,
            because,
        })
    }

    /// Decides the effect of an item that only one side has. `other`: the entitlements of the
    /// other side.
    fn of_presence(&self, item: &Item, other: &BTreeMap<Item, Facts>, effect: Effect) -> Effect {
        match item.kind {
            ItemKind::Tool | ItemKind::Feed | ItemKind::Provider | ItemKind::Skill => effect,
            ItemKind::Model => {
                let provider = item.name.split_once('/').map_or("", |(name, _)| name);
                let any = Item::new(ItemKind::Model, format!("{provider}/{ANY_MODEL}"));
                let is_among = |facts: &Facts| matches_each(&matching(Some(facts)), &item.name);
                if other.get(&any).is_some_and(is_among) {
                    Effect::Change
                } else {
                    effect
                }
            }
            ItemKind::Setting => Effect::Change,
        }
    }

    fn why_lost(&mut self, item: &Item) -> Vec<String> {
        match (self.fate, self.new) {
            (Fate::Unreadable, _) => return vec!["the Agent cannot be read".to_owned()],
            (_, None) => return vec!["the Agent is gone".to_owned()],
            (_, Some(new)) if new.suspension().is_some() => {
                return vec!["the agent is suspended".to_owned()];
            }
            (_, Some(new)) => match item.kind {
                ItemKind::Tool => why_not_each(self.after, new, &item.name, &mut self.suggestions),
                ItemKind::Feed => why_no_feed(new, &item.name),
                ItemKind::Provider => return vec![self.why_no_provider(new, &item.name)],
                ItemKind::Model => {
                    let provider = item.name.split_once('/').map_or("", |(name, _)| name);
                    if let Some(why) = new.denied_models.get(&item.name) {
                        return vec![denied(why)];
                    }
                    if new.files.providers.providers.contains_key(provider) {
                        return vec!["spec.models does not allow it".to_owned()];
                    }
                    return vec![self.why_no_provider(new, provider)];
                }
                ItemKind::Skill | ItemKind::Setting => Vec::new(),
            },
        }
        .iter()
        .map(WhyNot::to_string)
        .collect()
    }

    fn why_no_provider(&self, new: &Compilation, name: &str) -> String {
        let key = ObjectRef::new(new.agent.namespace.clone(), name);
        let subject = Subject::new(Kind::ModelProvider, &key);
        let Some(report) = check_provider(self.after, &key) else {
            return format!("there is no {subject}");
        };
        report
            .diagnostics
            .iter()
            .find(|found| found.severity == crate::Severity::Error)
            .map_or_else(
                || {
                    let refs = new.denied_models.iter();
                    let is_of =
                        |reference: &str| reference.split_once('/').is_some_and(|it| it.0 == name);
                    let why = refs.into_iter().find(|(reference, _)| is_of(reference));
                    why.map_or_else(
                        || format!("spec.models does not select {subject}"),
                        |(_, why)| denied(why),
                    )
                },
                |found| format!("{}: {}", found.code, found.located()),
            )
    }
}

/// Returns the Secrets that an item needs and that could not be read. The item is withheld if one
/// of them is missing, or may not be sent to the item's destination.
fn unread_secrets(new: &Compilation, item: &Item) -> BTreeSet<ObjectRef> {
    let is_unknown = |reference: &SecretKeyRef| {
        let source = new.sources.get(reference);
        source.is_some_and(|source| source.state == SourceState::Unknown)
    };
    if !new
        .sources
        .values()
        .any(|source| source.state == SourceState::Unknown)
    {
        return BTreeSet::new();
    }
    references_of_item(&new.files, item)
        .into_iter()
        .filter(is_unknown)
        .map(|reference| reference.secret)
        .collect()
}

fn details(old: Option<&Facts>, new: Option<&Facts>) -> Vec<Detail> {
    let empty = Facts::new();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let fields: BTreeSet<&'static str> = old.keys().chain(new.keys()).copied().collect();
    fields
        .into_iter()
        .filter(|field| old.get(field) != new.get(field))
        .map(|field| Detail {
            field,
            before: old.get(field).cloned(),
            after: new.get(field).cloned(),
        })
        .collect()
}

/// Returns whether the details are of an item that both sides have. Only tools are asked about.
fn is_kept(details: &[Detail]) -> bool {
    let came_or_went = |detail: &Detail| {
        detail.field == EXECUTED && (detail.before.is_none() || detail.after.is_none())
    };
    !details.iter().any(came_or_went)
}

fn limits_changed(old: Option<&Facts>, new: Option<&Facts>) -> String {
    let limits = |facts: Option<&Facts>| {
        let limits = facts.and_then(|facts| facts.get(LIMITS)).cloned();
        limits.unwrap_or_else(|| "any call".to_owned())
    };
    format!("{}, was: {}", limits(new), limits(old))
}

/// Words for who may approve calls of a tool; `None`: no call needs an approval.
fn asks(facts: &Facts) -> Option<String> {
    let approvers = facts.get(APPROVERS)?;
    Some(format!("an approval needs {approvers}"))
}

/// Decides the effect of the rules that limit a tool. A tool may be called within the limits of any
/// of its rules; without the fact, in any way.
fn of_rules(old: Option<&String>, new: Option<&String>) -> Effect {
    let digests =
        |fact: &'_ String| -> BTreeSet<String> { fact.split(' ').map(str::to_owned).collect() };
    match (old.map(digests), new.map(digests)) {
        (None, None) => Effect::Change,
        (None, Some(_)) => Effect::Loss,
        (Some(_), None) => Effect::Gain,
        (Some(old), Some(new)) if old == new => Effect::Change,
        (Some(old), Some(new)) if old.is_subset(&new) => Effect::Gain,
        (Some(old), Some(new)) if new.is_subset(&old) => Effect::Loss,
        (Some(_), Some(_)) => Effect::Change,
    }
}

/// Decides the effect of the globs that a provider's models must match.
fn of_matching(old: &Facts, new: &Facts) -> Effect {
    let (old, new) = (matching(Some(old)), matching(Some(new)));
    match (covers(&new, &old), covers(&old, &new)) {
        (true, false) => Effect::Gain,
        (false, true) => Effect::Loss,
        (true, true) | (false, false) => Effect::Change,
    }
}

/// Reads back the lists of globs of a model's facts.
fn matching(facts: Option<&Facts>) -> Vec<Vec<String>> {
    let words = facts.and_then(|facts| facts.get(MATCHING));
    words.map_or_else(Vec::new, |words| of_words(words))
}

fn matching_changed(old: Option<&Facts>, new: Option<&Facts>) -> String {
    let words = |facts: Option<&Facts>| {
        let words = facts.and_then(|facts| facts.get(MATCHING)).cloned();
        words.unwrap_or_else(|| "any model".to_owned())
    };
    format!("{}, was: {}", words(new), words(old))
}

fn denied(why: &str) -> String {
    format!("{}: {why}", Code::ModelDeniedByPolicy)
}

/// Decides the effect of a tool's tier and of policies. Each call of an Elevated tool, or of one for which
/// a policy asks, needs an approval.
fn of_approval(old: &Facts, new: &Facts) -> Effect {
    let is_needed = |facts: &Facts| {
        let tier = facts.get(TIER).and_then(|tier| Tier::parse(tier));
        tier == Some(Tier::Elevated) || facts.contains_key(APPROVAL)
    };
    match (is_needed(old), is_needed(new)) {
        (false, true) => Effect::Loss,
        (true, false) => Effect::Gain,
        (true, true) | (false, false) => Effect::Change,
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Gain => "gains",
            Effect::Loss => "loses",
            Effect::Change => "changes",
        })
    }
}

impl Change {
    /// The item, or its calls: `tool fish.take`, `calls of tool fish.take`.
    pub fn what(&self) -> String {
        let calls = if self.is_of_calls() { "calls of " } else { "" };
        format!("{calls}{}", self.item)
    }

    /// Whether the agent keeps the tool, and may make more or fewer calls of it.
    pub fn is_of_calls(&self) -> bool {
        self.details.iter().any(|detail| detail.field == RULES)
            && self.effect != Effect::Change
            && is_kept(&self.details)
    }

    /// Whether the agent may be able to do more afterwards, as far as is known here.
    pub fn may_give(&self) -> bool {
        self.effect == Effect::Gain || self.replaces_rules()
    }

    /// Whether the agent may be able to do less afterwards, as far as is known here.
    pub fn may_take(&self) -> bool {
        self.effect == Effect::Loss || self.replaces_rules()
    }

    /// True if other rules limit the tool. Whether they allow more or fewer calls is not computed.
    pub fn replaces_rules(&self) -> bool {
        self.effect == Effect::Change && self.details.iter().any(|detail| detail.field == RULES)
    }

    /// The details for people: digests of rules only if no words differ.
    pub fn shown_details(&self) -> impl Iterator<Item = &Detail> {
        let is_in_words = |detail: &Detail| [LIMITS, APPROVERS].contains(&detail.field);
        let has_words = self.details.iter().any(is_in_words);
        let details = self.details.iter();
        details.filter(move |detail| detail.field != RULES || !has_words)
    }
}

/// Prints one line of an agent's plan: `loses tool fish.take (the Agent is gone)`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.effect, self.what())?;
        let why: Vec<String> = match self.effect {
            Effect::Gain | Effect::Loss => self.because.clone(),
            Effect::Change => self.shown_details().map(Detail::to_string).collect(),
        };
        if why.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", why.join("; "))
    }
}

/// Longer values are cut, in characters: a schema would hide the line that holds it.
const SHOWN: usize = 60;

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| match value {
            None => "none".to_owned(),
            // Not cut: these texts are short, and may differ only at the end.
            Some(text) if [LIMITS, MATCHING, APPROVERS].contains(&self.field) => text.clone(),
            Some(text) if text.chars().count() > SHOWN => {
                let start: String = text.chars().take(SHOWN).collect();
                format!("{start}…")
            }
            Some(text) => text.clone(),
        };
        let (before, after) = (shown(&self.before), shown(&self.after));
        match self.field {
            RULES => f.write_str("limits differ in values or expressions, which are not shown"),
            VALUE => write!(f, "{before} → {after}"),
            field if before == after => write!(f, "{field} differs"),
            field => write!(f, "{field}: {before} → {after}"),
        }
    }
}
