//! The names that rules give of one surface, each with its rules.

use std::collections::BTreeMap;

use super::offer::Offer;
use super::rules::{MAX_RULES, ToolRules};
use crate::Code;
use crate::compilation::GrantSource;
use crate::compile::authority::conditions::Conditions;
use crate::compile::authority::{ALL, Rule, Verb};
use crate::compile::reach::Reach;
use crate::compile::work::Work;
use crate::diagnostics::finding::Finding;
use crate::diagnostics::located;
use crate::names::feed_name;

/// The rules that give one tool or feed.
pub(super) struct MatchedRules<'r> {
    /// The first object, in name order.
    pub first: GrantSource,
    pub rules: ToolRules<'r>,
}

/// Returns the names that the rules allow and this surface offers, each with its rules. A name that
/// is not offered, or a condition that the tool cannot have, is an error on the rule's object and a
/// withheld item of the agent. Such a condition withholds the tool only if no other rule gives it.
pub(super) fn matched_names<'n, 'r: 'n>(
    reach: &'n Reach<'_>,
    rules: &'r [Rule<'_>],
    verb: Verb,
    work: &mut Work,
) -> BTreeMap<&'n str, MatchedRules<'r>> {
    let mut names: BTreeMap<&str, MatchedRules<'r>> = BTreeMap::new();
    let mut unsuited: BTreeMap<&str, (Code, String)> = BTreeMap::new();
    // Rules without conditions give the same, so only the first object is kept. Many rules may
    // allow `*`, and a surface may have many tools.
    let mut unconditional: BTreeMap<&str, Unconditional<'r>> = BTreeMap::new();
    let mut everything: Option<(Unconditional<'r>, Offer<'_>)> = None;
    let mut expanded = 0_usize;
    let what = |name: &str| match verb {
        Verb::Tool => format!("{}.{name}", reach.alias),
        Verb::Feed => feed_name(&reach.alias, name),
    };
    for rule in rules.iter().filter(|rule| rule.verb == verb) {
        let report = |finding: Finding, work: &mut Work| {
            let why = located(&rule.subject(), &finding.field, &finding.message);
            finding.report(&rule.subject(), &mut work.found);
            (finding.code, format!("because of {why}"))
        };
        let offer = Offer::to(rule, &reach.resolved);
        let (offer, conditions) = match (offer, &rule.conditions) {
            (Ok(offer), Ok(conditions)) => (offer, conditions),
            (Err(finding), _) => {
                let (code, message) = report(finding, work);
                work.withhold(what(ALL), code, message);
                continue;
            }
            (Ok(_), Err(finding)) => {
                let (code, message) = report(finding.clone(), work);
                work.withhold(what(ALL), code, message);
                continue;
            }
        };
        let is_unconditional = conditions.rule.is_unconditional();
        let this = (&rule.source, conditions);
        let mut given: Vec<&str> = Vec::new();
        if rule.allows_all() && is_unconditional {
            if everything.is_none_or(|(first, _)| this.0 < first.0) {
                everything = Some((this, offer));
            }
        } else if rule.allows_all() && expanded < MAX_RULES {
            expanded += 1;
            given = offer.names();
        } else if rule.allows_all() {
            let finding = Finding::new(
                rule.field.clone(),
                Code::TooManyRules,
                too_many_of_everything(),
            );
            let (code, message) = report(finding, work);
            work.withhold(what(ALL), code, message);
        } else {
            for (index, name) in rule.names() {
                if offer.has(name) {
                    given.push(name);
                } else if !work.is_full() {
                    let field = rule.name_field(index);
                    let finding = offer.not_found(field, name, &mut work.found.suggestions);
                    let (code, message) = report(finding, work);
                    work.withhold(what(name), code, message);
                }
            }
        }
        if is_unconditional {
            for name in given {
                let first = unconditional.entry(name).or_insert(this);
                *first = first_of(*first, this);
            }
            continue;
        }
        for name in given {
            if let Err(finding) = offer.suits(rule, name) {
                let why = report(finding, work);
                unsuited.entry(name).or_insert(why);
                continue;
            }
            let matched = names.entry(name).or_insert_with(|| MatchedRules {
                first: rule.source.clone(),
                rules: ToolRules::default(),
            });
            if rule.source < matched.first {
                matched.first = rule.source.clone();
            }
            matched.rules.add(rule.source.kind, conditions);
        }
    }
    if let Some((this, offer)) = everything {
        for name in offer.names() {
            let first = unconditional.entry(name).or_insert(this);
            *first = first_of(*first, this);
        }
    }
    for (name, (source, conditions)) in unconditional {
        let matched = names.entry(name).or_insert_with(|| MatchedRules {
            first: source.clone(),
            rules: ToolRules::default(),
        });
        if *source < matched.first {
            matched.first = source.clone();
        }
        matched.rules.add(source.kind, conditions);
    }
    for (name, (code, message)) in unsuited {
        if !names.contains_key(name) {
            work.withhold(what(name), code, message);
        }
    }
    names
}

/// A rule without conditions, and its object.
type Unconditional<'r> = (&'r GrantSource, &'r Conditions);

/// Returns the rule whose object is the first in name order.
fn first_of<'r>(one: Unconditional<'r>, other: Unconditional<'r>) -> Unconditional<'r> {
    if other.0 < one.0 { other } else { one }
}

/// The message for an entry with `*` that is over the bound.
fn too_many_of_everything() -> String {
    format!(
        "more than {MAX_RULES} rules with conditions give everything of this surface, so this one is withheld: remove some, or name the tools"
    )
}
