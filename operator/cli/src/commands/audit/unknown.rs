//! Suggestions for a filter that matches no call of the record: the names that the user may have
//! meant.
//!
//! Invariant: memory does not grow with the record.

use std::collections::BTreeSet;

use toolcrib_compile::near;

use crate::args::AuditQuery;
use crate::print;
use crate::record::Call;

/// Limits the names that are kept for a suggestion.
const MAX_NAMES: usize = 200;

/// The tools and grants in the record, kept for the filters of a query.
pub(super) struct SeenNames {
    tools: Option<BTreeSet<String>>,
    grants: Option<BTreeSet<String>>,
    agents: Option<BTreeSet<String>>,
    /// Whether any line is of the namespace and the agent of the query.
    is_any_wanted: bool,
}

impl SeenNames {
    pub fn new(query: &AuditQuery) -> Self {
        Self {
            tools: query.tool.as_ref().map(|_| BTreeSet::new()),
            grants: query.grant.as_ref().map(|_| BTreeSet::new()),
            agents: query.agent.as_ref().map(|_| BTreeSet::new()),
            is_any_wanted: false,
        }
    }

    /// Counts a line of this agent. `is_wanted`: the query is about the agent and its namespace.
    pub fn add_agent(&mut self, agent: &str, is_wanted: bool) {
        keep(&mut self.agents, agent);
        self.is_any_wanted |= is_wanted;
    }

    pub fn add(&mut self, call: &Call) {
        keep(&mut self.tools, &call.tool);
        if let Some(grant) = &call.grant {
            keep(&mut self.grants, grant);
        }
    }

    /// Prints a note for each filter whose name no call has.
    pub fn print_notes(&self, query: &AuditQuery) {
        let namespace = query.record.cluster.namespace.as_ref();
        if !self.is_any_wanted && (query.agent.is_some() || namespace.is_some()) {
            self.print_note_of_agent(query.agent.as_deref(), namespace.map(String::as_str));
            return;
        }
        if let (Some(seen), Some(tool)) = (&self.tools, &query.tool)
            && !seen.contains(tool)
        {
            note("used the tool", tool, seen);
        }
        if let (Some(seen), Some(grant)) = (&self.grants, &query.grant)
            && !seen.iter().any(|it| super::is_grant(it, grant))
        {
            note("was allowed by the grant", grant, seen);
        }
    }
}

impl SeenNames {
    fn print_note_of_agent(&self, agent: Option<&str>, namespace: Option<&str>) {
        let of = agent.map_or_else(String::new, |agent| format!(" of agent {agent}"));
        let place = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
        let seen = self.agents.iter().flatten().map(String::as_str);
        let meant = match agent.and_then(|agent| near::nearest(agent, seen)) {
            Some(meant) if agent != Some(meant) => format!("did you mean {}?", print::plain(meant)),
            Some(_) | None => {
                "check the name; the record of a pod ends with the pod, unless it is exported"
                    .to_owned()
            }
        };
        eprintln!("note: the record has no request{of}{place}: {meant}");
    }
}

fn keep(names: &mut Option<BTreeSet<String>>, name: &str) {
    if let Some(names) = names
        && names.len() < MAX_NAMES
        && !names.contains(name)
    {
        names.insert(name.to_owned());
    }
}

fn note(what: &str, name: &str, seen: &BTreeSet<String>) {
    // Beyond the bound the name may exist without having been kept.
    if seen.len() < MAX_NAMES {
        let meant = near::meant_or_known(name, seen.iter().map(String::as_str));
        eprintln!("note: no call {what} {name}: {}", print::plain(&meant));
    }
}
