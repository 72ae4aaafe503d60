//! Which objects are still to be read, for whoever reads them one by one from an API server.
//!
//! The caller asks about some objects, reads the keys that nothing has answered yet, and asks again,
//! until none is missing. Here is no IO: the caller reads, and puts what it found into the
//! objects that it asks next time.
//!
//! Invariant: it ends. Each round names keys that no earlier round has named. The keys stand in the
//! text of objects that were read: an Agent names Surfaces; a Surface names Services, ConfigMaps and
//! Secrets; these name nothing. All rounds together name at most as many keys as the caller allows,
//! and there are at most [`MOST_ROUNDS`].

use std::collections::BTreeSet;

use crate::{
    Key, Kind, Objects, Recorder, Subject, check_defaults, check_grant, check_provider,
    check_surface, compile,
};

/// Rounds of reading. One object takes fewer, however much it names (`tests/looked_at.rs`); objects
/// that are found on the way, and are looked at as well, may take more.
pub const MOST_ROUNDS: usize = 8;

/// Why a fetch ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("over {most} {what}")]
pub struct OverBound {
    pub what: &'static str,
    pub most: usize,
}

/// Which keys were answered so far, and which are missing.
#[derive(Debug)]
pub struct Fetch {
    most_keys: usize,
    rounds: usize,
    answered: BTreeSet<Key>,
    missing: BTreeSet<Key>,
    /// Objects that looked at answered keys alone, by side.
    complete: BTreeSet<(usize, Subject)>,
}

impl Fetch {
    /// A fetch that names at most `most_keys` keys in all its rounds.
    pub fn new(most_keys: usize) -> Self {
        Self {
            most_keys,
            rounds: 0,
            answered: BTreeSet::new(),
            missing: BTreeSet::new(),
            complete: BTreeSet::new(),
        }
    }

    /// Compiles or checks `subject`, and notes what that looked at and nothing has answered yet. An
    /// object that has all its answers is not compiled again. `side` numbers sets of objects that
    /// are compared, such as those before and after a change.
    pub fn look(&mut self, side: usize, objects: &dyn Objects, subject: &Subject) {
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

    /// The keys to read before the next round; from now on they count as answered. None: the
    /// objects that were looked at are complete. Over a bound, they never will be: what was read so
    /// far is no answer.
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
        bound(keys, self.most_keys, "objects and lists are concerned")?;
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
        fetch.look(0, &inputs, &Subject::new(Kind::Agent, &key));
    }

    #[test]
    fn a_fetch_names_no_more_keys_than_it_may() {
        let mut fetch = Fetch::new(usize::MAX);
        look_at(&mut fetch, 0);
        let keys = fetch.missing().unwrap().len();
        assert!(keys > 0);
        let mut fetch = Fetch::new(2 * keys);
        for agent in 0..2 {
            look_at(&mut fetch, agent);
            assert_eq!(fetch.missing().map(|keys| keys.len()), Ok(keys));
        }
        // A key that was answered counts once, however often it is asked.
        look_at(&mut fetch, 1);
        assert_eq!(fetch.missing(), Ok(BTreeSet::new()));
        look_at(&mut fetch, 2);
        let over = fetch.missing().unwrap_err();
        assert_eq!(over.most, 2 * keys);
        // It stays so.
        assert_eq!(fetch.missing(), Err(over));
    }

    #[test]
    fn a_fetch_that_misses_something_in_every_round_ends() {
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
