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
pub(super) struct NamesSeen {
    tools: Option<BTreeSet<String>>,
    grants: Option<BTreeSet<String>>,
}

impl NamesSeen {
    pub fn new(query: &AuditQuery) -> Self {
        Self {
            tools: query.tool.as_ref().map(|_| BTreeSet::new()),
            grants: query.grant.as_ref().map(|_| BTreeSet::new()),
        }
    }

    pub fn add(&mut self, call: &Call) {
        keep(&mut self.tools, &call.tool);
        if let Some(grant) = &call.grant {
            keep(&mut self.grants, grant);
        }
    }

    /// Prints a note for each filter whose name no call has.
    pub fn print_notes(&self, query: &AuditQuery) {
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
