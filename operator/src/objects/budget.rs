//! Bounds the memory of cached objects, and decides which objects are within the bounds.
//!
//! There are two bounds: one for the objects of each namespace, and one for all namespaces
//! together, which depends on the process' memory limit. If all namespaces together need more, each
//! gets an equal share; a namespace that needs less keeps all its objects, and the other namespaces
//! share the rest.
//!
//! Within a namespace the oldest objects come first: an object is within the budget if it fits
//! together with every older one. So a new object never evicts one that is in force, and removing
//! or shrinking an object evicts none. Between namespaces fairness comes before age. Objects over
//! the budget are kept without their body.
//!
//! [`Ledger`] decides for one namespace, [`State`] divides the memory among all; both are pure.
//! [`Budget`] holds them and tells the stores which namespaces changed.
//!
//! Invariant: the verdicts depend on the objects, not on the order of their arrival.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use toolcrib_bounds::NAMESPACE_WEIGHT;
use toolcrib_compile::{Kind, ObjectRef};

/// The bound that an object exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The older objects of its namespace take the namespace's whole budget.
    Namespace,
    /// All namespaces together exceed the budget, and its namespace is over an equal share.
    Process,
}

/// The message about an object over a bound. It contains no figure that depends on other objects, so
/// a change of those does not rewrite the status.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Namespace => write!(
                f,
                "the older objects of this namespace use up its budget of {} MiB in the operator's memory: delete or shrink some",
                NAMESPACE_WEIGHT >> 20
            ),
            Shortage::Process => f.write_str(
                "the objects of all namespaces together exceed the operator's memory budget, and this namespace is over its equal share: delete or shrink some of its objects, or have controller.resources.limits.memory of the chart raised",
            ),
        }
    }
}

/// The rank of an object within its namespace: by age, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    created: Timestamp,
    name: String,
    kind: Kind,
}

/// The first object over a bound. It and all younger objects are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BudgetCut {
    first_out: Option<Rank>,
    /// Weight of the objects before it.
    kept: usize,
    /// Number of the objects before it.
    count: usize,
}

/// The objects of one namespace and their weights.
#[derive(Debug)]
struct Ledger {
    budget: usize,
    /// The namespace's share of the process' budget; equal to `budget` while there is enough memory.
    share: usize,
    weights: BTreeMap<Rank, usize>,
    ranks: HashMap<(Kind, String), Rank>,
    total: usize,
    by_budget: BudgetCut,
    by_share: BudgetCut,
}

impl Ledger {
    fn new(budget: usize, share: usize) -> Self {
        Self {
            budget,
            share,
            weights: BTreeMap::new(),
            ranks: HashMap::new(),
            total: 0,
            by_budget: BudgetCut::default(),
            by_share: BudgetCut::default(),
        }
    }

    /// Enters an object, or its new weight. Returns whether the verdict of any object may have
    /// changed.
    fn set(&mut self, kind: Kind, name: &str, created: Option<Timestamp>, weight: usize) -> bool {
        let rank = Rank {
            // The API server sets the time of every object; an object without it ranks last.
            created: created.unwrap_or(Timestamp::MAX),
            name: name.to_owned(),
            kind,
        };
        let key = (kind, name.to_owned());
        let before = self.ranks.insert(key, rank.clone());
        if before.as_ref() == Some(&rank) && self.weights.get(&rank) == Some(&weight) {
            return false;
        }
        let is_out = |rank: &Rank| self.is_out(rank);
        let affects_no_other = is_out(&rank) && before.as_ref().is_none_or(is_out);
        if let Some(before) = before {
            self.total -= self.weights.remove(&before).unwrap_or(0);
        }
        self.total += weight;
        self.weights.insert(rank, weight);
        // An object behind the first one over the bound affects no other.
        !affects_no_other && self.decide()
    }

    fn remove(&mut self, kind: Kind, name: &str) -> bool {
        let Some(rank) = self.ranks.remove(&(kind, name.to_owned())) else {
            return false;
        };
        let affects_no_other = self.is_out(&rank);
        self.total -= self.weights.remove(&rank).unwrap_or(0);
        !affects_no_other && self.decide()
    }

    /// Whether an object of this rank is behind the first object over each bound.
    fn is_out(&self, rank: &Rank) -> bool {
        let behind = |cut: &BudgetCut| cut.first_out.as_ref().is_some_and(|first| first < rank);
        behind(&self.by_budget) && behind(&self.by_share)
    }

    fn set_share(&mut self, share: usize) -> bool {
        self.share = share;
        self.decide()
    }

    fn check(&self, kind: Kind, name: &str) -> Result<(), Shortage> {
        let Some(rank) = self.ranks.get(&(kind, name.to_owned())) else {
            return Ok(());
        };
        let is_out = |cut: &BudgetCut| cut.first_out.as_ref().is_some_and(|first| first <= rank);
        if is_out(&self.by_budget) {
            Err(Shortage::Namespace)
        } else if is_out(&self.by_share) {
            Err(Shortage::Process)
        } else {
            Ok(())
        }
    }

    /// Bytes that the namespace keeps if there is memory for all.
    fn wanted(&self) -> usize {
        self.by_budget.kept
    }

    /// Finds the first object over each bound. Returns whether either changed.
    fn decide(&mut self) -> bool {
        let by_budget = self.cut(self.budget);
        let by_share = if self.share < self.budget {
            self.cut(self.share)
        } else {
            by_budget.clone()
        };
        let moved = by_budget.first_out != self.by_budget.first_out
            || by_share.first_out != self.by_share.first_out;
        self.by_budget = by_budget;
        self.by_share = by_share;
        moved
    }

    fn cut(&self, bound: usize) -> BudgetCut {
        if self.total <= bound {
            return BudgetCut {
                first_out: None,
                kept: self.total,
                count: self.weights.len(),
            };
        }
        let (mut kept, mut count) = (0_usize, 0);
        for (rank, weight) in &self.weights {
            let with = kept.saturating_add(*weight);
            if with > bound {
                return BudgetCut {
                    first_out: Some(rank.clone()),
                    kept,
                    count,
                };
            }
            kept = with;
            count += 1;
        }
        BudgetCut {
            first_out: None,
            kept,
            count,
        }
    }
}

/// Memory and number of the objects of all namespaces, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the objects that are within the budget.
    pub bytes: usize,
    pub budget_bytes: usize,
    /// Number of objects that are kept without their body.
    pub left_out: usize,
}

/// The budgets of all namespaces.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
    /// Signals that verdicts of a namespace changed.
    moved: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    per_namespace: usize,
    /// Budget of all namespaces together.
    whole: usize,
    /// Possible shares of a namespace, ascending from 0 to `per_namespace`. They are few, so that
    /// the share does not change with every object.
    levels: Vec<usize>,
    share: usize,
    ledgers: HashMap<String, Ledger>,
    /// The sum of [`Ledger::wanted`].
    wanted: usize,
    /// Namespaces whose verdicts changed, by the kind of the store that has not looked yet.
    moved: HashMap<Kind, BTreeSet<String>>,
}

/// The kinds whose bodies are kept.
pub const KINDS: [Kind; 9] = [
    Kind::Surface,
    Kind::Agent,
    Kind::ToolGrant,
    Kind::ToolDefaults,
    Kind::ModelProvider,
    Kind::ClusterToolPolicy,
    Kind::Service,
    Kind::Secret,
    Kind::ConfigMap,
];

impl State {
    fn new(per_namespace: usize, whole: usize) -> Self {
        let mut levels = vec![per_namespace];
        let mut level = per_namespace;
        while level > 0 {
            // Each level is a sixteenth below the previous one.
            level -= (level / 16).max(1);
            levels.push(level);
        }
        levels.reverse();
        Self {
            per_namespace,
            whole,
            levels,
            share: per_namespace,
            ledgers: HashMap::new(),
            wanted: 0,
            moved: HashMap::new(),
        }
    }

    /// Changes the ledger of one namespace, and the share of all if necessary. Returns the
    /// namespaces whose verdicts changed.
    fn change(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Ledger) -> bool,
    ) -> BTreeSet<String> {
        let (per_namespace, share) = (self.per_namespace, self.share);
        let ledger = match self.ledgers.get_mut(namespace) {
            Some(ledger) => ledger,
            None => self
                .ledgers
                .entry(namespace.to_owned())
                .or_insert_with(|| Ledger::new(per_namespace, share)),
        };
        let before = ledger.wanted();
        let mut moved = BTreeSet::new();
        if change(ledger) {
            moved.insert(namespace.to_owned());
        }
        let after = ledger.wanted();
        if ledger.ranks.is_empty() {
            self.ledgers.remove(namespace);
        }
        if before == after {
            return moved;
        }
        self.wanted = self.wanted - before + after;
        let share = self.fair_share();
        if share != self.share {
            self.share = share;
            for (namespace, ledger) in &mut self.ledgers {
                if ledger.set_share(share) {
                    moved.insert(namespace.clone());
                }
            }
        }
        moved
    }

    /// The largest share with which all namespaces together are within the budget.
    fn fair_share(&self) -> usize {
        if self.wanted <= self.whole {
            return self.per_namespace;
        }
        let fits = |share: &usize| {
            let taken = self.ledgers.values().map(|it| it.wanted().min(*share));
            taken.fold(0_usize, usize::saturating_add) <= self.whole
        };
        let fitting = self.levels.partition_point(fits);
        // The first level is 0, which always fits.
        self.levels[fitting.saturating_sub(1)]
    }
}

impl Budget {
    /// Creates a budget, in bytes: for each namespace, and for all namespaces together.
    pub fn new(per_namespace: usize, whole: usize) -> Self {
        Self {
            state: Mutex::new(State::new(per_namespace, whole)),
            moved: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Enters an object. `Ok` if it is within the budget.
    pub fn enter(
        &self,
        kind: Kind,
        object: &ObjectRef,
        created: Option<Timestamp>,
        weight: usize,
    ) -> Result<(), Shortage> {
        let mut state = self.state();
        let moved = state.change(&object.namespace, |ledger| {
            ledger.set(kind, &object.name, created, weight)
        });
        let ledger = &state.ledgers[&object.namespace];
        let verdict = ledger.check(kind, &object.name);
        self.note(&mut state, moved);
        verdict
    }

    pub fn remove(&self, kind: Kind, object: &ObjectRef) {
        let mut state = self.state();
        if !state.ledgers.contains_key(&object.namespace) {
            return;
        }
        let moved = state.change(&object.namespace, |ledger| {
            ledger.remove(kind, &object.name)
        });
        self.note(&mut state, moved);
    }

    /// Removes the objects of a kind for which `is_there` is false.
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

    /// Checks whether an object's body may be kept.
    pub fn check(&self, kind: Kind, object: &ObjectRef) -> Result<(), Shortage> {
        let state = self.state();
        match state.ledgers.get(&object.namespace) {
            Some(ledger) => ledger.check(kind, &object.name),
            None => Ok(()),
        }
    }

    pub fn usage(&self) -> Usage {
        let state = self.state();
        let ledgers = state.ledgers.values();
        let (mut bytes, mut left_out) = (0, 0);
        for ledger in ledgers {
            bytes += ledger.by_share.kept;
            left_out += ledger.weights.len() - ledger.by_share.count;
        }
        Usage {
            bytes,
            budget_bytes: state.whole,
            left_out,
        }
    }

    fn note(&self, state: &mut State, moved: BTreeSet<String>) {
        if moved.is_empty() {
            return;
        }
        for kind in KINDS {
            let namespaces = state.moved.entry(kind).or_default();
            namespaces.extend(moved.iter().cloned());
        }
        self.moved.send_replace(());
    }

    /// Namespaces whose verdicts may have changed since the last call for this kind.
    pub fn moved(&self, kind: Kind) -> BTreeSet<String> {
        self.state().moved.remove(&kind).unwrap_or_default()
    }

    /// Adds namespaces to the next result of [`Self::moved`].
    pub fn again(&self, kind: Kind, namespaces: BTreeSet<String>) {
        self.state()
            .moved
            .entry(kind)
            .or_default()
            .extend(namespaces);
    }

    /// A receiver that is notified when [`Self::moved`] has a new result.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn ledger(entries: &[(&str, i64, usize)]) -> Ledger {
        let mut ledger = Ledger::new(100, 100);
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
            .filter(|(kind, name)| ledger.check(*kind, name).is_ok())
            .map(|(_, name)| &**name)
            .collect();
        within.sort_unstable();
        assert_eq!(within, expected, "{ledger:?}");
    }

    #[test]
    fn the_oldest_objects_are_within_the_budget_in_any_order_of_arrival() {
        let mut entries = [
            ("heron", 3, 40),
            ("newt", 1, 40),
            ("otter", 2, 40),
            ("vole", 3, 1),
        ];
        for _ in 0..entries.len() {
            entries.rotate_left(1);
            // A small object does not pass a large one that is older.
            check(&ledger(&entries), &["newt", "otter"]);
        }
        // Objects of the same age rank by name.
        check(&ledger(&[("b", 1, 60), ("a", 1, 60)]), &["a"]);
    }

    #[test]
    fn a_new_object_evicts_none_and_a_removed_object_frees_memory() {
        let mut ledger = ledger(&[("newt", 1, 60), ("otter", 2, 40)]);
        check(&ledger, &["newt", "otter"]);
        assert!(ledger.set(Kind::Surface, "heron", at(3), 100));
        check(&ledger, &["newt", "otter"]);
        assert!(
            ledger.set(Kind::Surface, "newt", at(1), 61),
            "an older one grew"
        );
        check(&ledger, &["newt"]);
        assert!(ledger.remove(Kind::Surface, "heron") || ledger.by_budget.first_out.is_some());
        check(&ledger, &["newt"]);
        assert!(ledger.remove(Kind::Surface, "newt"));
        check(&ledger, &["otter"]);
        assert_eq!(ledger.total, 40);
    }

    #[test]
    fn a_recreated_object_ranks_as_a_new_one() {
        let mut ledger = ledger(&[("newt", 1, 60), ("otter", 2, 60)]);
        check(&ledger, &["newt"]);
        ledger.set(Kind::Surface, "newt", at(3), 60);
        check(&ledger, &["otter"]);
    }

    #[test]
    fn each_store_sees_a_namespace_with_changed_verdicts_once() {
        let budget = Budget::new(100, usize::MAX);
        let (newt, otter) = (
            ObjectRef::new("pond", "newt"),
            ObjectRef::new("pond", "otter"),
        );
        let elsewhere = ObjectRef::new("lake", "newt");
        assert_eq!(budget.enter(Kind::Surface, &newt, at(1), 60), Ok(()));
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        assert_eq!(
            budget.enter(Kind::Agent, &otter, at(2), 60),
            Err(Shortage::Namespace)
        );
        assert_eq!(budget.enter(Kind::Surface, &elsewhere, at(3), 60), Ok(()));
        let pond = BTreeSet::from(["pond".to_owned()]);
        assert_eq!(budget.moved(Kind::Agent), pond);
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        budget.remove(Kind::Surface, &newt);
        assert_eq!(budget.check(Kind::Agent, &otter), Ok(()));
        assert_eq!(budget.moved(Kind::Agent), pond);
    }

    /// Enters the given number of objects of 10 bytes into each namespace.
    fn namespaces(budget: &Budget, sizes: &[(&str, i64)]) {
        for (namespace, size) in sizes {
            for number in 0..*size {
                let object = ObjectRef::new(*namespace, format!("o{number:02}"));
                let _verdict = budget.enter(Kind::Surface, &object, at(number), 10);
            }
        }
    }

    /// Number of objects that each namespace keeps.
    fn kept(budget: &Budget, namespaces: &[&str]) -> Vec<usize> {
        let state = budget.state();
        let kept = |namespace: &&str| {
            let ledger = state.ledgers.get(*namespace);
            ledger.map_or(0, |ledger| ledger.by_share.count)
        };
        namespaces.iter().map(kept).collect()
    }

    #[test]
    fn a_namespace_below_an_equal_share_keeps_all_its_objects() {
        let budget = Budget::new(100, 160);
        let mut sizes = [("brook", 2), ("lake", 9), ("pond", 9), ("sea", 20)];
        let names = sizes.map(|(name, _)| name);
        for _ in 0..sizes.len() {
            sizes.rotate_left(1);
            let budget = Budget::new(100, 160);
            namespaces(&budget, &sizes);
            assert_eq!(kept(&budget, &names), [2, 4, 4, 4], "in any order");
        }
        namespaces(&budget, &[("brook", 2), ("lake", 9)]);
        assert_eq!(kept(&budget, &names), [2, 9, 0, 0]);
        namespaces(&budget, &[("sea", 20)]);
        // The share is at most 70, and its level is a little lower: 20 + 70 + 70.
        assert_eq!(kept(&budget, &names), [2, 6, 0, 6]);
        let last = ObjectRef::new("lake", "o08");
        assert_eq!(budget.check(Kind::Surface, &last), Err(Shortage::Process));
        // This object is over its namespace's own budget too, which is reported first.
        let last = ObjectRef::new("sea", "o19");
        assert_eq!(budget.check(Kind::Surface, &last), Err(Shortage::Namespace));
        let usage = budget.usage();
        assert_eq!((usage.bytes, usage.left_out), (140, 17));

        // Removed objects free memory for all namespaces.
        for number in 0..20 {
            budget.remove(
                Kind::Surface,
                &ObjectRef::new("sea", format!("o{number:02}")),
            );
        }
        assert_eq!(kept(&budget, &names), [2, 9, 0, 0]);
        assert!(budget.moved(Kind::Agent).contains("lake"));
    }

    #[test]
    fn any_number_of_namespaces_stays_within_the_budget() {
        let budget = Budget::new(100, 1000);
        for namespace in 0..300_i64 {
            let name = format!("n{namespace}");
            namespaces(&budget, &[(&*name, 1 + namespace % 17)]);
            let usage = budget.usage();
            assert!(usage.bytes <= 1000, "{usage:?}");
        }
        let before = budget.usage();
        // Entering the same objects again changes no verdict.
        budget.moved(Kind::Agent);
        namespaces(&budget, &[("n3", 4), ("n200", 12)]);
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        assert_eq!(budget.usage(), before);
    }

    #[test]
    fn messages_name_the_remedy_and_no_figure_of_other_objects() {
        assert_eq!(
            Shortage::Namespace.to_string(),
            "the older objects of this namespace use up its budget of 48 MiB in the operator's memory: delete or shrink some"
        );
        assert!(
            Shortage::Process
                .to_string()
                .contains("controller.resources.limits.memory")
        );
    }
}
