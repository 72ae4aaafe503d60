//! How much memory the objects that the operator keeps may take, and which are within it.
//!
//! Two bounds hold. The objects of one namespace may take so much, and those of all namespaces
//! together so much, which depends on the process' memory limit. While all namespaces together
//! want more, each may keep an equal share; a namespace that wants less than its share keeps all it
//! has, and the others share what it leaves.
//!
//! Within a namespace the oldest objects come first: an object is within the budget while it fits
//! together with every older one. So a new object never pushes out one that is in force, and
//! removing or shrinking an object pushes out none. Between namespaces fairness comes before age.
//! Objects over the budget are kept without their body.
//!
//! [`Ledger`] decides for one namespace, [`State`] divides among all; both are pure. [`Budget`]
//! holds them and tells the stores which namespaces to look at again.
//!
//! Invariant: the verdicts depend on what is there, not on the order in which it was seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use toolcrib_bounds::NAMESPACE_WEIGHT;
use toolcrib_compile::{Kind, ObjectRef};

/// Why an object is kept without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The older objects of its namespace take all that one namespace may have.
    Namespace,
    /// All namespaces together want too much, and its own is over an equal share.
    Process,
}

/// The message about an object that lacks room. It holds no figure that moves with other objects:
/// a status that says the same is not written again.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Namespace => write!(
                f,
                "the older objects of this namespace take all of the {} MiB that the operator keeps of one: delete or shrink some",
                NAMESPACE_WEIGHT >> 20
            ),
            Shortage::Process => f.write_str(
                "the objects of all namespaces together need more memory than the operator may give them, and this namespace is over its equal share: delete or shrink some of its objects, or have controller.resources.limits.memory of the chart raised",
            ),
        }
    }
}

/// An object's place among those of its namespace: by age, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    created: Timestamp,
    name: String,
    kind: Kind,
}

/// The first object that has no room; it and all younger ones are out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BudgetCut {
    first_out: Option<Rank>,
    /// Weight of the objects before it.
    kept: usize,
    /// Number of the objects before it.
    count: usize,
}

/// The objects of one namespace and what they weigh.
#[derive(Debug)]
struct Ledger {
    budget: usize,
    /// The namespace's part of the process' budget; the whole `budget` while there is enough.
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

    /// Enters an object, or its new weight. Whether any verdict may have moved.
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
        let is_out = |rank: &Rank| self.is_out(rank);
        let concerns_nobody = is_out(&rank) && before.as_ref().is_none_or(is_out);
        if let Some(before) = before {
            self.total -= self.weights.remove(&before).unwrap_or(0);
        }
        self.total += weight;
        self.weights.insert(rank, weight);
        // An object behind the first one that is out moves no other.
        !concerns_nobody && self.decide()
    }

    fn remove(&mut self, kind: Kind, name: &str) -> bool {
        let Some(rank) = self.ranks.remove(&(kind, name.to_owned())) else {
            return false;
        };
        let concerns_nobody = self.is_out(&rank);
        self.total -= self.weights.remove(&rank).unwrap_or(0);
        !concerns_nobody && self.decide()
    }

    /// Whether an object has no room with this rank, by either bound, and others are before it
    /// that have none.
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

    /// What the namespace keeps if there is enough for all.
    fn wanted(&self) -> usize {
        self.by_budget.kept
    }

    /// Finds the first object over each bound; whether one is another than before.
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

/// What all namespaces' objects take, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Weight of the objects that are kept, in bytes.
    pub bytes: usize,
    pub budget_bytes: usize,
    /// Objects that are kept without their body.
    pub left_out: usize,
}

/// The budgets of all namespaces.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
    /// Sent when a namespace is to be looked at again.
    moved: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    per_namespace: usize,
    /// For all namespaces together.
    whole: usize,
    /// Shares that a namespace may get, ascending from 0 to `per_namespace`. Few, so that a share
    /// does not move with every object.
    levels: Vec<usize>,
    share: usize,
    ledgers: HashMap<String, Ledger>,
    /// The sum of [`Ledger::wanted`].
    wanted: usize,
    /// Namespaces in which a store of this kind has something to put in or out.
    moved: HashMap<Kind, BTreeSet<String>>,
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

impl State {
    fn new(per_namespace: usize, whole: usize) -> Self {
        let mut levels = vec![per_namespace];
        let mut level = per_namespace;
        while level > 0 {
            // Each a sixteenth below the one above it.
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

    /// Changes one namespace's ledger, and everybody's share if need be. The namespaces in which
    /// a verdict moved.
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

    /// The largest share with which all namespaces are within the whole budget.
    fn fair_share(&self) -> usize {
        if self.wanted <= self.whole {
            return self.per_namespace;
        }
        let fits = |share: &usize| {
            let taken = self.ledgers.values().map(|it| it.wanted().min(*share));
            taken.fold(0_usize, usize::saturating_add) <= self.whole
        };
        let fitting = self.levels.partition_point(fits);
        // The first one is 0, which always fits.
        self.levels[fitting.saturating_sub(1)]
    }
}

impl Budget {
    /// Budgets in bytes: for each namespace, and for all together.
    pub fn new(per_namespace: usize, whole: usize) -> Self {
        Self {
            state: Mutex::new(State::new(per_namespace, whole)),
            moved: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Enters an object; whether it is within the budget.
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

    /// Whether an object's body may be kept.
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

    /// Wakes the callers of [`Self::moved`].
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
        assert!(ledger.remove(Kind::Surface, "heron") || ledger.by_budget.first_out.is_some());
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

    /// Enters objects of 10 bytes, so many in each namespace.
    fn namespaces(budget: &Budget, sizes: &[(&str, i64)]) {
        for (namespace, size) in sizes {
            for number in 0..*size {
                let object = ObjectRef::new(*namespace, format!("o{number:02}"));
                let _verdict = budget.enter(Kind::Surface, &object, at(number), 10);
            }
        }
    }

    /// How many objects each namespace keeps.
    fn kept(budget: &Budget, namespaces: &[&str]) -> Vec<usize> {
        let state = budget.state();
        let kept = |namespace: &&str| {
            let ledger = state.ledgers.get(*namespace);
            ledger.map_or(0, |ledger| ledger.by_share.count)
        };
        namespaces.iter().map(kept).collect()
    }

    #[test]
    fn who_wants_less_than_an_equal_share_loses_nothing_to_those_who_want_more() {
        let budget = Budget::new(100, 160);
        let mut sizes = [("brook", 2), ("lake", 9), ("pond", 9), ("sea", 20)];
        let names = sizes.map(|(name, _)| name);
        for _ in 0..sizes.len() {
            sizes.rotate_left(1);
            let budget = Budget::new(100, 160);
            namespaces(&budget, &sizes);
            assert_eq!(kept(&budget, &names), [2, 4, 4, 4], "in whatever order");
        }
        namespaces(&budget, &[("brook", 2), ("lake", 9)]);
        assert_eq!(kept(&budget, &names), [2, 9, 0, 0]);
        namespaces(&budget, &[("sea", 20)]);
        // 20 + 70 + 70: the levels leave a little.
        assert_eq!(kept(&budget, &names), [2, 6, 0, 6]);
        let last = ObjectRef::new("lake", "o08");
        assert_eq!(budget.check(Kind::Surface, &last), Err(Shortage::Process));
        // Over its own budget in any case.
        let last = ObjectRef::new("sea", "o19");
        assert_eq!(budget.check(Kind::Surface, &last), Err(Shortage::Namespace));
        let usage = budget.usage();
        assert_eq!((usage.bytes, usage.left_out), (140, 17));

        // What goes makes room for all others.
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
    fn all_that_is_kept_is_within_the_whole_budget_however_many_namespaces_there_are() {
        let budget = Budget::new(100, 1000);
        for namespace in 0..300_i64 {
            let name = format!("n{namespace}");
            namespaces(&budget, &[(&*name, 1 + namespace % 17)]);
            let usage = budget.usage();
            assert!(usage.bytes <= 1000, "{usage:?}");
        }
        let before = budget.usage();
        // Entered again: no verdict moves.
        budget.moved(Kind::Agent);
        namespaces(&budget, &[("n3", 4), ("n200", 12)]);
        assert_eq!(budget.moved(Kind::Agent), BTreeSet::new());
        assert_eq!(budget.usage(), before);
    }

    #[test]
    fn the_messages_say_what_to_do_and_have_no_figure_that_others_move() {
        assert_eq!(
            Shortage::Namespace.to_string(),
            "the older objects of this namespace take all of the 48 MiB that the operator keeps of one: delete or shrink some"
        );
        assert!(
            Shortage::Process
                .to_string()
                .contains("controller.resources.limits.memory")
        );
    }
}
