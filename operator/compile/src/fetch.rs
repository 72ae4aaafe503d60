//! Which objects are still to be read, for whoever reads them one by one from an API server.
//!
//! The caller asks about some objects, reads the keys that nothing has answered yet, and asks again,
//! until none is missing. Here is no IO: the caller reads, and puts what it found into the
//! objects that it asks next time.
//!
//! It ends: each round names keys that no round before has named, and these stand in the text of
//! objects that were read (an Agent names Surfaces; a Surface names Services, ConfigMaps and
//! Secrets; these name nothing). How many keys may be read is the caller's bound.

use std::collections::BTreeSet;

use crate::{
    Key, Kind, Objects, Recorder, Subject, check_defaults, check_grant, check_provider,
    check_surface, compile,
};

/// Which keys were answered so far, and which are missing.
#[derive(Debug, Default)]
pub struct Fetch {
    answered: BTreeSet<Key>,
    missing: BTreeSet<Key>,
    /// Objects that looked at answered keys alone, by side.
    complete: BTreeSet<(usize, Subject)>,
}

impl Fetch {
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
    /// objects that were looked at are complete.
    pub fn missing(&mut self) -> BTreeSet<Key> {
        let missing = std::mem::take(&mut self.missing);
        self.answered.extend(missing.iter().cloned());
        missing
    }
}
