//! Keeps the counts of rates over a restart of the mediator's container.
//!
//! Invariant: a call is sent only after the file counts it, so that no restart gives calls back. A line
//! has the whole state of one rule for one tool; the last one counts. It counts some calls ahead, so not
//! every call of a busy rule needs a line, and a restart can take calls.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use toolcrib_mediation::{RateCounts, RuleCounts};

use super::line_file::LineFile;

const FILE_NAME: &str = "rates.jsonl";

#[derive(Debug)]
pub struct RateStore {
    counts: Arc<RateCounts>,
    file: Mutex<LineFile>,
}

impl RateStore {
    /// Opens the store. `disk_bytes`: most bytes of the file and its replacement. Fails if there is a file
    /// that cannot be read: the calls in it would be given back.
    pub fn open(dir: &Path, disk_bytes: u64) -> io::Result<Self> {
        let counts = Arc::<RateCounts>::default();
        let limit = disk_bytes / 2;
        let file = LineFile::new(dir.join(FILE_NAME), limit);
        file.read(limit, |line| match serde_json::from_slice(line) {
            Ok(earlier) => counts.restore(earlier),
            // Half a line of a killed process: its call was not sent.
            Err(error) => tracing::debug!(
                error = error.to_string(),
                "line of rate counts not decoded, skipped"
            ),
        })?;
        Ok(Self {
            counts,
            file: Mutex::new(file),
        })
    }

    pub fn counts(&self) -> &Arc<RateCounts> {
        &self.counts
    }

    /// Writes the counts of these rules of a tool, unless the file has their calls already. After an error
    /// the call must not be sent. Blocks to write a few hundred bytes to a local file.
    pub fn write(&self, tool: &str, rules: &BTreeSet<String>, now: Timestamp) -> io::Result<()> {
        if rules.is_empty() {
            return Ok(());
        }
        let mut file = self.file.lock();
        // Taken under the lock, so that a call whose count another one writes waits for it.
        for counts in self.counts.take_due(tool, rules) {
            let all = || self.counts.take_all(now).into_iter().map(|it| line(&it));
            let written = file.append(line(&counts), all);
            written.inspect_err(|_| self.counts.forget_kept())?;
        }
        Ok(())
    }
}

fn line(counts: &RuleCounts) -> Vec<u8> {
    serde_json::to_vec(counts).expect("texts and numbers always serialize")
}
