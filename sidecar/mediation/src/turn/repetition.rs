//! Repetition detection: the calls that ran in this turn, and the keys of those that are sent again.

use std::collections::HashMap;

use toolcrib_dialect::json;

use crate::calls::call::{CallId, ManagedCall};
use crate::calls::outcome::Certainty;
use crate::calls::trace::DuplicateOf;
use crate::tools::catalog::CatalogTool;

/// Executed calls by canonical name and canonical arguments.
#[derive(Debug, Default)]
pub(super) struct Repetitions {
    calls: HashMap<Key, ExecutedCall>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(String, String);

#[derive(Debug)]
struct ExecutedCall {
    /// The round whose result counts: see [`Repetitions::executed`].
    round: u32,
    certainty: Certainty,
    repeated: u32,
    /// The first attempt since the last one that ran for certain, `None` after that one: a polling tool
    /// that is called again after a success wants a new answer.
    first_attempt: Option<CallId>,
}

impl Key {
    pub(super) fn of(call: &ManagedCall) -> Self {
        let arguments = call.arguments.get();
        Self(
            call.name.clone(),
            json::canonical(arguments).unwrap_or_else(|| arguments.to_string()),
        )
    }
}

impl Repetitions {
    /// Returns `Some` if the call ran already and must not run again.
    pub(super) fn duplicate(&mut self, key: &Key, tool: &CatalogTool) -> Option<DuplicateOf> {
        let executed = self.calls.get_mut(key)?;
        let may_run = match executed.certainty {
            Certainty::NeverRan | Certainty::Unreached | Certainty::Transient => true,
            Certainty::Unclear => tool.may_be_sent_again(),
            Certainty::Ran => false,
        };
        if may_run || tool.annotations.polling {
            return None;
        }
        executed.repeated += 1;
        Some(DuplicateOf {
            round: executed.round,
            count: executed.repeated,
        })
    }

    /// Returns the attempt that a call with this key repeats.
    pub(super) fn first_attempt(&self, key: &Key) -> Option<CallId> {
        self.calls.get(key)?.first_attempt
    }

    /// Records an execution. The most certain outcome counts, so a later failure never hides that
    /// the call had an effect; of equally certain ones, the latest counts.
    pub(super) fn executed(&mut self, key: Key, id: CallId, certainty: Certainty) {
        let entry = self.calls.entry(key).or_insert(ExecutedCall {
            round: id.round,
            certainty,
            repeated: 0,
            first_attempt: None,
        });
        if rank(certainty) >= rank(entry.certainty) {
            entry.certainty = certainty;
            entry.round = id.round;
        }
        match certainty {
            Certainty::Ran => entry.first_attempt = None,
            Certainty::NeverRan
            | Certainty::Unreached
            | Certainty::Transient
            | Certainty::Unclear => {
                entry.first_attempt.get_or_insert(id);
            }
        }
    }
}

fn rank(certainty: Certainty) -> u32 {
    match certainty {
        Certainty::NeverRan => 0,
        Certainty::Unreached => 1,
        Certainty::Transient => 2,
        Certainty::Unclear => 3,
        Certainty::Ran => 4,
    }
}
