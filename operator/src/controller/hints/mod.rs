//! The planned refresh hints: the agents whose pods get one, and the times.
//!
//! Here: the plans that the controller's tasks share; [`schedule`] decides the times. Not here: the
//! hints themselves ([`super::refresh`]).
//!
//! Invariant: bounded. There is at most one plan per agent, and it ends after three hints.

mod schedule;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

pub use self::schedule::DueHint;
use self::schedule::{Hint, Schedule};

/// The agents whose pods get a hint.
#[derive(Debug, Default)]
pub struct Hints {
    schedule: Mutex<Schedule>,
    changed: Notify,
}

impl Hints {
    /// Plans the hints for a write that gave the agent something.
    pub fn plan(&self, agent: &ObjectRef) {
        let hint = Hint {
            written: Instant::now(),
            time: Timestamp::now(),
        };
        self.schedule.lock().plan(agent.clone(), hint);
        self.changed.notify_one();
    }

    /// Drops the plan of an agent whose pods have loaded the files.
    pub fn done(&self, agent: &ObjectRef) {
        self.schedule.lock().done(agent);
    }

    /// Drops all plans, as a new leader begins.
    pub fn forget(&self) {
        *self.schedule.lock() = Schedule::default();
    }

    /// Waits for the next agent whose pods are due.
    pub async fn next(&self) -> DueHint {
        loop {
            let (due, next) = {
                let mut schedule = self.schedule.lock();
                (schedule.take(Instant::now()), schedule.next())
            };
            match (due, next) {
                (Some(due), _) => return due,
                (None, Some(at)) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                (None, None) => self.changed.notified().await,
            }
        }
    }
}
