//! The objects that are still to be read, for callers that read them one by one from an API
//! server.
//!
//! The caller looks at some objects, reads the missing keys, and looks again, until no key is
//! missing. There is no IO here: the caller reads, and adds the answers to the objects of its next
//! round.
//!
//! Invariant: a fetch ends. Each round names keys that no earlier round has named. Keys come from
//! the text of objects that were read: an Agent names Surfaces; a Surface names Services,
//! ConfigMaps and Secrets; these name nothing. All rounds together name at most as many keys as
//! the caller allows, and there are at most [`MOST_ROUNDS`].

use std::collections::BTreeSet;

use crate::{
    Key, Kind, Objects, Recorder, Subject, check_defaults, check_grant, check_policy,
    check_provider, check_surface, compile,
};

/// Limit on rounds. One object takes fewer, whatever it names (`tests/properties/looked_at.rs`).
/// Objects that are found on the way and evaluated too may take more.
pub const MOST_ROUNDS: usize = 8;

/// Why a fetch ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("over {most} {what}")]
pub struct OverBound {
    pub what: &'static str,
    pub most: usize,
}

/// Records the keys that were answered, and those that are missing.
#[derive(Debug)]
pub struct Fetch {
    most_keys: usize,
    rounds: usize,
    answered: BTreeSet<Key>,
    missing: BTreeSet<Key>,
    /// Objects, by side, whose keys are all answered.
    complete: BTreeSet<(usize, Subject)>,
}

impl Fetch {
    /// Starts a fetch that names at most `most_keys` keys in all rounds.
    pub fn new(most_keys: usize) -> Self {
        Self {
            most_keys,
            rounds: 0,
            answered: BTreeSet::new(),
            missing: BTreeSet::new(),
            complete: BTreeSet::new(),
        }
    }

    /// Compiles or checks `subject`, and notes the keys without an answer. An object whose keys
    /// are all answered is not compiled again. `side` numbers the sets of objects that are
    /// compared, such as those before and after a change.
    pub fn evaluate(&mut self, side: usize, objects: &dyn Objects, subject: &Subject) {
        let subject = (side, subject.clone());
        if self.complete.contains(&subject) {
            return;
        }
        let recorder = Recorder::new(objects);
        let (_, Subject { kind, key }) = &subject;
        match kind {
            Kind::Agent => drop(compile(&recorder, key)),
            Kind::Surface => drop(check_surface(&recorder, key)),
            Kind::ToolGrant => drop(check_grant(&recorder, key)),
            Kind::ToolDefaults => drop(check_defaults(&recorder, key)),
            Kind::ModelProvider => drop(check_provider(&recorder, key)),
            Kind::ClusterToolPolicy => drop(check_policy(&recorder, key)),
            Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => {}
        }
        let looked_at = recorder.looked_at();
        let mut missing = looked_at.difference(&self.answered).cloned().peekable();
        if missing.peek().is_none() {
            drop(missing);
            self.complete.insert(subject);
            return;
        }
        self.missing.extend(missing);
    }

    /// Returns the keys to read before the next round; from now on they count as answered. An
    /// empty set means that all objects are complete. An error is final: the objects that were
    /// read so far are incomplete and must not be used.
    pub fn missing(&mut self) -> Result<BTreeSet<Key>, OverBound> {
        if self.missing.is_empty() {
            return Ok(BTreeSet::new());
        }
        self.rounds += 1;
        bound(
            self.rounds,
            MOST_ROUNDS,
            "rounds of reading what objects name",
        )?;
        let keys = self.answered.len() + self.missing.len();
        bound(keys, self.most_keys, "objects and lists are affected")?;
        let missing = std::mem::take(&mut self.missing);
        self.answered.extend(missing.iter().cloned());
        Ok(missing)
    }
}

fn bound(count: usize, most: usize, what: &'static str) -> Result<(), OverBound> {
    if count > most {
        return Err(OverBound { what, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, ObjectRef, Settings};

    fn look_at(fetch: &mut Fetch, agent: usize) {
        let key = ObjectRef::new("pond", format!("agent-{agent}"));
        let inputs = Inputs::offline(Settings::default());
        fetch.evaluate(0, &inputs, &Subject::new(Kind::Agent, &key));
    }

    #[test]
    fn a_fetch_ends_at_its_bound_on_keys() {
        let mut fetch = Fetch::new(usize::MAX);
        look_at(&mut fetch, 0);
        let keys = fetch.missing().unwrap().len();
        assert!(keys > 0);
        let mut fetch = Fetch::new(2 * keys);
        for agent in 0..2 {
            look_at(&mut fetch, agent);
            assert_eq!(fetch.missing().map(|keys| keys.len()), Ok(keys));
        }
        // A key that was answered counts once, however often it is asked for.
        look_at(&mut fetch, 1);
        assert_eq!(fetch.missing(), Ok(BTreeSet::new()));
        look_at(&mut fetch, 2);
        let over = fetch.missing().unwrap_err();
        assert_eq!(over.most, 2 * keys);
        // The error is final.
        assert_eq!(fetch.missing(), Err(over));
    }

    #[test]
    fn a_fetch_that_misses_keys_in_every_round_ends() {
        let mut fetch = Fetch::new(usize::MAX);
        for agent in 0..MOST_ROUNDS {
            look_at(&mut fetch, agent);
            assert!(!fetch.missing().unwrap().is_empty());
        }
        look_at(&mut fetch, MOST_ROUNDS);
        let over = fetch.missing().unwrap_err();
        assert_eq!(
            over.to_string(),
            "over 8 rounds of reading what objects name"
        );
    }
}
