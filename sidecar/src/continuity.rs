//! The hidden rounds of past turns, in memory and in a file that a restart replays.
//!
//! The file is a convenience: a line that cannot be written or read loses the context of
//! one turn, never an answer. It holds what the record holds, so it has the same mode.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolcrib_dialect::{DialectError, Insertion, Request};
use toolcrib_mediation::{Continuity, Hidden, Presented};

const FILE_NAME: &str = "continuity.jsonl";
const REWRITTEN_NAME: &str = "continuity.jsonl.new";
/// In memory; the file may have twice as much before it is rewritten.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct ContinuityStore {
    dir: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    continuity: Continuity,
    file: Option<File>,
    written: u64,
}

impl ContinuityStore {
    pub fn open(dir: &Path) -> ContinuityStore {
        let mut continuity = Continuity::new(MAX_BYTES);
        if let Ok(file) = File::open(dir.join(FILE_NAME)) {
            let lines = BufReader::new(file.take(4 * MAX_BYTES as u64)).split(b'\n');
            for line in lines.map_while(Result::ok) {
                // Half a line is what a kill leaves.
                if let Ok(hidden) = serde_json::from_slice::<Hidden>(&line) {
                    continuity.remember(hidden);
                }
            }
        }
        let mut kept = Kept {
            continuity,
            file: None,
            written: 0,
        };
        rewrite(dir, &mut kept);
        ContinuityStore {
            dir: dir.to_path_buf(),
            kept: Mutex::new(kept),
        }
    }

    pub fn insertions(
        &self,
        request: &Request,
        presented: &Presented,
    ) -> Result<Vec<Insertion>, DialectError> {
        self.kept().continuity.insertions(request, presented)
    }

    /// Blocking: a few KiB to a local file.
    pub fn remember(&self, hidden: Hidden) {
        let mut kept = self.kept();
        let line = serde_json::to_vec(&hidden);
        kept.continuity.remember(hidden);
        let Ok(mut line) = line else {
            return;
        };
        line.push(b'\n');
        if kept.written + line.len() as u64 > 2 * MAX_BYTES as u64 {
            rewrite(&self.dir, &mut kept);
            return;
        }
        kept.written += line.len() as u64;
        if let Some(file) = &mut kept.file
            && let Err(error) = file.write_all(&line)
        {
            tracing::warn!(
                error = error.to_string(),
                "hidden rounds are kept in memory only"
            );
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic under it leaves at worst a line unwritten.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file with exactly what is remembered, swapped in whole.
fn rewrite(dir: &Path, kept: &mut Kept) {
    let written = || -> std::io::Result<(File, u64)> {
        let path = dir.join(REWRITTEN_NAME);
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        let mut size = 0;
        for hidden in kept.continuity.entries() {
            let mut line = serde_json::to_vec(&hidden)?;
            line.push(b'\n');
            file.write_all(&line)?;
            size += line.len() as u64;
        }
        std::fs::rename(&path, dir.join(FILE_NAME))?;
        Ok((file, size))
    };
    match written() {
        Ok((file, size)) => (kept.file, kept.written) = (Some(file), size),
        Err(error) => {
            tracing::warn!(
                error = error.to_string(),
                "hidden rounds are kept in memory only"
            );
            (kept.file, kept.written) = (None, 0);
        }
    }
}
