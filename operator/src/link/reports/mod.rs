//! The latest report of each pod, and the sums per agent.
//!
//! Pure. Counters are cumulative per (pod, epoch) and merged by maximum, so a repeated or late
//! message counts once. The counters of a deleted pod stay in the sum. What a pod counted before its
//! Agent began is never in the sum: the pod may be older than an Agent of the same name that was
//! deleted and created again. Bounded: one entry per living pod, with one epoch (earlier ones are
//! summed up). Texts are truncated, and counters and times are limited to what an Agent's status can
//! hold, because a mediator may be hostile.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{
    Digests, LONGEST_TEXT, LinkUp, MOST_OUTAGES, MOST_PROVIDERS, MOST_WITHHELD, RunnerAccess, Usage,
};

/// Limit of a counter. Many JSON parsers cannot represent larger integers, and past 2^63 the API
/// server refuses the whole status.
pub(super) const MOST: u64 = (1 << 53) - 1;
/// Most that a mediator's clock may be ahead. A last call in the future would hide all later calls.
pub(super) const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The pod that sent a report, from the TokenReview and the pod's labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    pub uid: String,
    pub pod: String,
    pub agent: ObjectRef,
    /// The pod was created before this leader began, so the counters of its first report may be in
    /// the agent's status already.
    pub older_than_leader: bool,
}

/// The latest report of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    pub pod: String,
    pub loaded: Option<Digests>,
    /// The reason why the mounted files are not loaded.
    pub error: Option<String>,
    /// Withheld tools, as `tool: reason`.
    pub withheld: Vec<String>,
    /// Providers that refuse every key that the mediator has for them, each with the reason: a
    /// sentence that begins with the provider's name.
    pub providers: Vec<String>,
    /// Services from which the mediator's last calls got no answer, as `service (cause)`.
    pub outages: Vec<String>,
    /// Providers from which the mediator's last requests got no answer, as `provider (cause)`.
    pub provider_outages: Vec<String>,
    /// Whether the mediator has accepted the runner's token.
    pub runner: Option<RunnerAccess>,
}

/// A living pod that has reported to this leader.
#[derive(Clone, Debug)]
struct ReportingPod {
    agent: ObjectRef,
    /// `None`: its Agent was deleted since the last report.
    report: Option<PodReport>,
    /// Time of the last report.
    reported: Instant,
    /// Whether no report has come for too long. Its Agent has been told.
    is_silent: bool,
    epoch: String,
    /// The counters of this epoch that are not to be counted: they are part of the agent's status
    /// already, or of an earlier Agent's.
    baseline: Counters,
    /// The latest counters of this epoch.
    latest: Counters,
}

/// The counters of [`Usage`], without the time of the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters([u64; 7]);

impl Counters {
    fn of(usage: &Usage) -> Self {
        Self([
            usage.requests,
            usage.rounds,
            usage.calls,
            usage.failed,
            usage.denied,
            usage.prompt_tokens,
            usage.completion_tokens,
        ])
    }

    /// Limits each counter to [`MOST`]: a mediator may report any number.
    fn bounded(self) -> Self {
        Self(self.0.map(|counter| counter.min(MOST)))
    }

    fn plus(self, more: Self) -> Self {
        self.zip(more, u64::saturating_add).bounded()
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|index| {
            with(self.0[index], other.0[index])
        }))
    }

    fn usage(self, last_call: Option<String>) -> Usage {
        let [
            requests,
            rounds,
            calls,
            failed,
            denied,
            prompt_tokens,
            completion_tokens,
        ] = self.0;
        Usage {
            requests,
            rounds,
            calls,
            failed,
            denied,
            prompt_tokens,
            completion_tokens,
            last_call,
        }
    }
}

/// The counters of an agent's deleted pods and earlier epochs, and its last call.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Creation time of the Agent.
    created: Option<Timestamp>,
    settled: Counters,
    last_call: Option<String>,
}

impl Tally {
    /// Takes the time of a call, unless a later one is known. Returns whether it is taken. The call
    /// of a pod that is older than the Agent may be older too.
    fn called(&mut self, at: Option<Timestamp>) -> bool {
        let at = at.filter(|at| self.created.is_none_or(|created| *at >= created));
        // Times in RFC 3339 and UTC can be compared as text.
        let at = at.map(|at| at.to_string());
        let is_later = at > self.last_call;
        if is_later {
            self.last_call = at;
        }
        is_later
    }
}

/// The parts of an agent's status that a report changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportChange {
    /// Loaded digests, error, withheld tools, refused keys, outages or the runner's access.
    pub state: bool,
    pub usage: bool,
}

#[derive(Debug, Default)]
pub struct Reports {
    pods: HashMap<String, ReportingPod>,
    agents: HashMap<ObjectRef, Tally>,
}

impl Reports {
    /// Starts the counters of an Agent that was created at this time from its status, unless the agent
    /// is known already.
    pub fn begin(&mut self, agent: &ObjectRef, created: Option<Timestamp>, counted: &Usage) {
        self.agents.entry(agent.clone()).or_insert_with(|| {
            let mut tally = Tally {
                created,
                settled: Counters::of(counted).bounded(),
                last_call: None,
            };
            let last_call = counted.last_call.as_deref();
            tally.called(last_call.and_then(|at| at.parse().ok()));
            tally
        });
    }

    /// Merges a report; returns what it changed.
    pub fn merge(
        &mut self,
        sender: &Sender,
        up: &LinkUp,
        now: Timestamp,
        reported: Instant,
    ) -> ReportChange {
        let counted = Counters::of(&up.usage).bounded();
        let epoch = cut(&up.epoch);
        let report = PodReport::new(sender, up);
        let pod = self.pods.entry(sender.uid.clone()).or_insert_with(|| {
            let baseline = if sender.older_than_leader {
                counted
            } else {
                Counters::default()
            };
            ReportingPod {
                agent: sender.agent.clone(),
                report: None,
                reported,
                is_silent: false,
                epoch: epoch.clone(),
                baseline,
                latest: baseline,
            }
        });
        let state = pod.report.as_ref() != Some(&report) || pod.is_silent;
        pod.report = Some(report);
        pod.reported = reported;
        pod.is_silent = false;
        let ended = pod.delta();
        let is_other_epoch = pod.epoch != epoch;
        if is_other_epoch {
            pod.epoch = epoch;
            pod.baseline = Counters::default();
            pod.latest = Counters::default();
        }
        let latest = pod.latest.zip(counted, u64::max);
        let mut usage = latest != pod.latest;
        pod.latest = latest;
        match self.agents.get_mut(&sender.agent) {
            Some(tally) => {
                if is_other_epoch {
                    tally.settled = tally.settled.plus(ended);
                }
                usage |= tally.called(last_call(&up.usage, now));
            }
            // The Agent does not exist, or has not begun.
            None => {
                pod.discount();
                usage = false;
            }
        }
        ReportChange { state, usage }
    }

    /// Drops a deleted pod and adds its counters to the sum of its agent, which is returned. `None`: the
    /// pod never reported.
    pub fn remove_pod(&mut self, uid: &str) -> Option<ObjectRef> {
        let pod = self.pods.remove(uid)?;
        if let Some(tally) = self.agents.get_mut(&pod.agent) {
            tally.settled = tally.settled.plus(pod.delta());
        }
        Some(pod.agent)
    }

    /// Drops the counters of a deleted Agent, and the reports of its pods. The pods may outlive it:
    /// what they have counted so far is not a later Agent's.
    pub fn forget_agent(&mut self, agent: &ObjectRef) {
        self.agents.remove(agent);
        for pod in self.pods.values_mut().filter(|pod| pod.agent == *agent) {
            pod.report = None;
            pod.discount();
        }
    }

    /// The pod's latest report under its present Agent.
    pub fn pod(&self, uid: &str) -> Option<&PodReport> {
        self.pods.get(uid)?.report.as_ref()
    }

    /// Whether the pod has reported, and then no more for too long.
    pub fn is_silent(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.is_silent)
    }

    /// Finds the pods whose last report came before `since`. Returns the agents that have such a pod
    /// for the first time since its last report.
    pub fn find_silent(&mut self, since: Instant) -> BTreeSet<ObjectRef> {
        let heard = self.pods.values_mut().filter(|pod| !pod.is_silent);
        let silent = heard.filter(|pod| pod.reported < since);
        silent
            .map(|pod| {
                pod.is_silent = true;
                pod.agent.clone()
            })
            .collect()
    }

    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Returns the time of each agent's last call, for agents that have called a tool.
    pub fn last_calls(&self) -> Vec<(ObjectRef, String)> {
        let last =
            |(agent, tally): (&ObjectRef, &Tally)| Some((agent.clone(), tally.last_call.clone()?));
        self.agents.iter().filter_map(last).collect()
    }

    /// Returns [`Self::usage`] of several agents, in one pass over the pods.
    pub fn usages(&self, agents: &[ObjectRef]) -> HashMap<ObjectRef, Usage> {
        let mut sums: HashMap<&ObjectRef, (Counters, Option<String>)> = agents
            .iter()
            .map(|agent| {
                let tally = self.agents.get(agent).cloned().unwrap_or_default();
                (agent, (tally.settled, tally.last_call))
            })
            .collect();
        for pod in self.pods.values() {
            if let Some((sum, _)) = sums.get_mut(&pod.agent) {
                *sum = sum.plus(pod.delta());
            }
        }
        sums.into_iter()
            .map(|(agent, (sum, last_call))| (agent.clone(), sum.usage(last_call)))
            .collect()
    }

    /// Returns the sum of an agent's counters over all its pods, living and deleted.
    pub fn usage(&self, agent: &ObjectRef) -> Usage {
        let mut usages = self.usages(std::slice::from_ref(agent));
        usages.remove(agent).unwrap_or_default()
    }
}

impl PodReport {
    fn new(sender: &Sender, up: &LinkUp) -> Self {
        let withheld = up.withheld.iter().take(MOST_WITHHELD);
        let providers = up.providers.iter().take(MOST_PROVIDERS);
        let outages = up.outages.iter().take(MOST_OUTAGES);
        let provider_outages = up.provider_outages.iter().take(MOST_PROVIDERS);
        Self {
            pod: sender.pod.clone(),
            loaded: up.loaded.as_ref().map(|loaded| Digests {
                manifest: cut(&loaded.manifest),
                credentials: cut(&loaded.credentials),
            }),
            error: up.error.as_deref().map(cut),
            withheld: withheld
                .map(|withheld| format!("{}: {}", cut(&withheld.tool), cut(&withheld.reason)))
                .collect(),
            providers: providers
                .map(|refusal| format!("{} {}", cut(&refusal.provider), cut(&refusal.reason)))
                .collect(),
            outages: outages
                .map(|outage| format!("{} ({})", cut(&outage.service), cut(&outage.reason)))
                .collect(),
            provider_outages: provider_outages
                .map(|outage| format!("{} ({})", cut(&outage.provider), cut(&outage.reason)))
                .collect(),
            runner: up.runner,
        }
    }
}

impl ReportingPod {
    fn delta(&self) -> Counters {
        self.latest.zip(self.baseline, u64::saturating_sub)
    }

    /// Leaves out of the sum what the pod has counted so far.
    fn discount(&mut self) {
        self.baseline = self.latest;
    }
}

/// Returns the time of the pod's last call; `None` if the time is missing, invalid, or too far
/// ahead.
fn last_call(usage: &Usage, now: Timestamp) -> Option<Timestamp> {
    let at: Timestamp = usage.last_call.as_deref()?.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH && now.duration_until(at) <= CLOCK_SKEW).then_some(at)
}

/// Removes control characters from a mediator's text and truncates it, since it is copied to the
/// status.
pub(super) fn cut(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    toolcrib_bounds::cut(&plain, LONGEST_TEXT).into_owned()
}

#[cfg(test)]
mod tests;
