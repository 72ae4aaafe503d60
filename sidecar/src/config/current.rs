//! What is in force now: everybody who is about to act asks here, at the moment of acting.
//!
//! Effective authority is what is loaded ∩ the floor of the operator's link, so that the
//! link can deny and never grant. A reader takes one immutable snapshot; a writer swaps
//! it whole and wakes those who wait for a change.

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
    AgentFile, AgentPresence, Feed, Floor, LinkDown, Policy, RunnerAccess, RunnerToken, SecretText,
    Tier, ToolsFile,
};
use toolcrib_mediation::{Authority, Catalog, Scrubber, feed_name};

use crate::config::identity::Runner;

use super::standing::{LoadState, Observation};
use super::version::Version;

/// One moment's answer to "what is in force".
#[derive(Clone, Debug)]
pub struct Effective {
    pub load_state: LoadState,
    /// Which tools may run: loaded ∩ floor, nothing where nothing is served.
    pub authority: Authority,
    /// RFC 3339 of the load that is in force.
    pub loaded_at: Option<String>,
    pub floor: Option<Floor>,
    pub presence: AgentPresence,
    /// The `seq` of the link's answer that is in force.
    pub seen: u64,
    /// The process ends: what still runs ends with an answer and its line in the record.
    pub ending: bool,
}

impl Effective {
    /// The version that requests are served from, or why there is none.
    pub fn version(&self) -> Result<&Arc<Version>, Unavailable> {
        if self.ending {
            return Err(Unavailable::Ending);
        }
        match (self.presence, &self.load_state) {
            (AgentPresence::Deleted, _) | (_, LoadState::Withdrawn { .. }) => {
                Err(Unavailable::AccessWithdrawn)
            }
            (AgentPresence::Present, LoadState::InForce { version, .. }) => Ok(version),
            (AgentPresence::Present, LoadState::Broken { .. } | LoadState::Waiting) => {
                Err(Unavailable::ManifestBroken)
            }
        }
    }

    /// Whose tokens are checked; `None`: nobody's are known.
    pub fn agent(&self) -> Option<&Arc<AgentFile>> {
        match &self.load_state {
            LoadState::InForce { version, .. } => Some(&version.agent),
            LoadState::Withdrawn { agent } => agent.as_ref(),
            LoadState::Waiting | LoadState::Broken { .. } => None,
        }
    }

    pub fn provider_stands(&self, name: &str) -> bool {
        self.floor
            .as_ref()
            .is_none_or(|floor| floor.providers.iter().any(|left| left == name))
    }

    /// `reference` is `provider/model`.
    pub fn model_stands(&self, reference: &str) -> bool {
        let models = self.floor.as_ref().and_then(|floor| floor.models.as_ref());
        models.is_none_or(|left| left.iter().any(|model| model == reference))
    }

    /// Feeds that may be shown: loaded ∩ floor, as tools.
    pub fn feeds(&self) -> impl Iterator<Item = &Feed> {
        let floor = self.floor.as_ref();
        let stands =
            move |feed: &&Feed| floor.is_none_or(|floor| floor.feeds.contains(&feed_name(feed)));
        let version = self.version().ok();
        version
            .into_iter()
            .flat_map(|version| &version.feeds)
            .filter(stands)
    }

    /// Whether a runner that was let in still is.
    pub fn admits(&self, runner: &Runner) -> bool {
        self.version().is_ok_and(|version| {
            let same = |token: &RunnerToken| {
                token.id == runner.token_id && token.sha256 == runner.token_sha256
            };
            version.agent.tokens.iter().any(same)
        })
    }
}

/// Why nothing is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    #[error("access of this agent is withdrawn")]
    AccessWithdrawn,
    #[error("the agent's manifest cannot be used")]
    ManifestBroken,
    #[error("the mediator is ending")]
    Ending,
}

/// The link's answer is of an earlier leader than the one that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operator's answer is older than the one in force")]
pub struct Older;

/// An answer with a lower number is not taken for this long: longer than two leaders can
/// believe that they lead. Afterwards numbers have begun anew: the lease was made again.
pub const OLDER: Duration = Duration::from_secs(30);

/// The one place that holds what is in force.
#[derive(Debug)]
pub struct Current {
    effective: ArcSwap<Effective>,
    scrubber: ArcSwap<Scrubber>,
    changes: watch::Sender<u64>,
    runner: RunnerHistory,
    /// What only writers look at; also what serializes them.
    writers: Mutex<Writers>,
}

/// The [`RunnerAccess`] of now, readable from any task.
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

    /// An admitted runner stays admitted, whatever else in the pod presents a wrong token.
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
    /// When an answer of the link was taken last.
    answered: Option<Instant>,
}

/// What is scrubbed.
#[derive(Debug, Default)]
struct Secrets {
    /// Of the last two versions, the later one last.
    versions: [Vec<SecretText>; 2],
    /// Access tokens that were obtained with them, the latest last.
    tokens: VecDeque<SecretText>,
}

/// Access tokens that are scrubbed: those in use, and some before them that a late answer
/// may still echo.
const TOKENS: usize = 64;

impl Secrets {
    fn scrubber(&self) -> Scrubber {
        let versions = self.versions.iter().flatten();
        Scrubber::new(versions.chain(&self.tokens).map(SecretText::expose))
    }
}

impl Default for Current {
    fn default() -> Self {
        Self {
            effective: ArcSwap::from_pointee(Effective {
                authority: nothing(),
                load_state: LoadState::Waiting,
                loaded_at: None,
                floor: None,
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

impl Current {
    pub fn now(&self) -> Arc<Effective> {
        self.effective.load_full()
    }

    /// Wakes on every change of what is in force; a receiver starts as "nothing new".
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How the runner's token was answered since the valid tokens last changed.
    pub fn runner_access(&self) -> Option<RunnerAccess> {
        self.runner.get()
    }

    /// Records how a request with a token was answered. The link's next report says it.
    pub fn note_runner(&self, access: RunnerAccess) {
        self.runner.note(access);
    }

    /// Takes out the secrets of the loaded version and of the one before: a late answer
    /// may still echo those.
    pub fn scrubber(&self) -> Arc<Scrubber> {
        self.scrubber.load_full()
    }

    /// A look at the directory found `seen`.
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
            // Before the swap: nothing is answered with a secret that is not scrubbed yet.
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
        self.swap(Effective {
            load_state,
            loaded_at,
            ..(*before).clone()
        });
    }

    /// A secret that no file holds: an access token, before its first use.
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

    /// The link's answer, come at `at`: whole, so it replaces what the one before it took
    /// away. What changes nothing wakes nobody.
    pub fn accept(&self, answer: LinkDown, at: Instant) -> Result<(), Older> {
        let mut writers = self.write();
        let before = self.now();
        let lately = writers.answered.is_some_and(|last| at < last + OLDER);
        if answer.seq < before.seen && lately {
            return Err(Older);
        }
        writers.answered = Some(at);
        let same = before.floor == answer.floor && before.presence == answer.agent;
        if !same || before.seen != answer.seq {
            self.swap(Effective {
                floor: answer.floor,
                presence: answer.agent,
                seen: answer.seq,
                ..(*before).clone()
            });
        }
        Ok(())
    }

    /// From now on nothing is served, and what runs ends.
    pub fn end(&self) {
        // Held: nobody's swap takes this back.
        let _writers = self.write();
        self.swap(Effective {
            ending: true,
            ..(*self.now()).clone()
        });
    }

    fn write(&self) -> MutexGuard<'_, Writers> {
        // A panic under it leaves at worst a secret too many.
        self.writers.lock()
    }

    fn swap(&self, mut effective: Effective) {
        effective.authority = match effective.version() {
            Ok(version) => Authority::new(version.catalog.clone(), effective.floor.as_ref()),
            Err(_) => nothing(),
        };
        self.effective.store(Arc::new(effective));
        self.changes.send_modify(|count| *count += 1);
    }
}

fn tokens(load_state: &LoadState) -> Option<&[RunnerToken]> {
    Some(&load_state.version()?.agent.tokens)
}

/// The authority of one who has none.
fn nothing() -> Authority {
    let empty = ToolsFile {
        version: toolcrib_manifest::VERSION,
        tools: Vec::new(),
        policy: Policy::default(),
        extension: toolcrib_manifest::ToolsExtension::default(),
    };
    Authority::new(Arc::new(Catalog::load(&empty, Tier::ReadOnly)), None)
}
