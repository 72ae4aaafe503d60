//! Repetition detection: the calls that ran in this turn.

use std::collections::HashMap;

use toolcrib_dialect::json;
use toolcrib_manifest::Annotations;

use crate::calls::call::ManagedCall;
use crate::calls::outcome::Certainty;
use crate::calls::trace::DuplicateOf;

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
    pub(super) fn duplicate(&mut self, key: &Key, annotations: Annotations) -> Option<DuplicateOf> {
        let executed = self.calls.get_mut(key)?;
        let may_run = match executed.certainty {
            Certainty::NeverRan | Certainty::Unreached | Certainty::Transient => true,
            // A second read does no harm.
            Certainty::Unclear => annotations.idempotent || annotations.read_only,
            Certainty::Ran => false,
        };
        if may_run || annotations.polling {
            return None;
        }
        executed.repeated += 1;
        Some(DuplicateOf {
            round: executed.round,
            count: executed.repeated,
        })
    }

    /// Records an execution. The most certain outcome counts, so a later failure never hides that
    /// the call had an effect; of equally certain ones, the latest counts.
    pub(super) fn executed(&mut self, key: Key, round: u32, certainty: Certainty) {
        let entry = self.calls.entry(key).or_insert(ExecutedCall {
            round,
            certainty,
            repeated: 0,
        });
        if rank(certainty) >= rank(entry.certainty) {
            entry.certainty = certainty;
            entry.round = round;
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
