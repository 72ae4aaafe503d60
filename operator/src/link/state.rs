//! The link's state while this replica leads: answers, reports and open revocations.
//!
//! Here: [`Answers`], [`Reports`], [`BudgetSums`], [`RateSums`], [`RecordHeads`], [`LatestCalls`] and
//! [`Revocations`], and the metrics of their changes. Not here: connections and authentication ([`super::serve`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{LinkAllowlist, LinkUp, Want};

use super::answers::{Access, Answers, LatestAnswer, OtherPods};
use super::budgets::BudgetSums;
use super::calls::LatestCalls;
use super::heads::RecordHeads;
use super::rates::RateSums;
use super::reports::{ReportChange, Reports, Sender};
use super::revocations::Revocations;
use crate::metrics::Metrics;

/// The leader's memory of its mediators.
#[derive(Debug)]
pub struct State {
    answers: Answers,
    reports: Mutex<Reports>,
    budgets: Mutex<BudgetSums>,
    rates: Mutex<RateSums>,
    heads: Mutex<RecordHeads>,
    calls: Mutex<LatestCalls>,
    revocations: Mutex<Revocations>,
    metrics: Metrics,
}

impl State {
    pub fn new(metrics: Metrics) -> Self {
        Self {
            answers: Answers::default(),
            reports: Mutex::default(),
            budgets: Mutex::default(),
            rates: Mutex::default(),
            heads: Mutex::default(),
            calls: Mutex::default(),
            revocations: Mutex::default(),
            metrics,
        }
    }

    /// Drops the state of an earlier tenure, since another leader may have changed it; answers are
    /// numbered above `seq`.
    pub fn begin(&self, seq: u64) {
        *self.reports() = Reports::default();
        *self.budgets() = BudgetSums::default();
        *self.rates.lock() = RateSums::default();
        *self.heads() = RecordHeads::default();
        *self.calls() = LatestCalls::default();
        self.revocations(|open| {
            *open = Revocations::default();
            Vec::new()
        });
        self.answers.begin(seq);
    }

    /// Resets the gauges, since another replica leads.
    pub fn end(&self) {
        self.metrics.link_pods.set(0);
        self.metrics.revocations_open.set(0);
    }

    pub fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock()
    }

    pub fn heads(&self) -> MutexGuard<'_, RecordHeads> {
        self.heads.lock()
    }

    pub fn calls(&self) -> MutexGuard<'_, LatestCalls> {
        self.calls.lock()
    }

    pub fn budgets(&self) -> MutexGuard<'_, BudgetSums> {
        self.budgets.lock()
    }

    /// Publishes the access of an agent's mediators to their loaded files. `since` is the time of
    /// the event that led to it. See [`Answers::publish`] for `is_suspended`. Returns true if the
    /// change gives access that the earlier answer did not.
    pub fn publish(
        &self,
        agent: &ObjectRef,
        access: Access<&LinkAllowlist>,
        is_suspended: impl FnOnce() -> bool,
        since: Option<Instant>,
    ) -> bool {
        let now = Instant::now();
        let Some(published) = self.answers.publish(agent, access, is_suspended) else {
            return false;
        };
        if published.revokes {
            tracing::info!(%agent, "revocation published");
            let since = since.unwrap_or(now);
            self.revocations(|open| open.add(agent, since, published.seq, now));
        }
        published.gives
    }

    /// Sets the digests of the agent's files as they are written now.
    pub fn want(&self, agent: &ObjectRef, want: Arc<Want>) {
        self.answers.want(agent, want);
    }

    /// Gives up revocations that a silent pod has kept open for too long.
    pub fn give_up(&self) {
        self.revocations(|open| open.give_up(Instant::now()));
    }

    pub fn pod_gone(&self, uid: &str) {
        if let Some(agent) = self.reports().remove_pod(uid) {
            self.heads().remove_pod(&agent, uid);
        }
        self.budgets().remove_pod(uid);
        self.rates.lock().remove_pod(uid, jiff::Timestamp::now());
        self.revocations(|open| open.remove_pod(uid, Instant::now()));
    }

    /// Returns the agents of the pods whose mediators have stopped reporting: the last report is older
    /// than `limit`, and no earlier call has returned the agent for it.
    pub fn silent(&self, limit: Duration) -> BTreeSet<ObjectRef> {
        let since = Instant::now().checked_sub(limit);
        since.map_or_else(BTreeSet::new, |since| self.reports().find_silent(since))
    }

    pub fn agent_gone(&self, agent: &ObjectRef) {
        self.reports().forget_agent(agent);
        self.budgets().forget_agent(agent);
        self.rates.lock().forget_agent(agent);
        self.heads().forget_agent(agent);
        self.calls().forget_agent(agent);
    }

    /// Returns a receiver of the agent's answers. See [`Answers::subscribe`].
    pub fn subscribe(&self, agent: &ObjectRef, present: bool) -> watch::Receiver<LatestAnswer> {
        self.answers.subscribe(agent, present)
    }

    /// Records a report of a mediator.
    pub(super) fn report(&self, sender: &Sender, up: &LinkUp) -> ReportChange {
        let (now, at) = (Instant::now(), jiff::Timestamp::now());
        let (mut change, pods) = {
            let mut reports = self.reports();
            let change = reports.merge(sender, up, at, now);
            (change, reports.pods())
        };
        let mut budgets = self.budgets();
        change.state |= budgets.merge(&sender.agent, &sender.uid, &up.budgets, at);
        let has_begun = budgets.has_begun(&sender.agent);
        drop(budgets);
        // A pod may outlive its Agent; nothing is kept for it.
        if has_begun {
            let mut rates = self.rates.lock();
            rates.merge(&sender.agent, &sender.uid, &up.rates, at);
            drop(rates);
            self.calls().learn(sender, &up.calls);
        }
        if let Some(head) = &up.record {
            self.heads().learn(sender, head, at);
        }
        self.metrics.link_pods.set(gauge(pods));
        self.revocations(|open| open.acknowledge(&sender.agent, &sender.uid, up.seen, now));
        change
    }

    /// Returns what the agent's pods but this one have used of budgets and rates.
    pub(super) fn others(&self, agent: &ObjectRef, pod: &str) -> OtherPods {
        let now = jiff::Timestamp::now();
        OtherPods {
            budgets: self.budgets().of_others(agent, pod, now),
            rates: self.rates.lock().of_others(agent, pod, now),
        }
    }

    /// Changes the open revocations, and counts those that `change` completes.
    fn revocations(&self, change: impl FnOnce(&mut Revocations) -> Vec<Duration>) {
        let mut revocations = self.revocations.lock();
        for took in change(&mut revocations) {
            self.metrics.revocation_seconds.observe(took.as_secs_f64());
        }
        self.metrics.revocations_open.set(gauge(revocations.open()));
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allowlist(tools: &[&str]) -> LinkAllowlist {
        let tools: std::collections::BTreeMap<&str, &str> =
            tools.iter().map(|tool| (*tool, "v1:cut")).collect();
        serde_json::from_value(json!({"tools": tools, "feeds": [], "providers": []}))
            .expect("the JSON is an allowlist")
    }

    #[tokio::test(start_paused = true)]
    async fn a_revocation_is_open_until_the_pod_has_it_in_force() {
        let metrics = Metrics::default();
        let state = State::new(metrics.clone());
        let agent = ObjectRef::new("pond", "otter");
        let sender = Sender {
            uid: "u".into(),
            pod: "otter-7".into(),
            agent: agent.clone(),
            older_than_leader: false,
        };
        let report = json!({"epoch": "e", "version": "1", "usage": {"requests": 0, "rounds": 0,
            "calls": 0, "failed": 0, "denied": 0, "prompt_tokens": 0, "completion_tokens": 0}});
        let mut up: LinkUp = serde_json::from_value(report).expect("the JSON is a report");
        state.begin(40);
        let publish = |access: Access<&LinkAllowlist>, since| {
            state.publish(&agent, access, || false, since);
        };
        publish(Access::Allowed(&allowlist(&["reed.cut"])), None);
        let mut receiver = state.subscribe(&agent, true);
        let change = state.report(&sender, &up);
        assert!(change.state);
        assert_eq!(
            (metrics.link_pods.get(), metrics.revocations_open.get()),
            (1, 0)
        );

        publish(Access::Allowed(&allowlist(&[])), Some(Instant::now()));
        assert_eq!(metrics.revocations_open.get(), 1);
        up.seen = receiver
            .borrow_and_update()
            .as_ref()
            .expect("an answer")
            .seq;
        assert_eq!(up.seen, 42);
        state.report(&sender, &up);
        assert_eq!(metrics.revocations_open.get(), 0);

        publish(Access::Deleted, None);
        assert_eq!(metrics.revocations_open.get(), 1);
        state.pod_gone("u");
        assert_eq!(metrics.revocations_open.get(), 0);
        state.end();
        assert_eq!(metrics.link_pods.get(), 0);
    }
}
