//! The work queue: coalescing, fair between namespaces, with back-off.
//!
//! A key is queued at most once, however many events name it, and never worked on twice at a
//! time. An event during its work queues it again afterwards. Namespaces take turns, so one
//! that floods the queue delays only itself. Agents have two steps with separate workers,
//! [`Step::Publish`] and [`Step::Write`], so a revocation never waits behind other agents'
//! writes. The state machine ([`QueueState`]) is a function of the time that it is given; [`Queue`]
//! adds the waiting.
//!
//! Reading order: [`fair_queue`] (lanes take turns), here, [`work`] (the keys of the controller's
//! queue), [`rate_limit`] and [`pending_since`] (times of work). Not here: the work itself.

pub mod fair_queue;
pub mod pending_since;
pub mod rate_limit;
pub mod work;

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use fair_queue::{FairQueue, InLane};

/// A key of the queue.
pub trait Key: InLane + Eq + Hash {
    /// The first step of its work.
    fn begins(&self) -> Step;
}

/// The steps of a piece of work, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Publish the compiled allowlist to the mediators over the link.
    Publish,
    /// Compile, publish and write.
    Write,
}

/// The outcome of work on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Published; the `Write` step comes next.
    Published,
    /// Nothing to do until the next event.
    Settled,
    /// Requeue after this time, even without an event.
    Again(Duration),
    /// Requeue with a back-off that doubles with each consecutive failure.
    Failed,
}

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LAST_BACKOFF: Duration = Duration::from_secs(120);

/// The state of the queue.
#[derive(Debug)]
pub struct QueueState<K> {
    to_publish: FairQueue<K>,
    to_write: FairQueue<K>,
    /// The keys that are being worked on. `true`: an event has named the key since the work began.
    running: HashMap<K, bool>,
    delayed: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K> Default for QueueState<K> {
    fn default() -> Self {
        Self {
            to_publish: FairQueue::default(),
            to_write: FairQueue::default(),
            running: HashMap::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Key> QueueState<K> {
    pub fn add(&mut self, key: K) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
            return;
        }
        match key.begins() {
            Step::Publish => {
                // An earlier `Publish` step does not cover this event.
                self.to_write.remove(&key);
                self.to_publish.add(key);
            }
            Step::Write => self.to_write.add(key),
        }
    }

    /// Queues the key at `at`, or earlier if it is already due earlier.
    pub fn add_at(&mut self, key: K, at: Instant) {
        match self.due.get(&key) {
            Some(due) if *due <= at => return,
            Some(due) => {
                self.delayed.remove(&(*due, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key));
    }

    /// Takes the next key whose `step` is due.
    pub fn next(&mut self, step: Step, now: Instant) -> Option<K> {
        while let Some((at, key)) = self.delayed.first().cloned() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            self.due.remove(&key);
            self.add(key);
        }
        let key = match step {
            Step::Publish => self.to_publish.next(),
            Step::Write => self.to_write.next(),
        }?;
        self.running.insert(key.clone(), false);
        Some(key)
    }

    pub fn done(&mut self, key: &K, done: Completion, now: Instant) {
        let again = self.running.remove(key).unwrap_or(false);
        match done {
            Completion::Published if again => {}
            Completion::Published => self.to_write.add(key.clone()),
            Completion::Settled => {
                self.failures.remove(key);
            }
            Completion::Again(after) => {
                self.failures.remove(key);
                self.add_at(key.clone(), now + after);
            }
            Completion::Failed => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                let backoff = FIRST_BACKOFF
                    .saturating_mul(1 << (*failures).min(16))
                    .min(LAST_BACKOFF);
                *failures += 1;
                self.add_at(key.clone(), now + backoff);
            }
        }
        if again {
            self.add(key.clone());
        }
    }

    /// The time at which the next delayed key is due.
    pub fn wake_at(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// The number of queued keys, for the metric.
    pub fn depth(&self) -> usize {
        self.to_publish.len() + self.to_write.len()
    }

    /// The number of keys that are queued, in work, or waiting for a retry after a failure.
    pub fn unsettled(&self) -> usize {
        let failed = self.failures.keys().filter(|key| {
            !self.to_publish.contains(key)
                && !self.to_write.contains(key)
                && !self.running.contains_key(key)
        });
        self.depth() + self.running.len() + failed.count()
    }
}

/// A queue that can be waited on. While closed, as it is at the start, it drops every key, so that
/// a standby does not collect work that it will never do.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<Option<QueueState<K>>>,
    changed: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(None),
            changed: Notify::new(),
        }
    }
}

impl<K: Key> Queue<K> {
    fn state(&self) -> MutexGuard<'_, Option<QueueState<K>>> {
        self.state.lock()
    }

    /// Starts over empty.
    pub fn open(&self) {
        *self.state() = Some(QueueState::default());
    }

    pub fn close(&self) {
        *self.state() = None;
    }

    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        if let Some(state) = &mut *self.state() {
            keys.into_iter().for_each(|key| state.add(key));
        }
        self.changed.notify_waiters();
    }

    pub fn add_after(&self, key: K, after: Duration) {
        if let Some(state) = &mut *self.state() {
            state.add_at(key, Instant::now() + after);
        }
        self.changed.notify_waiters();
    }

    pub fn depth(&self) -> usize {
        self.state().as_ref().map_or(0, QueueState::depth)
    }

    pub fn unsettled(&self) -> usize {
        self.state().as_ref().map_or(0, QueueState::unsettled)
    }

    pub fn done(&self, key: &K, done: Completion) {
        if let Some(state) = &mut *self.state() {
            state.done(key, done, Instant::now());
        }
        self.changed.notify_waiters();
    }

    /// Waits for work; returns only with a key.
    pub async fn next(&self, step: Step) -> K {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before the check, so that no key added in between is missed.
            changed.as_mut().enable();
            let wake_at = {
                let mut state = self.state();
                match &mut *state {
                    None => None,
                    Some(state) => match state.next(step, Instant::now()) {
                        Some(key) => return key,
                        None => state.wake_at(),
                    },
                }
            };
            match wake_at {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl InLane for &'static str {
        fn lane(&self) -> &str {
            self.split_once('/').map_or("", |(lane, _)| lane)
        }
    }

    impl Key for &'static str {
        fn begins(&self) -> Step {
            if self.ends_with('!') {
                Step::Publish
            } else {
                Step::Write
            }
        }
    }

    fn drain(state: &mut QueueState<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| state.next(Step::Write, now)).collect()
    }

    #[test]
    fn a_flood_in_one_namespace_delays_only_itself() {
        let now = Instant::now();
        let mut state = QueueState::default();
        for key in ["pond/a", "pond/b", "pond/c", "pond/a", "reef/x"] {
            state.add(key);
        }
        assert_eq!(
            drain(&mut state, now),
            ["pond/a", "reef/x", "pond/b", "pond/c"]
        );
    }

    #[test]
    fn publish_steps_do_not_wait_for_writes() {
        let now = Instant::now();
        let mut state = QueueState::default();
        let publish = |state: &mut QueueState<&'static str>| {
            let key = state.next(Step::Publish, now)?;
            state.done(&key, Completion::Published, now);
            Some(key)
        };
        for key in ["pond/a", "pond/b!", "pond/c!"] {
            state.add(key);
        }
        assert_eq!(state.next(Step::Write, now), Some("pond/a"));
        assert_eq!(state.next(Step::Write, now), None, "not published yet");
        assert_eq!(
            (publish(&mut state), publish(&mut state)),
            (Some("pond/b!"), Some("pond/c!"))
        );
        assert_eq!(state.unsettled(), 3);
        // Another event arrives before the write.
        state.add("pond/b!");
        assert_eq!(
            (state.depth(), state.next(Step::Write, now)),
            (2, Some("pond/c!"))
        );
        assert_eq!(state.next(Step::Write, now), None);
        assert_eq!(publish(&mut state), Some("pond/b!"));
        assert_eq!(drain(&mut state, now), ["pond/b!"]);
        assert_eq!(publish(&mut state), None);
    }

    #[test]
    fn an_event_during_publish_repeats_publish_before_the_write() {
        let now = Instant::now();
        let mut state = QueueState::default();
        state.add("pond/a!");
        let key = state.next(Step::Publish, now).unwrap();
        state.add(key);
        assert_eq!(
            state.next(Step::Publish, now),
            None,
            "no key runs twice at a time"
        );
        state.done(&key, Completion::Published, now);
        assert_eq!(state.next(Step::Write, now), None);
        assert_eq!(state.next(Step::Publish, now), Some(key));
        state.done(&key, Completion::Published, now);
        assert_eq!(drain(&mut state, now), [key]);
    }

    #[test]
    fn an_event_during_the_work_requeues_the_key_once() {
        let now = Instant::now();
        let mut state = QueueState::default();
        state.add("pond/a");
        assert_eq!(state.next(Step::Write, now), Some("pond/a"));
        state.add("pond/a");
        state.add("pond/a");
        assert_eq!(
            state.next(Step::Write, now),
            None,
            "no key runs twice at a time"
        );
        state.done(&"pond/a", Completion::Settled, now);
        assert_eq!(drain(&mut state, now), ["pond/a"]);
    }

    #[test]
    fn failures_back_off_until_the_next_success() {
        let start = Instant::now();
        let mut state = QueueState::default();
        state.add("pond/a");
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..10 {
            let key = state.next(Step::Write, now).unwrap();
            state.done(&key, Completion::Failed, now);
            let at = state.wake_at().unwrap();
            waits.push((at - now).as_millis());
            now = at;
        }
        assert_eq!(
            waits,
            [
                500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000
            ]
        );
        let key = state.next(Step::Write, now).unwrap();
        state.done(&key, Completion::Settled, now);
        assert_eq!(state.wake_at(), None);
        state.add("pond/a");
        let key = state.next(Step::Write, now).unwrap();
        state.done(&key, Completion::Failed, now);
        assert_eq!(state.wake_at(), Some(now + FIRST_BACKOFF));
    }

    #[test]
    fn queued_running_and_failed_keys_are_unsettled() {
        let now = Instant::now();
        let mut state = QueueState::default();
        state.add("pond/a");
        state.add("pond/b");
        assert_eq!(state.unsettled(), 2);
        let key = state.next(Step::Write, now).unwrap();
        state.done(&key, Completion::Failed, now);
        assert_eq!(state.unsettled(), 2);
        // An event before the end of the back-off does not count the key twice.
        state.add("pond/a");
        assert_eq!(state.unsettled(), 2);
        for _ in 0..2 {
            let key = state.next(Step::Write, now).unwrap();
            assert_eq!(state.unsettled(), if key == "pond/b" { 2 } else { 1 });
            state.done(&key, Completion::Again(FIRST_BACKOFF), now);
        }
        // A requeue without a failure counts as settled.
        assert_eq!(state.unsettled(), 0);
    }

    #[test]
    fn the_earlier_of_two_delays_counts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut state = QueueState::default();
        state.add_at("pond/a", now + 3 * second);
        state.add_at("pond/a", now + second);
        state.add_at("pond/a", now + 2 * second);
        assert_eq!(state.next(Step::Write, now), None);
        assert_eq!(drain(&mut state, now + second), ["pond/a"]);
        assert_eq!(state.wake_at(), None);
    }

    #[tokio::test]
    async fn a_closed_queue_drops_keys_and_an_open_queue_wakes_its_worker() {
        let queue = std::sync::Arc::new(Queue::default());
        queue.add_all(["pond/lost"]);
        queue.open();
        let worker = tokio::spawn({
            let queue = std::sync::Arc::clone(&queue);
            async move { queue.next(Step::Write).await }
        });
        queue.add_all(["pond/a"]);
        let key = tokio::time::timeout(Duration::from_secs(5), worker)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(key, "pond/a");
    }
}
