//! The mediator's end of the link: reports the loaded files and the counters, and applies the
//! allowlist of the operator's leader. The link can only deny, so losing it grants nothing.
//!
//! One request at a time. The operator holds it until its answer changes; the next request
//! confirms that the change is in force. A change on this side (files were loaded) ends the wait,
//! so that it is reported at once, as do a provider that refuses a key and a service that does not
//! answer, and a question about a call. Answers of an earlier leader are ignored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;
use toolcrib_bounds::chain;
use toolcrib_manifest::{
    LONGEST_TEXT, LinkConfig, LinkDown, LinkUp, LoadedVersion, MOST_WITHHELD, OpenQuestion,
    ProviderRefusal, RecentCall, RecordHead, names,
};
use toolcrib_mediation::{BudgetCounts, RateCounts};
use toolcrib_serve::part_of;

use super::model::ModelClient;
use super::operator::{OperatorClient, OperatorError, OperatorRequest};
use super::outages::{OutageReport, Outages};
use crate::approvals::Approvals;
use crate::config::version::understands;
use crate::config::{CurrentConfig, EffectiveConfig, OlderAnswer};
use crate::history::History;
use crate::metrics::{LinkState, Metrics};

/// Longest time that the operator may hold its answer, and so the interval of counter reports.
const HOLD: Duration = Duration::from_secs(15);
/// The same for an agent with budgets or rates: the sums of its other pods are made of reports that are so
/// old, and are used for as long.
const HOLD_WITH_SUMS: Duration = Duration::from_secs(7);
/// Time beyond the hold for connecting, and for a busy operator.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest time between the beginnings of two requests, so that a burst of changes is one report.
/// A held answer has used it up, so its acknowledgement does not wait.
const AT_MOST_EVERY: Duration = Duration::from_millis(250);
/// The same for an operator that keeps answering at once.
const SLOWED: Duration = Duration::from_secs(1);
/// Number of answers in a row without a hold after which [`SLOWED`] applies.
const QUICK: u32 = 8;
/// Longest time between attempts at an absent operator; 10,000 pods then make some hundred
/// attempts a second.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
/// Number of consecutive 503 answers that are retried soon: the leader has probably just started, and
/// revocations wait until it answers.
const BEGINNING: u32 = 8;
/// Most bytes of an answer. An allowlist names every granted tool with a digest: 10,000 of them fit.
const MAX_ANSWER: usize = 2 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum LinkError {
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the operator's answer cannot be decoded")]
    Answer(#[source] serde_json::Error),
    #[error(transparent)]
    Older(#[from] OlderAnswer),
}

/// The task that reports; dropping this ends it.
#[derive(Debug)]
pub struct Link {
    pub current: Arc<CurrentConfig>,
    pub metrics: Arc<Metrics>,
    pub status: LinkStatus,
    pub models: Arc<ModelClient>,
    pub outages: Arc<Outages>,
    /// What this pod and the agent's others have used of its budgets.
    pub budgets: Arc<BudgetCounts>,
    /// The calls of this pod and of the agent's others that rates count.
    pub rates: Arc<RateCounts>,
    /// The questions of this pod about calls.
    pub approvals: Arc<Approvals>,
    pub history: Arc<History>,
    pub operator: OperatorClient,
    /// Id of this process, chosen at start; counters are cumulative within it.
    pub epoch: String,
}

/// The state of the link, for probes and metrics.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus(Arc<Mutex<LinkState>>);

impl LinkStatus {
    pub fn now(&self) -> LinkState {
        *self.0.lock()
    }

    fn is(&self, state: LinkState) {
        *self.0.lock() = state;
    }
}

/// A request that was answered.
#[derive(Debug)]
struct Report<'a> {
    asked: Instant,
    /// Time for which it could be held.
    hold: Duration,
    /// The questions in it.
    questions: &'a [OpenQuestion],
    /// The calls in it.
    calls: &'a [RecentCall],
}

/// The state between two requests.
#[derive(Debug, Default)]
struct Progress {
    failures: u32,
    /// Answers in a row that were not held.
    quick: u32,
}

impl Link {
    pub async fn run(self) {
        let mut changes = self.current.subscribe();
        let mut questions = self.approvals.subscribe_report();
        let mut progress = Progress::default();
        loop {
            changes.mark_unchanged();
            questions.mark_unchanged();
            let now = self.current.now();
            let asked = Instant::now();
            let next = match now.load_state.link() {
                None => {
                    self.status.is(LinkState::Off);
                    asked + HOLD
                }
                Some(config) => {
                    let report = self.up(&now);
                    let asking = self.ask(config, &report);
                    tokio::select! {
                        // Err: the writer is gone and no change can follow.
                        changed = changes.changed() => match changed {
                            Err(_) => return,
                            Ok(()) => asked,
                        },
                        () = self.models.key_change() => asked,
                        () = self.outages.change() => asked,
                        // Its sender is here and never gone.
                        Ok(()) = questions.changed() => asked,
                        answer = asking => {
                            let request = Report {
                                asked,
                                hold: hold(&now),
                                questions: &report.questions,
                                calls: &report.calls,
                            };
                            self.apply(&mut progress, answer, request)
                        }
                    }
                }
            };
            // Outer Err: the time is up.
            let changed = tokio::time::timeout_at(next, changes.changed()).await;
            if let Ok(Err(_)) = changed {
                return;
            }
            tokio::time::sleep_until(asked + AT_MOST_EVERY).await;
        }
    }

    /// Applies the result of a request; returns when the next one is due.
    fn apply(
        &self,
        progress: &mut Progress,
        answer: Result<LinkDown, LinkError>,
        report: Report<'_>,
    ) -> Instant {
        let Report { asked, hold, .. } = report;
        let now = Instant::now();
        let accepted = answer.and_then(|mut answer| {
            let budgets = std::mem::take(&mut answer.budgets);
            let rates = std::mem::take(&mut answer.rates);
            let decisions = std::mem::take(&mut answer.decisions);
            self.current.accept(answer, now)?;
            Ok((budgets, rates, decisions))
        });
        match accepted {
            Ok((budgets, rates, decisions)) => {
                self.budgets.learn(&budgets, Timestamp::now());
                self.rates.learn(&rates, Timestamp::now());
                // After the allowlist: an approval never overtakes a revocation.
                self.approvals.learn(report.questions, &decisions);
                self.history.recent().reported(report.calls);
                progress.failures = 0;
                self.status.is(LinkState::Connected);
                self.metrics.link_report("ok");
                let held = now.saturating_duration_since(asked) >= hold / 2;
                progress.quick = if held { 0 } else { progress.quick + 1 };
                asked
                    + if progress.quick < QUICK {
                        AT_MOST_EVERY
                    } else {
                        SLOWED
                    }
            }
            Err(error) => {
                self.operator.reconnect();
                progress.failures += 1;
                self.status.is(LinkState::Failing);
                self.metrics.link_report("failed");
                let failures = progress.failures;
                let wait = wait(&error, failures);
                let error = chain(&error);
                tracing::warn!(failures, error, "link request failed, retrying");
                now + wait
            }
        }
    }

    async fn ask(&self, config: &LinkConfig, report: &LinkUp) -> Result<LinkDown, LinkError> {
        let request = OperatorRequest {
            path: names::LINK_PATH,
            body: serde_json::to_vec(report).map_err(LinkError::Answer)?,
            timeout: HOLD + PATIENCE,
            max_answer: MAX_ANSWER,
        };
        let answer = self.operator.post(config, request).await?;
        serde_json::from_slice(&answer).map_err(LinkError::Answer)
    }

    fn outages(&self, now: &EffectiveConfig) -> OutageReport {
        let none = BTreeMap::new();
        let version = now.load_state.version();
        let providers = version.map_or(&none, |version| &version.providers);
        // A tool that the allowlist takes away is not called any more.
        let tools = now.authority.tools();
        let executions = tools.map(|tool| &tool.tool.execution);
        self.outages.report(executions, providers, Instant::now())
    }

    fn up(&self, now: &EffectiveConfig) -> LinkUp {
        let version = now.load_state.version();
        let loaded = version.and_then(|version| {
            let digest = version.agent.digest.clone()?;
            Some(LoadedVersion {
                manifest: digest.manifest,
                credentials: digest.credentials,
                at: now.loaded_at.clone().unwrap_or_default(),
            })
        });
        let outages = self.outages(now);
        LinkUp {
            epoch: self.epoch.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            understands: understands().map(str::to_owned).collect(),
            loaded,
            error: now
                .load_state
                .error()
                .map(|error| error.chars().take(LONGEST_TEXT).collect()),
            seen: now.seen,
            hold_ms: u64::try_from(hold(now).as_millis()).unwrap_or(u64::MAX),
            withheld: version
                .into_iter()
                .flat_map(|version| version.withheld())
                .take(MOST_WITHHELD)
                .collect(),
            providers: version.map_or_else(Vec::new, |version| {
                let refusals = self.models.refusals(&version.providers).into_iter();
                refusals.map(bounded).collect()
            }),
            outages: outages.services,
            provider_outages: outages.providers,
            runner: self.current.runner_access(),
            usage: self.metrics.usage.read(),
            budgets: version.map_or_else(Vec::new, |version| {
                let budgets = &version.agent.budgets;
                self.budgets.own(budgets, Timestamp::now())
            }),
            rates: self
                .rates
                .own(now.authority.rated_rules(), Timestamp::now()),
            questions: self.approvals.report(),
            calls: self.history.recent().report(),
            record: self.history.head().map(|head| RecordHead {
                chain: head.chain,
                seq: head.seq,
                hash: head.hash.to_string(),
            }),
        }
    }
}

/// The time for which the operator may hold its answer.
fn hold(now: &EffectiveConfig) -> Duration {
    let version = now.load_state.version();
    let has_budgets = version.is_some_and(|version| !version.agent.budgets.is_empty());
    match has_budgets || now.authority.rated_rules().next().is_some() {
        true => HOLD_WITH_SUMS,
        false => HOLD,
    }
}

/// Cuts the texts of a refusal to what a report holds.
fn bounded(refusal: ProviderRefusal) -> ProviderRefusal {
    let cut = |text: &str| toolcrib_bounds::cut(text, LONGEST_TEXT).into_owned();
    ProviderRefusal {
        provider: cut(&refusal.provider),
        reason: cut(&refusal.reason),
    }
}

fn wait(error: &LinkError, failures: u32) -> Duration {
    match error {
        LinkError::Operator(OperatorError::Status(503)) if failures <= BEGINNING => {
            SECOND + part_of(SECOND)
        }
        LinkError::Operator(_) | LinkError::Answer(_) | LinkError::Older(_) => backoff(failures),
    }
}

/// Backoff: at once or within a second; then 2, 4, 8 … seconds, each shortened by a random part of
/// up to half, so that pods that lost one leader do not return together.
fn backoff(failures: u32) -> Duration {
    if failures <= 1 {
        return part_of(SECOND);
    }
    let whole = Duration::from_secs(1 << (failures - 1).min(7)).min(LONGEST_BACKOFF);
    whole / 2 + part_of(whole / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leader_is_retried_soon_a_limited_number_of_times() {
        let status = |status| LinkError::Operator(OperatorError::Status(status));
        let soon = Duration::from_secs(1)..=Duration::from_secs(2);
        for failures in 1..=BEGINNING {
            let wait = wait(&status(503), failures);
            assert!(soon.contains(&wait), "{failures}: {wait:?}");
        }
        for (error, failures) in [
            (status(503), BEGINNING + 1),
            (status(401), BEGINNING),
            (LinkError::Operator(OperatorError::TooLarge), 6),
        ] {
            let wait = wait(&error, failures);
            assert!(wait >= LONGEST_BACKOFF / 2, "{error}: {wait:?}");
        }
    }
}
