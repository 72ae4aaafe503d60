//! What mediators have said, per pod, and what it adds up to per agent.
//!
//! Pure. Counters are cumulative per (pod, epoch) and merged by maximum, so a repeated or
//! late message counts once. What a pod counted stays counted when it is gone. Bounded: one
//! entry per living pod, one epoch each (an earlier one is summed up), texts cut, counters and
//! times within what an Agent's status can hold, whatever a mediator says.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{Digests, LONGEST_TEXT, LinkUp, MOST_WITHHELD, RunnerAccess, Usage};

/// The most that a counter says. Larger integers are no integers to many readers of JSON, and
/// past 2^63 the API server refuses the whole status.
const MOST: u64 = (1 << 53) - 1;
/// A mediator's clock may be this far ahead. A call that is later than now would hide all others.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A pod as the TokenReview and the pod's own labels name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    pub uid: String,
    pub pod: String,
    pub agent: ObjectRef,
    /// The pod was made before this leader began: what it counted until its first report
    /// may be in the agent's status already.
    pub older_than_leader: bool,
}

/// What one pod said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    pub pod: String,
    pub agent: ObjectRef,
    pub loaded: Option<Digests>,
    /// Why the files that are there are not loaded.
    pub error: Option<String>,
    /// `tool: reason`.
    pub withheld: Vec<String>,
    /// How the mediator answered the runner's token.
    pub runner: Option<RunnerAccess>,
    epoch: String,
    /// What this epoch had counted when it was first heard of, and now.
    baseline: Counters,
    latest: Counters,
}

/// [`Usage`] without its time.
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

    /// Counters cut to [`MOST`]: a mediator may report any number.
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

/// What an agent's pods have counted that is not in [`PodReport`] of a living epoch.
#[derive(Clone, Debug, Default)]
struct Tally {
    settled: Counters,
    last_call: Option<String>,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Loaded digests, error or withheld tools.
    pub state: bool,
    pub usage: bool,
}

#[derive(Debug, Default)]
pub struct Reports {
    pods: HashMap<String, PodReport>,
    agents: HashMap<ObjectRef, Tally>,
}

impl Reports {
    /// What the agent's status says so far: counting goes on from there.
    pub fn begin(&mut self, agent: &ObjectRef, counted: &Usage) {
        self.agents.entry(agent.clone()).or_insert_with(|| Tally {
            settled: Counters::of(counted).bounded(),
            last_call: counted.last_call.clone(),
        });
    }

    pub fn report(&mut self, sender: &Sender, up: &LinkUp, now: Timestamp) -> News {
        let counted = Counters::of(&up.usage).bounded();
        let known = self.agents.contains_key(&sender.agent);
        let tally = self.agents.entry(sender.agent.clone()).or_default();
        // RFC 3339 in UTC compares as text.
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
                        runner: up.runner,
                        epoch: cut(&up.epoch),
                        baseline,
                        latest: counted,
                    },
                );
                News {
                    state: true,
                    usage: newer || counted != baseline,
                }
            }
            Some(said) => {
                if said.epoch != cut(&up.epoch) {
                    tally.settled = tally.settled.plus(said.delta());
                    said.epoch = cut(&up.epoch);
                    said.baseline = Counters::default();
                    said.latest = Counters::default();
                }
                let latest = said.latest.zip(counted, u64::max);
                let news = News {
                    state: said.loaded != loaded
                        || said.error != error
                        || said.withheld != withheld
                        || said.runner != up.runner,
                    usage: newer || latest != said.latest,
                };
                said.latest = latest;
                said.loaded = loaded;
                said.error = error;
                said.withheld = withheld;
                said.runner = up.runner;
                news
            }
        }
    }

    /// The pod is gone; what it counted stays.
    pub fn gone(&mut self, uid: &str) {
        if let Some(said) = self.pods.remove(uid) {
            let tally = self.agents.entry(said.agent.clone()).or_default();
            tally.settled = tally.settled.plus(said.delta());
        }
    }

    pub fn forget_agent(&mut self, agent: &ObjectRef) {
        self.agents.remove(agent);
        self.pods.retain(|_, said| said.agent != *agent);
    }

    pub fn pod(&self, uid: &str) -> Option<&PodReport> {
        self.pods.get(uid)
    }

    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// When each agent called a tool last, if it ever did.
    pub fn last_calls(&self) -> Vec<(ObjectRef, String)> {
        let last =
            |(agent, tally): (&ObjectRef, &Tally)| Some((agent.clone(), tally.last_call.clone()?));
        self.agents.iter().filter_map(last).collect()
    }

    /// [`Self::usage`] of several agents, with one look at the pods.
    pub fn usages(&self, agents: &[ObjectRef]) -> HashMap<ObjectRef, Usage> {
        let mut sums: HashMap<&ObjectRef, (Counters, Option<String>)> = agents
            .iter()
            .map(|agent| {
                let tally = self.agents.get(agent).cloned().unwrap_or_default();
                (agent, (tally.settled, tally.last_call))
            })
            .collect();
        for said in self.pods.values() {
            if let Some((sum, _)) = sums.get_mut(&said.agent) {
                *sum = sum.plus(said.delta());
            }
        }
        sums.into_iter()
            .map(|(agent, (sum, last_call))| (agent.clone(), sum.usage(last_call)))
            .collect()
    }

    /// Everything the agent's pods have counted.
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

/// When the pod called a tool last, in UTC. A time that cannot have been is none.
fn last_call(usage: &Usage, now: Timestamp) -> Option<String> {
    let at: Timestamp = usage.last_call.as_deref()?.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH && now.duration_until(at) <= CLOCK_SKEW).then(|| at.to_string())
}

/// A mediator may be hostile: its texts end up in status.
fn cut(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    toolcrib_bounds::cut(&plain, LONGEST_TEXT).into_owned()
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::LoadedVersion;

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
            runner: None,
            usage: Usage {
                calls,
                ..Usage::default()
            },
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
            reports.report(&sender("a", false), &up("e1", 3), now()),
            News {
                state: true,
                usage: true
            }
        );
        assert_eq!(
            reports.report(&sender("a", false), &up("e1", 5), now()),
            News {
                state: false,
                usage: true
            }
        );
        assert_eq!(
            reports.report(&sender("a", false), &up("e1", 3), now()),
            News::default()
        );
        assert_eq!(calls(&reports), 5);
    }

    #[test]
    fn a_restarted_mediator_and_a_pod_that_is_gone_stay_counted() {
        let mut reports = Reports::default();
        reports.report(&sender("a", false), &up("e1", 5), now());
        reports.report(&sender("a", false), &up("e2", 2), now());
        reports.report(&sender("b", false), &up("e1", 10), now());
        assert_eq!(calls(&reports), 17);
        reports.gone("a");
        reports.gone("b");
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
        // Its 40 are among the 100.
        assert!(
            !reports
                .report(&sender("old", true), &up("e1", 40), now())
                .usage
        );
        reports.report(&sender("new", false), &up("e1", 7), now());
        assert_eq!(calls(&reports), 107);
        reports.report(&sender("old", true), &up("e1", 45), now());
        assert_eq!(calls(&reports), 112);
    }

    #[test]
    fn hostile_texts_are_cut() {
        let mut reports = Reports::default();
        let mut hostile = up(&"e".repeat(10_000), 1);
        hostile.error = Some(format!("\u{1b}[2J{}", "x".repeat(10_000)));
        reports.report(&sender("a", false), &hostile, now());
        let said = reports.pod("a").unwrap();
        assert!(said.error.as_ref().unwrap().chars().count() <= LONGEST_TEXT);
        assert!(!said.error.as_ref().unwrap().contains('\u{1b}'));
    }

    /// Past 2^63 the API server would refuse every later status of the Agent.
    #[test]
    fn counters_stay_within_what_a_status_can_hold() {
        let mut reports = Reports::default();
        let all = |usage: &Usage| Counters::of(usage).0.iter().sum::<u64>();
        for (uid, epoch) in [("a", "e1"), ("a", "e2"), ("b", "e1")] {
            let mut hostile = up(epoch, u64::MAX);
            hostile.usage = Counters([u64::MAX; 7]).usage(None);
            reports.report(&sender(uid, false), &hostile, now());
            assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
        }
        reports.gone("a");
        reports.gone("b");
        assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
        // Of a status that an earlier release wrote.
        let heron = ObjectRef::new("pond", "heron");
        reports.begin(&heron, &Counters([u64::MAX; 7]).usage(None));
        assert_eq!(all(&reports.usage(&heron)), 7 * MOST);
    }

    #[test]
    fn a_last_call_that_cannot_have_been_is_none() {
        let mut reports = Reports::default();
        let mut say = |at: &str| {
            let mut up = up("e1", 1);
            up.usage.last_call = Some(at.to_owned());
            reports.report(&sender("a", false), &up, now());
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
