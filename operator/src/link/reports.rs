//! The latest report of each pod, and the sums per agent.
//!
//! Pure. Counters are cumulative per (pod, epoch) and merged by maximum, so a repeated or late
//! message counts once. The counters of a deleted pod stay in the sum. Bounded: one entry per
//! living pod, with one epoch (earlier ones are summed up). Texts are truncated, and counters and
//! times are limited to what an Agent's status can hold, because a mediator may be hostile.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{
    Digests, LONGEST_TEXT, LinkUp, MOST_OUTAGES, MOST_PROVIDERS, MOST_WITHHELD, RunnerAccess, Usage,
};

/// Limit of a counter. Many JSON parsers cannot represent larger integers, and past 2^63 the API
/// server refuses the whole status.
pub(super) const MOST: u64 = (1 << 53) - 1;
/// Most that a mediator's clock may be ahead. A last call in the future would hide all later calls.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

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
    pub agent: ObjectRef,
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
    /// Whether the mediator has accepted the runner's token.
    pub runner: Option<RunnerAccess>,
    epoch: String,
    /// The counters of this epoch that are part of the agent's status already.
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
    settled: Counters,
    last_call: Option<String>,
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
    pods: HashMap<String, PodReport>,
    agents: HashMap<ObjectRef, Tally>,
}

impl Reports {
    /// Starts an agent's counters from its status, unless the agent is known already.
    pub fn begin(&mut self, agent: &ObjectRef, counted: &Usage) {
        self.agents.entry(agent.clone()).or_insert_with(|| Tally {
            settled: Counters::of(counted).bounded(),
            last_call: counted.last_call.clone(),
        });
    }

    /// Merges a report; returns what it changed.
    pub fn merge(&mut self, sender: &Sender, up: &LinkUp, now: Timestamp) -> ReportChange {
        let counted = Counters::of(&up.usage).bounded();
        let known = self.agents.contains_key(&sender.agent);
        let tally = self.agents.entry(sender.agent.clone()).or_default();
        // Times in RFC 3339 and UTC can be compared as text.
        let last_call = last_call(&up.usage, now);
        let newer = last_call > tally.last_call;
        if newer {
            tally.last_call = last_call;
        }
        let loaded = up.loaded.as_ref().map(|loaded| Digests {
            manifest: cut(&loaded.manifest),
            credentials: cut(&loaded.credentials),
        });
        let error = up.error.as_deref().map(cut);
        let withheld: Vec<String> = up
            .withheld
            .iter()
            .take(MOST_WITHHELD)
            .map(|withheld| format!("{}: {}", cut(&withheld.tool), cut(&withheld.reason)))
            .collect();
        let providers: Vec<String> = up
            .providers
            .iter()
            .take(MOST_PROVIDERS)
            .map(|refusal| format!("{} {}", cut(&refusal.provider), cut(&refusal.reason)))
            .collect();
        let outages: Vec<String> = up
            .outages
            .iter()
            .take(MOST_OUTAGES)
            .map(|outage| format!("{} ({})", cut(&outage.service), cut(&outage.reason)))
            .collect();

        match self.pods.get_mut(&sender.uid) {
            None => {
                let baseline = if sender.older_than_leader && known {
                    counted
                } else {
                    Counters::default()
                };
                self.pods.insert(
                    sender.uid.clone(),
                    PodReport {
                        pod: sender.pod.clone(),
                        agent: sender.agent.clone(),
                        loaded,
                        error,
                        withheld,
                        providers,
                        outages,
                        runner: up.runner,
                        epoch: cut(&up.epoch),
                        baseline,
                        latest: counted,
                    },
                );
                ReportChange {
                    state: true,
                    usage: newer || counted != baseline,
                }
            }
            Some(report) => {
                if report.epoch != cut(&up.epoch) {
                    tally.settled = tally.settled.plus(report.delta());
                    report.epoch = cut(&up.epoch);
                    report.baseline = Counters::default();
                    report.latest = Counters::default();
                }
                let latest = report.latest.zip(counted, u64::max);
                let change = ReportChange {
                    state: report.loaded != loaded
                        || report.error != error
                        || report.withheld != withheld
                        || report.providers != providers
                        || report.outages != outages
                        || report.runner != up.runner,
                    usage: newer || latest != report.latest,
                };
                report.latest = latest;
                report.loaded = loaded;
                report.error = error;
                report.withheld = withheld;
                report.providers = providers;
                report.outages = outages;
                report.runner = up.runner;
                change
            }
        }
    }

    /// Drops a deleted pod and adds its counters to the agent's sum.
    pub fn remove_pod(&mut self, uid: &str) {
        if let Some(report) = self.pods.remove(uid) {
            let tally = self.agents.entry(report.agent.clone()).or_default();
            tally.settled = tally.settled.plus(report.delta());
        }
    }

    pub fn forget_agent(&mut self, agent: &ObjectRef) {
        self.agents.remove(agent);
        self.pods.retain(|_, report| report.agent != *agent);
    }

    pub fn pod(&self, uid: &str) -> Option<&PodReport> {
        self.pods.get(uid)
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
        for report in self.pods.values() {
            if let Some((sum, _)) = sums.get_mut(&report.agent) {
                *sum = sum.plus(report.delta());
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
    fn delta(&self) -> Counters {
        self.latest.zip(self.baseline, u64::saturating_sub)
    }
}

/// Returns the time of the pod's last call, in UTC; `None` if the time is missing, invalid, or too
/// far ahead.
fn last_call(usage: &Usage, now: Timestamp) -> Option<String> {
    let at: Timestamp = usage.last_call.as_deref()?.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH && now.duration_until(at) <= CLOCK_SKEW).then(|| at.to_string())
}

/// Removes control characters from a mediator's text and truncates it, since it is copied to the
/// status.
fn cut(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    toolcrib_bounds::cut(&plain, LONGEST_TEXT).into_owned()
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::{LoadedVersion, ProviderRefusal, ServiceOutage};

    use super::*;

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn sender(uid: &str, older_than_leader: bool) -> Sender {
        Sender {
            uid: uid.into(),
            pod: format!("pod-{uid}"),
            agent: otter(),
            older_than_leader,
        }
    }

    fn up(epoch: &str, calls: u64) -> LinkUp {
        LinkUp {
            epoch: epoch.into(),
            version: "1".into(),
            understands: Vec::new(),
            loaded: Some(LoadedVersion {
                manifest: "m1".into(),
                credentials: "c1".into(),
                at: "2026-01-01T00:00:00Z".into(),
            }),
            error: None,
            seen: 0,
            hold_ms: 0,
            withheld: Vec::new(),
            providers: Vec::new(),
            outages: Vec::new(),
            runner: None,
            usage: Usage {
                calls,
                ..Usage::default()
            },
            budgets: Vec::new(),
        }
    }

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().unwrap()
    }

    fn calls(reports: &Reports) -> u64 {
        reports.usage(&otter()).calls
    }

    #[test]
    fn late_and_repeated_messages_count_once() {
        let mut reports = Reports::default();
        assert_eq!(
            reports.merge(&sender("a", false), &up("e1", 3), now()),
            ReportChange {
                state: true,
                usage: true
            }
        );
        assert_eq!(
            reports.merge(&sender("a", false), &up("e1", 5), now()),
            ReportChange {
                state: false,
                usage: true
            }
        );
        assert_eq!(
            reports.merge(&sender("a", false), &up("e1", 3), now()),
            ReportChange::default()
        );
        assert_eq!(calls(&reports), 5);
    }

    #[test]
    fn counters_outlive_restarts_and_deleted_pods() {
        let mut reports = Reports::default();
        reports.merge(&sender("a", false), &up("e1", 5), now());
        reports.merge(&sender("a", false), &up("e2", 2), now());
        reports.merge(&sender("b", false), &up("e1", 10), now());
        assert_eq!(calls(&reports), 17);
        reports.remove_pod("a");
        reports.remove_pod("b");
        assert_eq!((calls(&reports), reports.pods()), (17, 0));
    }

    #[test]
    fn a_new_leader_counts_on_from_the_status() {
        let mut reports = Reports::default();
        reports.begin(
            &otter(),
            &Usage {
                calls: 100,
                ..Usage::default()
            },
        );
        // The pod's 40 calls are among the 100 of the status.
        assert!(
            !reports
                .merge(&sender("old", true), &up("e1", 40), now())
                .usage
        );
        reports.merge(&sender("new", false), &up("e1", 7), now());
        assert_eq!(calls(&reports), 107);
        reports.merge(&sender("old", true), &up("e1", 45), now());
        assert_eq!(calls(&reports), 112);
    }

    #[test]
    fn a_refused_key_is_a_change_of_state_until_it_is_gone() {
        let mut reports = Reports::default();
        let sender = sender("a", false);
        reports.merge(&sender, &up("e1", 0), now());
        let mut refused = up("e1", 0);
        let refusal = ProviderRefusal {
            provider: "reef".into(),
            reason: "refused its key with status 401".into(),
        };
        refused.providers = vec![refusal; 2 * MOST_PROVIDERS];
        assert!(reports.merge(&sender, &refused, now()).state);
        assert!(!reports.merge(&sender, &refused, now()).state);
        let said = &reports.pod("a").unwrap().providers;
        assert_eq!(said.len(), MOST_PROVIDERS);
        assert_eq!(said[0], "reef refused its key with status 401");
        assert!(reports.merge(&sender, &up("e1", 0), now()).state);
        assert!(reports.pod("a").unwrap().providers.is_empty());
    }

    #[test]
    fn an_outage_is_a_change_of_state_until_it_is_over() {
        let mut reports = Reports::default();
        let sender = sender("a", false);
        reports.merge(&sender, &up("e1", 0), now());
        let mut silent = up("e1", 0);
        let outage = ServiceOutage {
            service: "desk".into(),
            reason: "connection refused".into(),
        };
        silent.outages = vec![outage; 2 * MOST_OUTAGES];
        assert!(reports.merge(&sender, &silent, now()).state);
        assert!(!reports.merge(&sender, &silent, now()).state);
        let outages = &reports.pod("a").unwrap().outages;
        assert_eq!(outages.len(), MOST_OUTAGES);
        assert_eq!(outages[0], "desk (connection refused)");
        assert!(reports.merge(&sender, &up("e1", 0), now()).state);
    }

    #[test]
    fn hostile_texts_are_cut() {
        let mut reports = Reports::default();
        let mut hostile = up(&"e".repeat(10_000), 1);
        hostile.error = Some(format!("\u{1b}[2J{}", "x".repeat(10_000)));
        reports.merge(&sender("a", false), &hostile, now());
        let report = reports.pod("a").unwrap();
        assert!(report.error.as_ref().unwrap().chars().count() <= LONGEST_TEXT);
        assert!(!report.error.as_ref().unwrap().contains('\u{1b}'));
    }

    /// Past 2^63 the API server would refuse every later status of the Agent.
    #[test]
    fn counters_stay_within_what_a_status_can_hold() {
        let mut reports = Reports::default();
        let all = |usage: &Usage| Counters::of(usage).0.iter().sum::<u64>();
        for (uid, epoch) in [("a", "e1"), ("a", "e2"), ("b", "e1")] {
            let mut hostile = up(epoch, u64::MAX);
            hostile.usage = Counters([u64::MAX; 7]).usage(None);
            reports.merge(&sender(uid, false), &hostile, now());
            assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
        }
        reports.remove_pod("a");
        reports.remove_pod("b");
        assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
        // Counters of a status that an earlier release wrote.
        let heron = ObjectRef::new("pond", "heron");
        reports.begin(&heron, &Counters([u64::MAX; 7]).usage(None));
        assert_eq!(all(&reports.usage(&heron)), 7 * MOST);
    }

    #[test]
    fn an_impossible_time_of_the_last_call_is_ignored() {
        let mut reports = Reports::default();
        let mut say = |at: &str| {
            let mut up = up("e1", 1);
            up.usage.last_call = Some(at.to_owned());
            reports.merge(&sender("a", false), &up, now());
            reports.usage(&otter()).last_call
        };
        for never in [
            "",
            "soon",
            "-009999-01-01T00:00:00Z",
            "9999-01-01T00:00:00Z",
        ] {
            assert_eq!(say(never), None, "{never}");
        }
        let real = Some("2026-01-01T22:00:00Z".to_owned());
        assert_eq!(say("2026-01-02T00:00:00+02:00"), real);
        assert_eq!(say("2031-01-01T00:00:00Z"), real);
    }
}
