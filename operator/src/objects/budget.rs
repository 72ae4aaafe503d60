//! How much memory the objects of a namespace may take, and which of them are within it.
//!
//! Oldest first: an object is within the budget while it fits together with every older one of
//! its namespace. So a new object never pushes out one that is in force, and removing or
//! shrinking an object pushes out none. Objects over the budget are kept without their body.
//!
//! [`Ledger`] decides for one namespace, and is pure; [`Budget`] holds all of them and tells the
//! tables which namespaces to look at again.
//!
//! Invariant: the verdicts depend on what is there, not on the order in which it was seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;
use toolcrib_bounds::NAMESPACE_WEIGHT;
use toolcrib_compile::{Kind, ObjectRef};

/// An object's place among those of its namespace: by age, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    created: Timestamp,
    name: String,
    kind: Kind,
}

/// The objects of one namespace and what they weigh.
#[derive(Debug)]
struct Ledger {
    budget: usize,
    weights: BTreeMap<Rank, usize>,
    ranks: HashMap<(Kind, String), Rank>,
    total: usize,
    /// The first object over the budget: it and all younger ones are out.
    first_out: Option<Rank>,
}

impl Ledger {
    fn new(budget: usize) -> Self {
        Self {
            budget,
            weights: BTreeMap::new(),
            ranks: HashMap::new(),
            total: 0,
            first_out: None,
        }
    }

    /// Enters an object, or what it weighs now. Whether another object is in or out by it.
    fn set(&mut self, kind: Kind, name: &str, created: Option<Timestamp>, weight: usize) -> bool {
        let rank = Rank {
            // Every stored object has its time; one without waits behind those with.
            created: created.unwrap_or(Timestamp::MAX),
            name: name.to_owned(),
            kind,
        };
        let key = (kind, name.to_owned());
        let before = self.ranks.insert(key, rank.clone());
        if before.as_ref() == Some(&rank) && self.weights.get(&rank) == Some(&weight) {
            return false;
        }
        if let Some(before) = before {
            self.total -= self.weights.remove(&before).unwrap_or(0);
        }
        self.total += weight;
        self.weights.insert(rank, weight);
        self.look()
    }

    fn remove(&mut self, kind: Kind, name: &str) -> bool {
        let Some(rank) = self.ranks.remove(&(kind, name.to_owned())) else {
            return false;
        };
        self.total -= self.weights.remove(&rank).unwrap_or(0);
        self.look()
    }

    fn fits(&self, kind: Kind, name: &str) -> bool {
        let rank = self.ranks.get(&(kind, name.to_owned()));
        match (rank, &self.first_out) {
            (Some(rank), Some(first_out)) => rank < first_out,
            (Some(_), None) | (None, _) => true,
        }
    }

    /// Finds the first object over the budget; whether it is another than before.
    fn look(&mut self) -> bool {
        let mut spent = 0_usize;
        let over = |weight: &usize| {
            spent = spent.saturating_add(*weight);
            spent > self.budget
        };
        let first_out = if self.total <= self.budget {
            None
        } else {
            let mut over = over;
            let mut weights = self.weights.iter();
            weights
                .find(|(_, weight)| over(weight))
                .map(|(rank, _)| rank.clone())
        };
        let moved = first_out != self.first_out;
        self.first_out = first_out;
        moved
    }
}

/// The budgets of all namespaces.
#[derive(Debug)]
pub struct Budget {
    per_namespace: usize,
    state: Mutex<State>,
    /// Sent when a namespace is to be looked at again.
    moved: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    ledgers: HashMap<String, Ledger>,
    /// Namespaces in which a table of this kind has something to put in or out.
    moved: HashMap<Kind, BTreeSet<String>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(NAMESPACE_WEIGHT)
    }
}

/// The kinds whose bodies are kept.
pub const KINDS: [Kind; 8] = [
    Kind::Surface,
    Kind::Agent,
    Kind::ToolGrant,
    Kind::ToolDefaults,
    Kind::ModelProvider,
    Kind::Service,
    Kind::Secret,
    Kind::ConfigMap,
];

impl Budget {
    pub fn of(per_namespace: usize) -> Self {
        Self {
            per_namespace,
            state: Mutex::default(),
            moved: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an object; whether it is within the budget.
    pub fn enter(
        &self,
        kind: Kind,
        object: &ObjectRef,
        created: Option<Timestamp>,
        weight: usize,
    ) -> bool {
        let mut state = self.state();
        let ledgers = &mut state.ledgers;
        let ledger = match ledgers.get_mut(&object.namespace) {
            Some(ledger) => ledger,
            None => ledgers
                .entry(object.namespace.clone())
                .or_insert_with(|| Ledger::new(self.per_namespace)),
        };
        let moved = ledger.set(kind, &object.name, created, weight);
        let fits = ledger.fits(kind, &object.name);
        self.note(&mut state, object, moved);
        fits
    }

    pub fn remove(&self, kind: Kind, object: &ObjectRef) {
        let mut state = self.state();
        let Some(ledger) = state.ledgers.get_mut(&object.namespace) else {
            return;
        };
        let moved = ledger.remove(kind, &object.name);
        if ledger.ranks.is_empty() {
            state.ledgers.remove(&object.namespace);
        }
        self.note(&mut state, object, moved);
    }

    /// Removes the objects of a kind that are not there.
    pub fn retain(&self, kind: Kind, is_there: impl Fn(&ObjectRef) -> bool) {
        let entered: Vec<ObjectRef> = {
            let state = self.state();
            let ledgers = state.ledgers.iter();
            let ranks = ledgers.flat_map(|(namespace, ledger)| {
                let names = ledger.ranks.keys().filter(|(other, _)| *other == kind);
                names.map(move |(_, name)| ObjectRef::new(&**namespace, &**name))
            });
            ranks.collect()
        };
        for object in entered.iter().filter(|object| !is_there(object)) {
            self.remove(kind, object);
        }
    }

    pub fn fits(&self, kind: Kind, object: &ObjectRef) -> bool {
        let state = self.state();
        let ledger = state.ledgers.get(&object.namespace);
        ledger.is_none_or(|ledger| ledger.fits(kind, &object.name))
    }

    fn note(&self, state: &mut State, object: &ObjectRef, moved: bool) {
        if !moved {
            return;
        }
        for kind in KINDS {
            let namespaces = state.moved.entry(kind).or_default();
            namespaces.insert(object.namespace.clone());
        }
        self.moved.send_replace(());
    }

    /// Namespaces in which objects of this kind may have come in or gone out since the last call.
    pub fn moved(&self, kind: Kind) -> BTreeSet<String> {
        self.state().moved.remove(&kind).unwrap_or_default()
    }

    /// Has these namespaces looked at once more.
    pub fn again(&self, kind: Kind, namespaces: BTreeSet<String>) {
        self.state()
            .moved
            .entry(kind)
            .or_default()
            .extend(namespaces);
    }

    /// Wakes whoever asks for [`Self::moved`].
    pub fn watch(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}

/// What to tell about an object over the namespace's budget.
pub fn over_namespace() -> String {
    format!(
        "the older objects of this namespace take all of the {} MiB that the operator keeps of one: delete or shrink some",
        NAMESPACE_WEIGHT >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn ledger(entries: &[(&str, i64, usize)]) -> Ledger {
        let mut ledger = Ledger::new(100);
        for (name, created, weight) in entries {
            ledger.set(Kind::Surface, name, at(*created), *weight);
        }
        ledger
    }

    #[track_caller]
    fn check(ledger: &Ledger, expected: &[&str]) {
        let mut within: Vec<&str> = ledger
            .ranks
            .keys()
            .filter(|(kind, name)| ledger.fits(*kind, name))
            .map(|(_, name)| &**name)
            .collect();
        within.sort_unstable();
        assert_eq!(within, expected, "{ledger:?}");
    }

    #[test]
    fn the_oldest_objects_are_within_the_budget_in_whatever_order_they_are_seen() {
        let mut entries = [
            ("heron", 3, 40),
            ("newt", 1, 40),
            ("otter", 2, 40),
            ("vole", 3, 1),
        ];
        for _ in 0..entries.len() {
            entries.rotate_left(1);
            // A small one does not slip past a large one that is older.
            check(&ledger(&entries), &["newt", "otter"]);
        }
        // Of the same age, by name.
        check(&ledger(&[("b", 1, 60), ("a", 1, 60)]), &["a"]);
    }

    #[test]
    fn a_new_object_pushes_out_none_and_one_that_goes_makes_room() {
        let mut ledger = ledger(&[("newt", 1, 60), ("otter", 2, 40)]);
        check(&ledger, &["newt", "otter"]);
        assert!(ledger.set(Kind::Surface, "heron", at(3), 100));
        check(&ledger, &["newt", "otter"]);
        assert!(
            ledger.set(Kind::Surface, "newt", at(1), 61),
            "an older one grew"
        );
        check(&ledger, &["newt"]);
        assert!(ledger.remove(Kind::Surface, "heron") || ledger.first_out.is_some());
        check(&ledger, &["newt"]);
        assert!(ledger.remove(Kind::Surface, "newt"));
        check(&ledger, &["otter"]);
        assert_eq!(ledger.total, 40);
    }

    #[test]
    fn an_object_that_is_made_again_is_a_new_one() {
        let mut ledger = ledger(&[("newt", 1, 60), ("otter", 2, 60)]);
        check(&ledger, &["newt"]);
        ledger.set(Kind::Surface, "newt", at(3), 60);
        check(&ledger, &["otter"]);
    }

    #[test]
    fn each_table_hears_once_of_a_namespace_whose_verdicts_moved() {
        let budget = Budget::of(100);
        let (newt, otter) = (
            ObjectRef::new("pond", "newt"),
            ObjectRef::new("pond", "otter"),
        );
        assert!(budget.enter(Kind::Surface, &newt, at(1), 60));
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        assert!(!budget.enter(Kind::Agent, &otter, at(2), 60));
        assert!(budget.enter(Kind::Surface, &ObjectRef::new("lake", "newt"), at(3), 60));
        let pond = BTreeSet::from(["pond".to_owned()]);
        assert_eq!(budget.moved(Kind::Agent), pond);
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        budget.remove(Kind::Surface, &newt);
        assert!(budget.fits(Kind::Agent, &otter));
        assert_eq!(budget.moved(Kind::Agent), pond);
    }
}
