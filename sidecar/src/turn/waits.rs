//! The time for which the calls of one request wait for approvals.
//!
//! While a call waits, the clock of the request's total timeout stands still.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use toolcrib_mediation::CallId;

/// Longest time that the calls of one request wait for approvals in all.
const MOST: Duration = Duration::from_mins(10);
/// A program that asked for no stream hears nothing while it waits, and the default of Node's HTTP
/// client gives up after five minutes.
const WITHOUT_STREAM: Duration = Duration::from_mins(4);
/// The official MCP clients give up after a minute unless they hear of progress.
const WITHOUT_PROGRESS: Duration = Duration::from_secs(45);

/// The waits of one request.
#[derive(Debug)]
pub struct ApprovalWaits {
    state: watch::Sender<State>,
    /// No call of the request waits longer.
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// The calls that wait.
    calls: BTreeSet<CallId>,
    /// Time since which at least one call waits.
    since: Option<Instant>,
    /// Time of the waits that are over.
    stood: Duration,
}

impl State {
    fn stood(&self) -> Duration {
        let current = self.since.map_or(Duration::ZERO, |it| it.elapsed());
        self.stood + current
    }
}

/// A call that waits. It waits no longer once this is dropped.
#[derive(Debug)]
pub struct CallWait<'a> {
    waits: &'a ApprovalWaits,
    call: CallId,
    pub began: Instant,
}

impl ApprovalWaits {
    /// The waits of a request to a model that began at `started`.
    pub fn of_turn(started: Instant, is_stream: bool) -> Self {
        Self::until((!is_stream).then(|| started + WITHOUT_STREAM))
    }

    /// The waits of a call over MCP.
    pub fn of_native(started: Instant, has_progress: bool) -> Self {
        Self::until((!has_progress).then(|| started + WITHOUT_PROGRESS))
    }

    fn until(until: Option<Instant>) -> Self {
        Self {
            state: watch::Sender::default(),
            until,
        }
    }

    /// Begins the wait of a call.
    pub fn begin(&self, call: CallId) -> CallWait<'_> {
        let began = Instant::now();
        self.state.send_modify(|state| {
            state.calls.insert(call);
            state.since.get_or_insert(began);
        });
        CallWait {
            waits: self,
            call,
            began,
        }
    }

    /// The end of a wait that began at `began` and may last `longest`.
    pub fn deadline(&self, began: Instant, longest: Duration) -> Instant {
        let stood = self.state.borrow().stood();
        let left = MOST.saturating_sub(stood.saturating_sub(began.elapsed()));
        let deadline = began + longest.min(left);
        self.until.map_or(deadline, |until| deadline.min(until))
    }

    /// The calls that wait now.
    pub fn calls(&self) -> Vec<CallId> {
        self.state.borrow().calls.iter().copied().collect()
    }

    pub fn is_waiting(&self) -> bool {
        !self.state.borrow().calls.is_empty()
    }

    /// The time for which the request's clock has stood still.
    pub fn stood(&self) -> Duration {
        self.state.borrow().stood()
    }

    /// Returns a receiver that wakes when a wait begins or ends.
    pub fn subscribe(&self) -> Changes {
        Changes(self.state.subscribe())
    }
}

/// Wakes when a wait begins or ends.
#[derive(Debug)]
pub struct Changes(watch::Receiver<State>);

impl Changes {
    /// Cancel safe.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for CallWait<'_> {
    fn drop(&mut self) {
        self.waits.state.send_modify(|state| {
            state.calls.remove(&self.call);
            if state.calls.is_empty() {
                state.stood = state.stood();
                state.since = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [CallId; 2] = [CallId { round: 1, index: 0 }, CallId { round: 1, index: 1 }];

    #[test]
    fn waits_beside_each_other_count_once() {
        let started = Instant::now();
        let waits = ApprovalWaits::of_turn(started, true);
        let first = waits.begin(CALLS[0]);
        let first_began = first.began;
        let second = waits.begin(CALLS[1]);
        assert_eq!(waits.calls(), CALLS);
        drop(first);
        assert!(waits.is_waiting());
        let second_began = second.began;
        drop(second);
        assert!(!waits.is_waiting());
        // Since the first of them, although it ended before the second.
        let stood = waits.stood();
        assert!(
            stood > second_began.duration_since(first_began),
            "{stood:?}"
        );
        assert!(stood <= started.elapsed(), "{stood:?}");
        assert_eq!(waits.stood(), stood);
    }

    #[test]
    fn a_wait_is_bounded_by_its_request() {
        let started = Instant::now();
        let long = Duration::from_hours(1);
        let check = |waits: ApprovalWaits, longest: Duration, expected: Duration| {
            let deadline = waits.deadline(started, longest);
            assert_eq!(deadline.duration_since(started), expected);
        };
        check(
            ApprovalWaits::of_turn(started, true),
            Duration::from_mins(2),
            Duration::from_mins(2),
        );
        check(ApprovalWaits::of_turn(started, true), long, MOST);
        check(ApprovalWaits::of_turn(started, false), long, WITHOUT_STREAM);
        check(
            ApprovalWaits::of_native(started, false),
            long,
            WITHOUT_PROGRESS,
        );
        check(ApprovalWaits::of_native(started, true), long, MOST);
    }

    #[test]
    fn all_waits_of_a_request_are_bounded_together() {
        let waits = ApprovalWaits::of_turn(Instant::now(), true);
        waits
            .state
            .send_modify(|state| state.stood = MOST - Duration::from_secs(5));
        let began = Instant::now();
        let deadline = waits.deadline(began, Duration::from_mins(2));
        assert!(deadline.duration_since(began) < Duration::from_secs(6));
    }
}
