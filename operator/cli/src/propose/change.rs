//! Replaces the agent's present grants by the proposed ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolcrib_compile::{Compilation, GrantSource, Inputs, ObjectRef};
use toolcrib_crds::{FeedRule, ToolGrant, ToolRule};

/// The grants that name the agent now.
pub fn present<'i>(inputs: &'i Inputs, agent: &ObjectRef) -> Vec<(&'i ObjectRef, &'i ToolGrant)> {
    let names = |key: &ObjectRef, grant: &ToolGrant| {
        key.namespace == agent.namespace && grant.spec.agents.contains(&agent.name)
    };
    let grants = inputs.grants().filter(|(key, grant)| names(key, grant));
    grants.collect()
}

/// The feeds that these grants give now.
pub fn feeds(grants: &[(&ObjectRef, &ToolGrant)]) -> Vec<FeedRule> {
    let mut feeds: Vec<FeedRule> = Vec::new();
    for (_, grant) in grants.iter().filter(|(_, it)| !it.spec.is_suspended()) {
        for rule in &grant.spec.feeds {
            if !feeds.contains(rule) {
                feeds.push(rule.clone());
            }
        }
    }
    feeds
}

/// The grants with a window, with rates or with conditions (`when`), which no record shows.
pub fn conditional(grants: &[(&ObjectRef, &ToolGrant)]) -> Vec<ObjectRef> {
    let is_conditional = |grant: &ToolGrant| {
        let spec = &grant.spec;
        let is_conditional = |rule: &ToolRule| !rule.rate.is_empty() || !rule.when.is_empty();
        let has_conditions = spec.tools.iter().any(is_conditional);
        spec.not_before.is_some() || spec.not_after.is_some() || has_conditions
    };
    let found = grants.iter().filter(|(_, grant)| is_conditional(grant));
    found.map(|(key, _)| (*key).clone()).collect()
}

/// Removes the agent from the grants that name it, and adds the new ones. Grants that select it by labels
/// stay: they are for other agents too.
pub fn replaced(before: &Inputs, agent: &ObjectRef, grants: &[ToolGrant]) -> Inputs {
    let mut after = before.clone();
    for (key, grant) in present(before, agent) {
        let mut rest = grant.clone();
        rest.spec.agents.retain(|name| *name != agent.name);
        after.remove_grant(key);
        if !rest.spec.agents.is_empty() || rest.spec.agent_selector.is_some() {
            after.set_grant(Arc::new(rest));
        }
    }
    for grant in grants {
        after.set_grant(Arc::new(grant.clone()));
    }
    after
}

/// Returns the other objects that still give one of these tools, each with the tool: they give it
/// without the limits of the proposed grants.
pub fn still_given(
    after: &Compilation,
    proposed: &[ObjectRef],
    tools: &[&str],
) -> BTreeSet<(GrantSource, String)> {
    let mut found = BTreeSet::new();
    for tool in after.tools.iter().filter(|it| tools.contains(&&*it.name)) {
        let rules = tool.rules.iter().map(|rule| &rule.grant);
        let sources = std::iter::once(&tool.grant).chain(rules);
        for source in sources.filter(|source| !proposed.contains(&source.key)) {
            found.insert((source.clone(), tool.name.clone()));
        }
    }
    found
}
