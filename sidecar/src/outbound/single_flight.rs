//! Single flight: one task per key at a time, whose answer all callers share.
//!
//! Invariant: a task runs to its end even if no caller waits any more, so it must bound itself;
//! dropping [`Flights`] ends all tasks.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct Flights<K, T> {
    running: Mutex<FlightTable<K, T>>,
}

struct FlightTable<K, T> {
    by_key: HashMap<K, watch::Receiver<Option<T>>>,
    tasks: JoinSet<()>,
}

/// The future answer of one task.
pub struct Flight<T>(watch::Receiver<Option<T>>);

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self {
            running: Mutex::new(FlightTable {
                by_key: HashMap::new(),
                tasks: JoinSet::new(),
            }),
        }
    }
}

impl<K, T> fmt::Debug for Flights<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flights")
    }
}

impl<K: Eq + Hash, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// Joins the running task of `key`, or starts one with `start`. Must be called within a
    /// runtime.
    pub fn join<F>(&self, key: K, start: impl FnOnce() -> F) -> Flight<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        // A panic under the lock leaves at worst a task that no caller joins.
        let mut running = self.running.lock();
        while let Some(ended) = running.tasks.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                tracing::error!("fetch task panicked");
            }
        }
        running.by_key.retain(|_, flight| !landed(flight));
        if let Some(flight) = running.by_key.get(&key) {
            return Flight(flight.clone());
        }
        let (answer, flight) = watch::channel(None);
        running.by_key.insert(key, flight.clone());
        let task = start();
        running.tasks.spawn(async move {
            answer.send_replace(Some(task.await));
        });
        Flight(flight)
    }
}

/// True if the task has answered, or ended without an answer.
fn landed<T>(flight: &watch::Receiver<Option<T>>) -> bool {
    flight.borrow().is_some() || flight.has_changed().is_err()
}

impl<T: Clone> Flight<T> {
    /// `None`: the task panicked or was ended.
    pub async fn answer(mut self) -> Option<T> {
        let answer = self.0.wait_for(Option::is_some).await;
        answer.ok().and_then(|answer| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_task() {
        let flights = Flights::default();
        let (started, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let join = || {
            let (started, gate) = (started.clone(), gate.clone());
            flights.join("pond", move || async move {
                let number = started.fetch_add(1, Ordering::SeqCst);
                gate.notified().await;
                number
            })
        };
        let (first, second) = (join(), join());
        gate.notify_one();
        assert_eq!(
            (first.answer().await, second.answer().await),
            (Some(0), Some(0))
        );
        gate.notify_one();
        assert_eq!(join().answer().await, Some(1));
        assert_eq!(started.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_task_runs_on_without_callers_and_a_panic_gives_no_answer() {
        let flights = Flights::default();
        let done = Arc::new(Notify::new());
        let told = done.clone();
        drop(flights.join("pond", || async move { told.notify_one() }));
        done.notified().await;
        let lost = flights.join("reef", || async { panic!("for the test") });
        assert_eq!(lost.answer().await, None);
        assert_eq!(flights.join("reef", || async {}).answer().await, Some(()));
    }
}
