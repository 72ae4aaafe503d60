//! Keeps what this pod has used of the agent's budgets over a restart of the mediator's container.
//!
//! Invariant: a call is sent only after its count is in the file, and a request for a model only if what
//! was used before it is. A line has the whole count of one unit and period; the last one counts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use toolcrib_dialect::Usage;
use toolcrib_manifest::{Budget, BudgetUnit, BudgetUse};
use toolcrib_mediation::{BudgetCounts, RunnerCode, RunnerError};
use toolcrib_rules::Exhaustion;

use super::line_file::LineFile;
use crate::outbound::model::ModelError;

const FILE_NAME: &str = "budgets.jsonl";
/// Most bytes of the file, which is then written anew with one line for each count.
const MAX_FILE: u64 = 64 * 1024;
/// Bytes of a request and its reply that count as a token, if the provider reports none.
const BYTES_OF_A_TOKEN: u64 = 4;

#[derive(Debug)]
pub struct BudgetStore {
    counts: Arc<BudgetCounts>,
    file: Mutex<CountFile>,
}

#[derive(Debug)]
struct CountFile {
    lines: LineFile,
    /// True if the file lacks the latest counts.
    is_behind: bool,
}

impl BudgetStore {
    /// Opens the store. Fails if there is a file that cannot be read: what was used would be given back.
    pub fn open(dir: &Path, now: Timestamp) -> io::Result<Self> {
        let counts = Arc::<BudgetCounts>::default();
        let lines = LineFile::new(dir.join(FILE_NAME), MAX_FILE);
        lines.read(MAX_FILE, |line| {
            match serde_json::from_slice::<BudgetUse>(line) {
                Ok(earlier) => counts.restore(&earlier, now),
                // Half a line of a killed process: its call was not sent.
                Err(error) => tracing::debug!(error = error.to_string(), "count not read"),
            }
        })?;
        Ok(Self {
            counts,
            file: Mutex::new(CountFile {
                lines,
                is_behind: false,
            }),
        })
    }

    pub fn counts(&self) -> &Arc<BudgetCounts> {
        &self.counts
    }

    /// Writes the counts of a unit. After an error, what was counted must not be used. Blocks to write
    /// a few hundred bytes to a local file.
    pub fn write(&self, unit: BudgetUnit, budgets: &[Budget], now: Timestamp) -> io::Result<()> {
        if !budgets.iter().any(|budget| budget.unit == unit) {
            return Ok(());
        }
        let mut file = self.file.lock();
        file.is_behind = true;
        // Read under the lock, so that a line never has less than the one before it.
        let all = self.counts.own(budgets, now);
        for used in all.iter().filter(|used| used.unit == unit) {
            file.lines.append(line(used), || all.iter().map(line))?;
        }
        file.is_behind = false;
        Ok(())
    }

    /// Refuses a request for a model if a budget of tokens is used up, or if what was used before
    /// cannot be written.
    pub fn admit_model_call(
        &self,
        budgets: &[Budget],
        now: Timestamp,
    ) -> Result<(), ModelCallDenial> {
        let is_behind = self.file.lock().is_behind;
        if is_behind && let Err(error) = self.write(BudgetUnit::Tokens, budgets, now) {
            tracing::error!(
                error = error.to_string(),
                "counts of budgets not written, request refused"
            );
            return Err(ModelCallDenial::Unwritten);
        }
        match self.counts.exhaustion(BudgetUnit::Tokens, budgets, now) {
            None => Ok(()),
            Some(exhaustion) => Err(ModelCallDenial::Exhausted(exhaustion)),
        }
    }

    fn count_tokens(&self, budgets: &[Budget], tokens: u64, now: Timestamp) {
        self.counts.add(BudgetUnit::Tokens, budgets, tokens, now);
        if let Err(error) = self.write(BudgetUnit::Tokens, budgets, now) {
            // The next request for a model is refused until they are written.
            tracing::error!(error = error.to_string(), "counts of budgets not written");
        }
    }
}

fn line(used: &BudgetUse) -> Vec<u8> {
    serde_json::to_vec(used).expect("texts and numbers always serialize")
}

/// The reason why a model must not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallDenial {
    Exhausted(Exhaustion),
    /// The counts of earlier requests cannot be written.
    Unwritten,
}

impl From<ModelCallDenial> for RunnerError {
    fn from(denial: ModelCallDenial) -> Self {
        match denial {
            ModelCallDenial::Exhausted(exhaustion) => {
                RunnerError::new(RunnerCode::QuotaExhausted, exhaustion.to_string())
            }
            ModelCallDenial::Unwritten => RunnerError::new(
                RunnerCode::RecordUnavailable,
                "what the agent has used of its budgets cannot be written to the volume of the record",
            ),
        }
    }
}

/// The tokens of one request for a model. They are counted when this is dropped, however the request
/// ends: by what the provider reports, else by the bytes that were sent and received.
#[derive(Debug)]
pub struct TokenCharge {
    store: Arc<BudgetStore>,
    budgets: Arc<[Budget]>,
    bytes: u64,
    used: Option<u64>,
}

impl TokenCharge {
    /// `sent`: bytes of the request. `None` if there is no budget of tokens.
    pub fn begin(store: &Arc<BudgetStore>, budgets: &[Budget], sent: usize) -> Option<Self> {
        let is_counted = budgets.iter().any(|it| it.unit == BudgetUnit::Tokens);
        is_counted.then(|| Self {
            store: store.clone(),
            budgets: budgets.into(),
            bytes: sent as u64,
            used: None,
        })
    }

    /// Notes bytes of the reply.
    pub fn received(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Notes what the provider reports, if it reports anything.
    pub fn reported(&mut self, usage: Usage) {
        let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        if tokens > 0 {
            self.used = Some(tokens);
        }
    }

    /// Notes what the provider has reported of a reply that was interrupted: no less than its bytes
    /// count, since the sums come last.
    pub fn reported_in_part(&mut self, usage: Usage) {
        self.reported(usage);
        self.used = self.used.map(|used| used.max(self.estimate()));
    }

    fn estimate(&self) -> u64 {
        self.bytes.div_ceil(BYTES_OF_A_TOKEN)
    }

    /// The provider has not answered, or with an error: nothing was used. An answer that came too late
    /// or was too large was paid for, so the bytes count.
    pub fn failed(mut self, error: &ModelError) {
        match error {
            ModelError::Timeout { .. } | ModelError::TooLarge => {}
            ModelError::NoUsableKey(_) | ModelError::Http(_) | ModelError::Unreachable { .. } => {
                self.used = Some(0)
            }
        }
    }
}

impl Drop for TokenCharge {
    fn drop(&mut self) {
        let tokens = self.used.unwrap_or_else(|| self.estimate());
        if tokens > 0 {
            let now = Timestamp::now();
            self.store.count_tokens(&self.budgets, tokens, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::BudgetPeriod;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn budget(unit: BudgetUnit, limit: u64) -> Budget {
        Budget {
            limit,
            per: BudgetPeriod::Month,
            unit,
        }
    }

    fn used(store: &BudgetStore, budgets: &[Budget], now: Timestamp) -> Vec<u64> {
        let used = store.counts().own(budgets, now);
        used.iter().map(|it| it.used).collect()
    }

    #[test]
    fn a_restart_gives_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let budgets = [budget(BudgetUnit::Calls, 9), budget(BudgetUnit::Tokens, 9)];
        let store = BudgetStore::open(dir.path(), NOW).unwrap();
        for _ in 0..2 {
            store.counts().add(BudgetUnit::Calls, &budgets, 1, NOW);
            store.write(BudgetUnit::Calls, &budgets, NOW).unwrap();
        }
        store.count_tokens(&budgets, 8, NOW);
        assert_eq!(store.admit_model_call(&budgets, NOW), Ok(()));
        let store = BudgetStore::open(dir.path(), NOW).unwrap();
        assert_eq!(used(&store, &budgets, NOW), [2, 8]);
        store.count_tokens(&budgets, 1, NOW);
        let denial = store.admit_model_call(&budgets, NOW);
        assert!(
            matches!(denial, Err(ModelCallDenial::Exhausted(_))),
            "{denial:?}"
        );
        let store = BudgetStore::open(dir.path(), NOW).unwrap();
        assert_eq!(used(&store, &budgets, NOW), [2, 9]);
    }

    #[test]
    fn a_request_counts_what_the_provider_reports_or_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let budgets = [budget(BudgetUnit::Tokens, 1_000)];
        let store = Arc::new(BudgetStore::open(dir.path(), NOW).unwrap());
        let charge = || TokenCharge::begin(&store, &budgets, 401).unwrap();
        let now_used = || used(&store, &budgets, Timestamp::now())[0];
        let mut reported = charge();
        reported.received(100);
        reported.reported(Usage {
            prompt_tokens: 7,
            completion_tokens: 3,
            ..Usage::default()
        });
        drop(reported);
        assert_eq!(now_used(), 10);
        let mut silent = charge();
        silent.received(100);
        silent.reported(Usage::default());
        drop(silent);
        assert_eq!(now_used(), 10 + 126);
        charge().failed(&ModelError::Unreachable { connection: None });
        assert_eq!(now_used(), 10 + 126);
        let mut interrupted = charge();
        interrupted.reported_in_part(Usage {
            prompt_tokens: 50,
            ..Usage::default()
        });
        drop(interrupted);
        assert_eq!(now_used(), 10 + 126 + 101);
        // A budget of calls counts no tokens.
        let calls = [budget(BudgetUnit::Calls, 1)];
        assert!(TokenCharge::begin(&store, &calls, 401).is_none());
    }

    #[test]
    fn after_a_count_that_cannot_be_written_no_model_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("record");
        let budgets = [budget(BudgetUnit::Tokens, 1_000)];
        let store = BudgetStore::open(&inner, NOW).unwrap();
        assert_eq!(store.admit_model_call(&budgets, NOW), Ok(()));
        store.count_tokens(&budgets, 8, NOW);
        let denial = store.admit_model_call(&budgets, NOW);
        assert_eq!(denial, Err(ModelCallDenial::Unwritten));
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(store.admit_model_call(&budgets, NOW), Ok(()));
        let store = BudgetStore::open(&inner, NOW).unwrap();
        assert_eq!(used(&store, &budgets, NOW), [8]);
    }
}
