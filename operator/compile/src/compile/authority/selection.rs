//! The grants of an agent, by name and by label, and the agents of a grant.
//!
//! Invariant: selectors select no agent unless the cluster is known to protect the labels
//! ([`AgentSelectors`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_crds::{Agent, ToolGrant};

use crate::diagnostics::finding::Finding;
use crate::objects::List;
use crate::objects::agent_selector::{Selector, labels_of};
use crate::{AgentSelectors, Code, Diagnostics, ObjectRef, Objects, Subject};

/// Returns the grants that name the agent or select it, in order of name.
pub(crate) fn grants_for(objects: &dyn Objects, key: &ObjectRef, agent: &Agent) -> List<ToolGrant> {
    let named = objects.grants_for(key).into_iter();
    let mut grants: BTreeMap<ObjectRef, Arc<ToolGrant>> = named.collect();
    if objects.settings().agent_selectors == AgentSelectors::Guarded {
        let found = labels_of(key, agent).into_iter();
        let found = found.flat_map(|label| objects.grants_selecting(&label));
        let selects = |grant: &ToolGrant| Selector::of(grant).is_some_and(|it| it.matches(agent));
        grants.extend(found.filter(|(_, grant)| selects(grant)));
    }
    grants.into_iter().collect()
}

/// Returns the agents that the grant selects, in order of name; also those that it names.
pub(crate) fn agents_selected(
    objects: &dyn Objects,
    key: &ObjectRef,
    grant: &ToolGrant,
) -> List<Agent> {
    let is_guarded = objects.settings().agent_selectors == AgentSelectors::Guarded;
    let Some(selector) = Selector::of(grant).filter(|_| is_guarded) else {
        return Vec::new();
    };
    let found = selector.labels(&key.namespace).into_iter();
    let found = found.flat_map(|label| objects.agents_labelled(&label));
    let found = found.filter(|(_, agent)| selector.matches(agent));
    let found: BTreeMap<ObjectRef, Arc<Agent>> = found.collect();
    found.into_iter().collect()
}

/// Returns the grants among these that do not name the agent, with words for their selectors.
pub(crate) fn by_selector(
    agent: &ObjectRef,
    grants: &[(ObjectRef, Arc<ToolGrant>)],
) -> BTreeMap<ObjectRef, String> {
    let unnamed = grants
        .iter()
        .filter(|(_, grant)| !grant.spec.agents.contains(&agent.name));
    unnamed
        .filter_map(|(key, grant)| Some((key.clone(), words(grant)?)))
        .collect()
}

/// Returns words for a grant's selector, as in `kubectl -l`. `None`: it has none that can be used.
pub(crate) fn words(grant: &ToolGrant) -> Option<String> {
    Some(Selector::of(grant)?.to_string())
}

/// Reports a selector that is refused, off, or selects no agent.
pub(crate) fn report(
    objects: &dyn Objects,
    subject: &Subject,
    grant: &ToolGrant,
    selected: &[(ObjectRef, Arc<Agent>)],
    found: &mut Diagnostics,
) {
    let Some(selector) = &grant.spec.agent_selector else {
        return;
    };
    let finding = |code, message: String| Finding::new("spec.agentSelector", code, message);
    let finding = match (
        Selector::read(selector),
        &objects.settings().agent_selectors,
    ) {
        (Err(refused), _) => refused,
        (Ok(_), AgentSelectors::Off(why)) => finding(
            Code::SelectorsOff,
            format!("selects no agent: {why}; name the agents under spec.agents meanwhile"),
        ),
        (Ok(selector), AgentSelectors::Guarded) if selected.is_empty() => finding(
            Code::SelectsNoAgent,
            format!(
                "no agent of namespace {} has {selector}: label one, or correct the selector",
                subject.key.namespace
            ),
        ),
        (Ok(_), AgentSelectors::Guarded) => return,
    };
    finding.report(subject, found);
}

/// Returns the names of a grant's agents: first those that it names, whether they exist or not,
/// then the others that it selects.
pub(crate) fn agent_names(grant: &ToolGrant, selected: &[(ObjectRef, Arc<Agent>)]) -> Vec<String> {
    let named: BTreeSet<&String> = grant.spec.agents.iter().collect();
    let besides = selected.iter().map(|(key, _)| &key.name);
    let besides = besides.filter(|name| !named.contains(name));
    grant.spec.agents.iter().chain(besides).cloned().collect()
}
