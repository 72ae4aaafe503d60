//! The models that policies allow an agent.
//!
//! If the agent or its ToolDefaults list models, the listed models that match are kept. For an
//! agent without a list the globs are compiled, and its mediator matches them. Invariant: a model
//! that is requested, listed or a fallback matches a glob of each policy.

use std::collections::BTreeMap;

use toolcrib_manifest::Models;
use toolcrib_rules::models::{matches_each, may_serve};

use super::{Policies, PolicyName};
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, Subject};

const FIELD: &str = "spec.models";

/// The models that policies deny to one agent.
#[derive(Default)]
pub(crate) struct DeniedModels {
    /// `provider/model`, or `provider/*` for all of a provider, with the reason.
    pub refs: BTreeMap<String, String>,
    /// The reason for which the agent has no model, if it has none.
    pub cause: Option<String>,
}

impl Policies {
    /// Takes away the models that a policy does not allow, and reports them. `listed_by`: the object
    /// that lists models, if one does.
    pub fn restrict_models(
        &self,
        objects: &dyn Objects,
        agent: &ObjectRef,
        models: &mut Option<Models>,
        listed_by: &Subject,
        found: &mut Diagnostics,
    ) -> DeniedModels {
        let specs = self.specs();
        let allowed: Vec<(PolicyName<'_>, &Vec<String>)> = specs
            .filter_map(|(policy, spec)| Some((policy, &spec.models.as_ref()?.allowed)))
            .collect();
        if allowed.is_empty() {
            return DeniedModels::default();
        }
        let lists = lists(&allowed);
        let subject = Subject::new(Kind::Agent, agent);
        let mut denied = DeniedModels::default();
        if let Some(models) = models {
            restrict_listed(
                models,
                &allowed,
                &mut |field, reference, message, is_fallback| {
                    // The finding is also reported on the agent, since the field may belong to
                    // another object.
                    let message = match *listed_by == subject {
                        true => message,
                        false => format!("{listed_by}: {field}: {message}"),
                    };
                    let field = match *listed_by == subject {
                        true => field,
                        false => FIELD.to_owned(),
                    };
                    found.add(&subject, field, Code::ModelDeniedByPolicy, message.clone());
                    if !is_fallback {
                        denied.cause.get_or_insert_with(|| message.clone());
                    }
                    denied.refs.insert(reference, message);
                },
            );
            return denied;
        }
        denied.cause = Some(format!(
            "policies of the cluster allow models that match {}, which no usable ModelProvider of namespace {} serves: create one, or ask an admin of the cluster to change the policy",
            in_words(&lists),
            agent.namespace
        ));
        for (provider, _) in objects.providers_in(&agent.namespace) {
            let denies = |(_, globs): &&(PolicyName<'_>, &Vec<String>)| {
                !may_serve(std::slice::from_ref(*globs), &provider.name)
            };
            let Some((policy, _)) = allowed.iter().find(denies) else {
                continue;
            };
            let message = format!(
                "the agent gets no model of ModelProvider {provider}, since {policy} allows none of it (spec.models.allowed): use another provider, or ask an admin of the cluster to change the policy"
            );
            found.add(&subject, FIELD, Code::ModelDeniedByPolicy, message.clone());
            denied.refs.insert(format!("{}/*", provider.name), message);
        }
        *models = Some(Models {
            matching: lists,
            ..Models::default()
        });
        denied
    }
}

/// Removes the models of an agent's list that a policy does not allow, and calls `report` with each:
/// field, ref, message, whether it is a fallback.
fn restrict_listed(
    models: &mut Models,
    allowed: &[(PolicyName<'_>, &Vec<String>)],
    report: &mut impl FnMut(String, String, String, bool),
) {
    let mut keeps = |field: String, reference: &String, what: &str, cure: &str, is_fallback| {
        let denies = |(_, globs): &&(PolicyName<'_>, &Vec<String>)| {
            !matches_each(std::slice::from_ref(*globs), reference)
        };
        let Some((policy, _)) = allowed.iter().find(denies) else {
            return true;
        };
        let message = format!(
            "{reference:?} {what}, since {policy} does not allow it (spec.models.allowed): {cure}, or ask an admin of the cluster to change the policy"
        );
        report(field, reference.clone(), message, is_fallback);
        false
    };
    let default = models.default.take();
    models.default = default.filter(|it| {
        let what = "is refused, and so are requests that name no model";
        let cure = "set a default that it allows";
        keeps(format!("{FIELD}.default"), it, what, cure, false)
    });
    let mut index = 0..;
    models.allowed.retain(|it| {
        let field = format!("{FIELD}.allowed[{}]", index.next().unwrap_or(0));
        keeps(field, it, "is refused", "leave it out", false)
    });
    let mut index = 0..;
    models.fallbacks.retain(|it| {
        let field = format!("{FIELD}.fallbacks[{}]", index.next().unwrap_or(0));
        keeps(field, it, "never steps in", "name another fallback", true)
    });
}

/// Returns the globs of each policy, in an order that does not depend on the order of the policies.
fn lists(allowed: &[(PolicyName<'_>, &Vec<String>)]) -> Vec<Vec<String>> {
    let sorted = |globs: &Vec<String>| {
        let mut globs = globs.clone();
        globs.sort();
        globs.dedup();
        globs
    };
    let mut lists: Vec<Vec<String>> = allowed.iter().map(|(_, globs)| sorted(globs)).collect();
    lists.sort();
    lists.dedup();
    lists
}

/// `openai/*, house/*; and */gpt-5`.
pub(crate) fn in_words(lists: &[Vec<String>]) -> String {
    let lists = lists.iter().map(|globs| globs.join(", "));
    Vec::from_iter(lists).join("; and ")
}

/// Reads the lists back from [`in_words`].
pub(crate) fn of_words(words: &str) -> Vec<Vec<String>> {
    let globs = |list: &str| list.split(", ").map(str::to_owned).collect();
    words.split("; and ").map(globs).collect()
}
