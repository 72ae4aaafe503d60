//! Reports rules about surfaces that the agent does not declare, so that its author learns why they
//! give nothing.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_crds::Agent;

use super::consent;
use crate::compile::authority::{Rule, Verb, namesakes};
use crate::compile::work::Work;
use crate::diagnostics::located;
use crate::names::feed_name;
use crate::reference::surface_key;
use crate::{Kind, ObjectRef, Objects, Severity, Subject};

/// Reports rules about surfaces that the agent does not declare: both layers are needed. A surface
/// that does not exist is reported as such, since declaring it would not help.
pub(crate) fn report(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &Agent,
    rules: &BTreeMap<ObjectRef, Vec<Rule<'_>>>,
    work: &mut Work,
) {
    let entries = &agent.spec.surfaces;
    let declared: BTreeSet<ObjectRef> = entries
        .iter()
        .map(|entry| surface_key(key, entry))
        .collect();
    let aliases: BTreeSet<&String> = entries
        .iter()
        .map(|entry| entry.alias.as_ref().unwrap_or(&entry.name))
        .collect();
    for (surface, rules) in rules
        .iter()
        .filter(|(surface, _)| !declared.contains(*surface))
    {
        let elsewhere = namesakes(surface, &declared).next().is_some();
        let missing = (!elsewhere && consent::is_missing(objects, surface, &key.namespace))
            .then(|| consent::not_found(objects, surface, &mut work.found.suggestions));
        for rule in rules {
            if work.is_full() {
                return;
            }
            let (code, message) = match &missing {
                // The check of the ToolDefaults reports it.
                Some(_) if rule.source.kind == Kind::ToolDefaults => continue,
                Some(missing) => (missing.code, missing.message.clone()),
                None => rule.not_declared_by(key, &declared, &mut work.found.suggestions),
            };
            let message_with_rule = located(&rule.subject(), &rule.surface_field(), &message);
            // ToolDefaults apply to every agent of the namespace and do not name this agent.
            if code.severity() == Severity::Warning {
                let subject = Subject::new(Kind::Agent, key);
                work.found
                    .add(&subject, "spec.surfaces", code, message_with_rule);
                continue;
            }
            work.found
                .add(&rule.subject(), rule.surface_field(), code, message);
            // The agent has no alias for the surface. Its own name stands in, unless another
            // surface has that alias.
            let alias = if aliases.contains(&rule.surface.name) {
                rule.surface.to_string()
            } else {
                rule.surface.name.clone()
            };
            for name in rule.allow {
                let what = match rule.verb {
                    Verb::Tool => format!("{alias}.{name}"),
                    Verb::Feed => feed_name(&alias, name),
                };
                work.withhold(what, code, message_with_rule.clone());
            }
        }
    }
}
