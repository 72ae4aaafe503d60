//! Leader election with one Lease, which is created if absent, acquired and renewed.
//!
//! [`Election`] decides, as a function of the Lease and of this machine's own clock; it never
//! compares the holder's clock, since clocks differ. The code around it reads, writes and waits. A
//! write carries the resourceVersion that was read, so one of two candidates gets 409. A leader that
//! could not renew for [`Timing::renew_deadline`] stops before another candidate may start.
//!
//! The lease keeps two leaders from doing the same work. Safety does not depend on it: every write
//! of a leader is fenced as well.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between the beginnings of two tenures.
const APART: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Times of the election. A lost leader is replaced within 15 s: at worst `duration` after its last
/// renewal, plus `retry`.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(12),
            renew_deadline: Duration::from_secs(8),
            // A standby sees a released lease at its next read, so a hand-over takes at most 2 s.
            retry: Duration::from_millis(1_500),
        }
    }
}

/// The state of a candidate between two reads of the Lease.
#[derive(Clone, Debug)]
pub struct Election {
    me: String,
    timing: Timing,
    /// The last observed record, and the time of its first observation.
    seen: Option<(LeaseSpec, Instant)>,
    /// Start of this candidate's last successful write.
    renewed: Option<Instant>,
    /// Start of this candidate's tenure, as written into the Lease.
    acquired: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The Lease is free or ours: write this record.
    Write(LeaseSpec),
    /// Another candidate holds the Lease.
    Stand,
}

impl Election {
    pub fn new(me: impl Into<String>, timing: Timing) -> Self {
        Self {
            me: me.into(),
            timing,
            seen: None,
            renewed: None,
            acquired: None,
        }
    }

    /// Decides what to do with the Lease that was just read; `None` if it does not exist.
    pub fn decide(&mut self, read: Option<&LeaseSpec>, now: Instant, clock: Timestamp) -> Decision {
        let Some(read) = read else {
            self.seen = None;
            return Decision::Write(self.record(None, clock));
        };
        if self.seen.as_ref().is_none_or(|(seen, _)| seen != read) {
            self.seen = Some((read.clone(), now));
        }
        let holder = read.holder_identity.as_deref().unwrap_or_default();
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let length = read
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(self.timing.duration, Duration::from_secs);
        if holder.is_empty() || holder == self.me || now >= since + length {
            Decision::Write(self.record(Some(read), clock))
        } else {
            Decision::Stand
        }
    }

    /// Notes that a write, started at `begun`, was accepted.
    pub fn written(&mut self, begun: Instant) {
        self.renewed = Some(begun);
    }

    /// The time until which this candidate may act as leader; `None` if it does not lead.
    pub fn leads_until(&self) -> Option<Instant> {
        self.renewed
            .map(|renewed| renewed + self.timing.renew_deadline)
    }

    /// The tenure for the rest of the process; `None` if this candidate does not lead.
    pub fn tenure(&self) -> Option<Tenure> {
        Some(Tenure {
            since: self.acquired?,
            until: self.leads_until()?,
        })
    }

    pub fn resign(&mut self) {
        self.renewed = None;
        self.seen = None;
        self.acquired = None;
    }

    /// The record that lets the next candidate start at once; `None` if another candidate holds the
    /// Lease.
    pub fn release(&self, read: &LeaseSpec, clock: Timestamp) -> Option<LeaseSpec> {
        (read.holder_identity.as_deref() == Some(self.me.as_str())).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(clock)),
            ..read.clone()
        })
    }

    fn record(&mut self, read: Option<&LeaseSpec>, clock: Timestamp) -> LeaseSpec {
        let mine = read.filter(|read| read.holder_identity.as_deref() == Some(self.me.as_str()));
        let acquired = match (mine, self.acquired) {
            (Some(_), Some(acquired)) => acquired,
            // A process that restarted under the same name begins a new tenure too.
            (Some(_) | None, _) => begins(read, clock),
        };
        self.acquired = Some(acquired);
        LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
            acquire_time: Some(MicroTime(acquired)),
            renew_time: Some(MicroTime(clock)),
            lease_transitions: match (read, mine) {
                (_, Some(mine)) => mine.lease_transitions,
                (Some(read), None) => Some(read.lease_transitions.unwrap_or(0).saturating_add(1)),
                (None, None) => Some(0),
            },
            ..LeaseSpec::default()
        }
    }
}

/// The start of a new tenure: later than the start of the previous one, even if the clocks are
/// wrong. A leader's numbers begin here.
fn begins(before: Option<&LeaseSpec>, clock: Timestamp) -> Timestamp {
    let before = before.and_then(|before| before.acquire_time.as_ref());
    before
        .and_then(|before| before.0.checked_add(APART).ok())
        .map_or(clock, |next| next.max(clock))
}

/// A candidate, and the Lease that it wants.
#[derive(Clone)]
pub struct Candidate {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// A Secret of the chart that owns the created Lease, so both are removed together.
    pub owner: String,
    pub identity: String,
    pub timing: Timing,
    /// Updated at every renewal.
    pub tenure: SharedTenure,
}

/// The time for which a candidate leads, until it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Start of the tenure, which also numbers it: later for each next leader.
    pub since: Timestamp,
    /// Time until which the holder may act.
    pub until: Instant,
}

/// A candidate's tenure; `None` if it does not lead.
pub type SharedTenure = Arc<Mutex<Option<Tenure>>>;

/// The lease that this process holds. [`ActiveLease::lost`] renews it, [`ActiveLease::release`]
/// releases it.
pub struct ActiveLease {
    candidate: Candidate,
    election: Election,
}

impl Candidate {
    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until this candidate leads. Errors are retried.
    pub async fn acquire(self) -> ActiveLease {
        let mut election = Election::new(self.identity.clone(), self.timing);
        loop {
            match self.attempt(&mut election).await {
                Ok(true) => {
                    return ActiveLease {
                        candidate: self,
                        election,
                    };
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "leader election failed, retrying")
                }
            }
            tokio::time::sleep(self.timing.retry).await;
        }
    }

    /// Tries once to acquire or renew the lease. Returns whether this candidate holds it now.
    async fn attempt(&self, election: &mut Election) -> Result<bool, kube::Error> {
        let begun = Instant::now();
        let api = self.api();
        let params = PostParams::default();
        let found = api.get_opt(&self.name).await?;
        let read = found.as_ref().and_then(|lease| lease.spec.as_ref());
        let decision = election.decide(read, Instant::now(), Timestamp::now());
        let Decision::Write(spec) = decision else {
            return Ok(false);
        };
        let written = match found {
            // The write carries the resourceVersion that was read, so it is fenced.
            Some(lease) => {
                let spec = Some(spec);
                api.replace(&self.name, &params, &Lease { spec, ..lease })
                    .await
            }
            // If two candidates create it, the second one gets 409.
            None => api.create(&params, &self.new_lease(spec).await?).await,
        };
        match written {
            Ok(_) => {
                election.written(begun);
                *self.tenure.lock() = election.tenure();
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The Lease to create. It is not in the chart, because Argo CD leaves Leases out. A Secret of
    /// the chart owns it, so an uninstalled operator leaves nothing behind.
    async fn new_lease(&self, spec: LeaseSpec) -> Result<Lease, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let owner = secrets.get(&self.owner).await?;
        let owner = OwnerReference {
            api_version: Secret::api_version(&()).into_owned(),
            kind: Secret::kind(&()).into_owned(),
            name: self.owner.clone(),
            uid: owner.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        })
    }
}

impl ActiveLease {
    /// Renews the lease until it is lost; returns the reason.
    pub async fn lost(&mut self) -> &'static str {
        let retry = self.candidate.timing.retry;
        loop {
            tokio::time::sleep(retry).await;
            let Some(until) = self.election.leads_until() else {
                return "lease is not held";
            };
            let attempt = self.candidate.attempt(&mut self.election);
            match tokio::time::timeout_at(until, attempt).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    self.election.resign();
                    return "another replica took the lease";
                }
                Ok(Err(error)) if Instant::now() < until => {
                    tracing::warn!(%error, "lease renewal failed, retrying");
                }
                Ok(Err(_)) | Err(_) => {
                    self.election.resign();
                    return "lease renewal deadline exceeded";
                }
            }
        }
    }

    /// Releases the Lease so that the next candidate starts at once. It tries for two seconds only,
    /// since the Lease expires anyway.
    pub async fn release(self) {
        let api = self.candidate.api();
        let release = async {
            let Some(mut lease) = api.get_opt(&self.candidate.name).await? else {
                return Ok(());
            };
            let Some(spec) = lease
                .spec
                .as_ref()
                .and_then(|spec| self.election.release(spec, Timestamp::now()))
            else {
                return Ok(());
            };
            lease.spec = Some(spec);
            api.replace(&self.candidate.name, &PostParams::default(), &lease)
                .await?;
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(Duration::from_secs(2), release).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "lease release failed, it expires by itself"),
            Err(_) => tracing::warn!("lease release timed out, it expires by itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn write(decision: Decision) -> LeaseSpec {
        match decision {
            Decision::Write(spec) => spec,
            Decision::Stand => panic!("stood by"),
        }
    }

    #[test]
    fn the_first_candidate_creates_an_absent_lease() {
        let mut heron = Election::new("heron", Timing::default());
        let now = Instant::now();
        let spec = write(heron.decide(None, now, clock(0)));
        assert_eq!(spec.holder_identity.as_deref(), Some("heron"));
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(
            heron.leads_until(),
            None,
            "not before the write is accepted"
        );
        heron.written(now);
        assert_eq!(
            heron.leads_until(),
            Some(now + Timing::default().renew_deadline)
        );
    }

    #[test]
    fn a_standby_measures_the_lease_by_its_own_clock() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut heron = Election::new("heron", Timing::default());
        let mut newt = Election::new("newt", Timing::default());
        // The holder's clock is an hour behind.
        let first = write(heron.decide(None, start, clock(-3600)));
        assert_eq!(newt.decide(Some(&first), start, clock(0)), Decision::Stand);
        assert_eq!(
            newt.decide(Some(&first), start + 11 * second, clock(11)),
            Decision::Stand
        );
        // After a renewal the wait begins again.
        let renewed = write(heron.decide(Some(&first), start + 11 * second, clock(-3589)));
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_eq!(
            newt.decide(Some(&renewed), start + 13 * second, clock(13)),
            Decision::Stand
        );
        assert_eq!(
            newt.decide(Some(&renewed), start + 24 * second, clock(24)),
            Decision::Stand
        );
        let taken = write(newt.decide(Some(&renewed), start + 25 * second, clock(25)));
        assert_eq!(taken.holder_identity.as_deref(), Some("newt"));
        assert_eq!(taken.lease_transitions, Some(1));
    }

    #[test]
    fn a_leader_stops_before_another_candidate_may_start() {
        let timing = Timing::default();
        assert!(timing.renew_deadline < timing.duration);
        assert!(timing.retry < timing.renew_deadline);
        assert!(timing.duration + timing.retry < Duration::from_secs(15));
    }

    #[test]
    fn a_tenure_begins_after_the_previous_one_even_if_clocks_are_wrong() {
        let now = Instant::now();
        let mut heron = Election::new("heron", Timing::default());
        let first = write(heron.decide(None, now, clock(3600)));
        heron.written(now);
        assert_eq!(heron.tenure().unwrap().since, clock(3600));
        let released = heron.release(&first, clock(3601)).unwrap();
        // The clock of the next leader is an hour behind.
        let mut newt = Election::new("newt", Timing::default());
        let second = write(newt.decide(Some(&released), now, clock(5)));
        assert_eq!(second.acquire_time, Some(MicroTime(clock(3601))));
        // A new process has the same name.
        let mut again = Election::new("newt", Timing::default());
        let third = write(again.decide(Some(&second), now, clock(6)));
        assert_eq!(third.acquire_time, Some(MicroTime(clock(3602))));
        let renewed = write(again.decide(Some(&third), now, clock(7)));
        assert_eq!(renewed.acquire_time, third.acquire_time);
    }

    #[test]
    fn a_released_lease_is_taken_at_the_next_read() {
        let now = Instant::now();
        let mut heron = Election::new("heron", Timing::default());
        let mut newt = Election::new("newt", Timing::default());
        let spec = write(heron.decide(None, now, clock(0)));
        assert_eq!(
            newt.release(&spec, clock(1)),
            None,
            "only the holder releases"
        );
        let released = heron.release(&spec, clock(1)).unwrap();
        let taken = write(newt.decide(Some(&released), now, clock(2)));
        assert_eq!(taken.holder_identity.as_deref(), Some("newt"));
    }
}
