//! The configuration in force. Every action looks it up at the moment of acting.
//!
//! The effective authority is the loaded files ∩ the allowlist of the operator's link, so the link
//! can deny and never grant. A reader takes one immutable snapshot; a writer swaps it whole and wakes
//! the tasks that wait for a change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use toolcrib_manifest::{
    AgentFile, AgentPresence, Feed, LinkAllowlist, LinkDown, Policy, RunnerAccess, RunnerToken,
    SecretText, Suspension, Tier, ToolsFile,
};
use toolcrib_mediation::{Authority, Catalog, Scrubber, feed_name};
use toolcrib_rules::models;

use crate::config::identity::Runner;

use super::load_state::{LoadState, Observation};
use super::version::Version;

/// A snapshot of the configuration in force.
#[derive(Clone, Debug)]
pub struct EffectiveConfig {
    pub load_state: LoadState,
    /// The tools that may run: loaded ∩ allowlist; none if no version is served.
    pub authority: Authority,
    /// Time of the load in force, in RFC 3339.
    pub loaded_at: Option<String>,
    pub allowlist: Option<LinkAllowlist>,
    pub presence: AgentPresence,
    /// The `seq` of the link's answer in force.
    pub seen: u64,
    /// True if the process is ending: running requests end with an answer and their record.
    pub ending: bool,
}

impl EffectiveConfig {
    /// The version that requests are served from, or the reason why there is none.
    pub fn version(&self) -> Result<&Arc<Version>, Unavailable> {
        if self.ending {
            return Err(Unavailable::Ending);
        }
        match (self.presence, &self.load_state) {
            // Checked before the link's answer: the files have the reason, the link only denies.
            (_, LoadState::InForce { version, .. }) if version.agent.suspension.is_some() => {
                let suspension = version.agent.suspension.clone();
                Err(Unavailable::AgentSuspended(suspension.unwrap_or_default()))
            }
            (AgentPresence::Deleted, _) | (_, LoadState::Withdrawn { .. }) => {
                Err(Unavailable::AccessWithdrawn)
            }
            (AgentPresence::Present, LoadState::InForce { version, .. }) => Ok(version),
            (AgentPresence::Present, LoadState::Broken { .. } | LoadState::Waiting) => {
                Err(Unavailable::ManifestBroken)
            }
        }
    }

    /// True if the files are in force: requests are served, or refused since the agent is suspended.
    pub fn is_ready(&self) -> bool {
        matches!(self.version(), Ok(_) | Err(Unavailable::AgentSuspended(_)))
    }

    /// The agent whose tokens are checked; `None`: no tokens are known.
    pub fn agent(&self) -> Option<&Arc<AgentFile>> {
        match &self.load_state {
            LoadState::InForce { version, .. } => Some(&version.agent),
            LoadState::Withdrawn { agent } => agent.as_ref(),
            LoadState::Waiting | LoadState::Broken { .. } => None,
        }
    }

    pub fn provider_stands(&self, name: &str) -> bool {
        self.allowlist
            .as_ref()
            .is_none_or(|allowlist| allowlist.providers.iter().any(|left| left == name))
    }

    /// True if the model is in force; `reference` is `provider/model`.
    pub fn model_stands(&self, reference: &str) -> bool {
        let Some(allowlist) = &self.allowlist else {
            return true;
        };
        let matching = &allowlist.models_matching;
        allowlist.models.as_ref().is_none_or(|left| {
            left.iter().any(|model| model == reference)
                || (!matching.is_empty() && models::matches_each(matching, reference))
        })
    }

    /// Feeds that may be shown: loaded ∩ allowlist, as tools.
    pub fn feeds(&self) -> impl Iterator<Item = &Feed> {
        let allowlist = self.allowlist.as_ref();
        let stands = move |feed: &&Feed| {
            allowlist.is_none_or(|allowlist| allowlist.feeds.contains(&feed_name(feed)))
        };
        let version = self.version().ok();
        version
            .into_iter()
            .flat_map(|version| &version.feeds)
            .filter(stands)
    }

    /// True if an authenticated runner may still be served.
    pub fn admits(&self, runner: &Runner) -> bool {
        self.version().is_ok_and(|version| {
            let same = |token: &RunnerToken| {
                token.id == runner.token_id && token.sha256 == runner.token_sha256
            };
            version.agent.tokens.iter().any(same)
        })
    }
}

/// The reason why no request is served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    #[error(
        "access of this agent is withdrawn: its Agent is gone or suspended, or its compiled Secret is gone"
    )]
    AccessWithdrawn,
    #[error("this agent is suspended{}", .0.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    AgentSuspended(Suspension),
    #[error("the agent's manifest cannot be used")]
    ManifestBroken,
    #[error("the mediator is ending")]
    Ending,
}

/// An answer of the link from an earlier leader than the answer in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operator's answer is older than the one in force")]
pub struct OlderAnswer;

/// Time for which answers with a lower tenure are refused: longer than two leaders can both
/// believe that they lead. A lower number after that means that the Lease was created anew.
pub const OLDER: Duration = Duration::from_secs(30);

/// The holder of the configuration in force.
#[derive(Debug)]
pub struct CurrentConfig {
    effective: ArcSwap<EffectiveConfig>,
    scrubber: ArcSwap<Scrubber>,
    changes: watch::Sender<u64>,
    runner: RunnerHistory,
    /// The state that only writers use; its lock serializes them.
    writers: Mutex<Writers>,
}

/// The current [`RunnerAccess`], readable from any task.
#[derive(Debug, Default)]
struct RunnerHistory(AtomicU8);

impl RunnerHistory {
    const NO_REQUEST: u8 = 0;
    const REFUSED: u8 = 1;
    const ADMITTED: u8 = 2;

    fn get(&self) -> Option<RunnerAccess> {
        match self.0.load(Ordering::Relaxed) {
            Self::ADMITTED => Some(RunnerAccess::Admitted),
            Self::REFUSED => Some(RunnerAccess::Refused),
            _ => None,
        }
    }

    /// Keeps an admitted runner admitted, even if another process in the pod sends a wrong token.
    fn note(&self, access: RunnerAccess) {
        let value = match access {
            RunnerAccess::Refused => Self::REFUSED,
            RunnerAccess::Admitted => Self::ADMITTED,
        };
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.0.store(Self::NO_REQUEST, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Writers {
    secrets: Secrets,
    /// Time of the last accepted answer of the link.
    answered: Option<Instant>,
}

/// The secrets that are scrubbed.
#[derive(Debug, Default)]
struct Secrets {
    /// The secrets of the last two versions, the later one last.
    versions: [Vec<SecretText>; 2],
    /// Access tokens that were fetched with them, the latest last.
    tokens: VecDeque<SecretText>,
}

/// Most access tokens that are scrubbed: those in use, and earlier ones that a late answer may
/// still echo.
const TOKENS: usize = 64;

impl Secrets {
    fn scrubber(&self) -> Scrubber {
        let versions = self.versions.iter().flatten();
        Scrubber::new(versions.chain(&self.tokens).map(SecretText::expose))
    }
}

impl Default for CurrentConfig {
    fn default() -> Self {
        Self {
            effective: ArcSwap::from_pointee(EffectiveConfig {
                authority: nothing(),
                load_state: LoadState::Waiting,
                loaded_at: None,
                allowlist: None,
                presence: AgentPresence::Present,
                seen: 0,
                ending: false,
            }),
            scrubber: ArcSwap::default(),
            changes: watch::Sender::new(0),
            runner: RunnerHistory::default(),
            writers: Mutex::default(),
        }
    }
}

impl CurrentConfig {
    pub fn now(&self) -> Arc<EffectiveConfig> {
        self.effective.load_full()
    }

    /// Returns a receiver that wakes on every later change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The access of the runner since the valid tokens last changed.
    pub fn runner_access(&self) -> Option<RunnerAccess> {
        self.runner.get()
    }

    /// Notes the result of authenticating a token, for the next report of the link.
    pub fn note_runner(&self, access: RunnerAccess) {
        self.runner.note(access);
    }

    /// The scrubber for the secrets of the loaded version and of the one before, which a late
    /// answer may still echo.
    pub fn scrubber(&self) -> Arc<Scrubber> {
        self.scrubber.load_full()
    }

    /// Applies the observation of a read of the directory.
    pub fn observe(&self, seen: Observation, at: String) {
        let mut writers = self.write();
        let secrets = &mut writers.secrets;
        let before = self.now();
        let loaded = match &seen {
            Observation::Loaded(version) => Some(version.secrets.clone()),
            Observation::Broken { .. } | Observation::Absent => None,
        };
        let loads = loaded.is_some();
        if let Some(loaded) = loaded
            && secrets.versions[1] != loaded
        {
            secrets.versions.rotate_left(1);
            secrets.versions[1] = loaded;
            // Before the swap, so that no new secret is in use before it is scrubbed.
            self.scrubber.store(Arc::new(secrets.scrubber()));
        }
        let load_state = before.load_state.after(seen);
        if tokens(&before.load_state) != tokens(&load_state) {
            self.runner.forget();
        }
        let loaded_at = match (&load_state, loads) {
            (LoadState::InForce { .. }, true) => Some(at),
            (LoadState::InForce { .. }, false) => before.loaded_at.clone(),
            (LoadState::Waiting | LoadState::Broken { .. } | LoadState::Withdrawn { .. }, _) => {
                None
            }
        };
        self.swap(EffectiveConfig {
            load_state,
            loaded_at,
            ..(*before).clone()
        });
    }

    /// Adds an access token, which no file holds, to the scrubber, before its first use.
    pub fn learn(&self, token: SecretText) {
        let mut writers = self.write();
        let secrets = &mut writers.secrets;
        if secrets.tokens.contains(&token) {
            return;
        }
        if secrets.tokens.len() >= TOKENS {
            secrets.tokens.pop_front();
        }
        secrets.tokens.push_back(token);
        self.scrubber.store(Arc::new(secrets.scrubber()));
    }

    /// Applies the link's answer, which came at `at` and replaces the one before. Wakes no task if
    /// nothing changed.
    pub fn accept(&self, answer: LinkDown, at: Instant) -> Result<(), OlderAnswer> {
        let mut writers = self.write();
        let before = self.now();
        let lately = writers.answered.is_some_and(|last| at < last + OLDER);
        if answer.seq < before.seen && lately {
            return Err(OlderAnswer);
        }
        writers.answered = Some(at);
        let same = before.allowlist == answer.allowlist && before.presence == answer.agent;
        if !same || before.seen != answer.seq {
            self.swap(EffectiveConfig {
                allowlist: answer.allowlist,
                presence: answer.agent,
                seen: answer.seq,
                ..(*before).clone()
            });
        }
        Ok(())
    }

    /// Stops serving and ends running requests.
    pub fn end(&self) {
        // The lock keeps a concurrent swap from undoing this.
        let _writers = self.write();
        self.swap(EffectiveConfig {
            ending: true,
            ..(*self.now()).clone()
        });
    }

    fn write(&self) -> MutexGuard<'_, Writers> {
        // A panic under the lock leaves at worst a secret too many.
        self.writers.lock()
    }

    fn swap(&self, mut effective: EffectiveConfig) {
        effective.authority = match effective.version() {
            Ok(version) => Authority::new(version.catalog.clone(), effective.allowlist.as_ref())
                .with_budgets(&version.agent.budgets),
            Err(_) => nothing(),
        };
        self.effective.store(Arc::new(effective));
        self.changes.send_modify(|count| *count += 1);
    }
}

fn tokens(load_state: &LoadState) -> Option<&[RunnerToken]> {
    Some(&load_state.version()?.agent.tokens)
}

/// The authority without any tool.
fn nothing() -> Authority {
    let empty = ToolsFile {
        version: toolcrib_manifest::VERSION,
        tools: Vec::new(),
        policy: Policy::default(),
        extension: toolcrib_manifest::ToolsExtension::default(),
    };
    Authority::new(Arc::new(Catalog::load(&empty, Tier::ReadOnly)), None)
}
