//! What this leader knows about agents and objects that the API server does not hold.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, Role};
use toolcrib_manifest::Want;

use crate::controller::queue::rate_limit::RateLimit;
use crate::controller::queue::work::Work;
use crate::controller::write::apply::AppliedState;

/// State per agent, empty when a leader begins.
#[derive(Debug)]
pub struct Memory {
    /// Boxed: a map keeps half as much room again as it has entries.
    pub agents: HashMap<ObjectRef, Box<AgentMemory>>,
    /// Findings that stand, as digests, by the object they were reported for.
    pub findings: HashMap<Work, BTreeSet<u64>>,
    pub usage: RateLimit,
    pub notices: Notices,
    /// What each status should be, as a digest.
    pub statuses: HashMap<Work, u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            agents: HashMap::new(),
            findings: HashMap::new(),
            usage: RateLimit::new(USAGE_APART),
            notices: Notices::default(),
            statuses: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct AgentMemory {
    /// The object last found in place, by its role's number. An entry outlives its object: the API
    /// server is asked once more before the object is made again.
    pub applied: [Option<AppliedState>; Role::ALL.len()],
    /// The digests that are compiled and written, and since when. The mediators hear the same.
    pub want: Option<(Arc<Want>, Instant)>,
    pub usage_written: Option<Instant>,
    /// When its changed usage may be written.
    pub usage_slot: Option<Instant>,
}

/// The rate of Normal Events of all agents: a Surface that changes for ten thousand agents is
/// no reason for ten thousand Events in the API server's store.
#[derive(Debug)]
pub struct Notices(RateLimit);

impl Default for Notices {
    fn default() -> Self {
        Self(RateLimit::new(NOTICES_APART))
    }
}

impl Notices {
    /// `false`: there were too many lately.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.0.try_take(now, NOTICES_BURST)
    }
}

const NOTICES_APART: Duration = Duration::from_millis(200);
/// 150 Events at once.
const NOTICES_BURST: Duration = Duration::from_secs(30);

/// Between two agents' usage: what ten thousand busy agents may cost the API server.
const USAGE_APART: Duration = Duration::from_millis(50);
