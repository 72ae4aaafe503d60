//! Keeps the hidden rounds of past turns, and the names of presented tools, in memory and in files
//! that are read after a restart.
//!
//! A line that cannot be written or read loses the context of one turn, never an answer. The file
//! and its replacement together stay within their share of the volume.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use toolcrib_dialect::{DialectError, Request};
use toolcrib_mediation::{Continuity, HiddenRounds, HistoryEdits, PresentedTools, RememberedTools};

use super::line_file::LineFile;

const FILE_NAME: &str = "continuity.jsonl";
/// The file with one tool per line: its alias and its canonical name. Earlier releases wrote only
/// the alias.
const NAMES_NAME: &str = "presented";
/// Most names of tools that are remembered; most tools have two. An agent has at most 120 tools at
/// a time.
const MAX_NAMES: usize = 4000;
/// Most bytes of a line. A tool with a longer name is remembered only until a restart.
const MAX_LINE: usize = 512;
/// Most bytes in memory, however large the volume is.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Bytes on disk per byte in memory: two for the file, which is rewritten when it has twice as
/// much as memory; one for its replacement; one for the overhead of JSON.
const ON_DISK: u64 = 4;

#[derive(Debug)]
pub struct ContinuityStore {
    dir: PathBuf,
    kept: Mutex<ContinuityFile>,
    names: Mutex<Arc<RememberedTools>>,
}

#[derive(Debug)]
struct ContinuityFile {
    continuity: Continuity,
    file: LineFile,
}

impl ContinuityStore {
    /// Opens the store. `disk_bytes`: most bytes of all its files.
    pub fn open(dir: &Path, disk_bytes: u64) -> ContinuityStore {
        let share = disk_bytes / ON_DISK;
        let in_memory = usize::try_from(share).map_or(MAX_BYTES, |share| share.min(MAX_BYTES));
        let limit = 2 * in_memory as u64;
        let mut continuity = Continuity::new(in_memory);
        let mut file = LineFile::new(dir.join(FILE_NAME), limit);
        let read = file.read(4 * MAX_BYTES as u64, |line| {
            if let Ok(hidden) = serde_json::from_slice::<HiddenRounds>(line) {
                continuity.remember(hidden);
            }
        });
        if let Err(error) = read {
            tracing::warn!(error = error.to_string(), "hidden rounds not read, lost");
        }
        // The overhead of JSON may be too much for the last turns, which are left out.
        lost(file.rewrite(lines(&continuity)));
        let kept = ContinuityFile { continuity, file };
        ContinuityStore {
            dir: dir.to_path_buf(),
            kept: Mutex::new(kept),
            names: Mutex::new(Arc::new(names(dir))),
        }
    }

    /// The tools that were presented to models, also before a restart.
    pub fn presented(&self) -> Arc<RememberedTools> {
        self.names().clone()
    }

    /// Remembers tools before they are presented to a model, or when they are offered. Blocks if
    /// one of them is new, to write a few bytes to a local file.
    pub fn present(&self, presented: &PresentedTools) {
        let mut names = self.names();
        let shown = presented.tools().map(|(alias, tool)| (alias, tool.name()));
        let new: Vec<(&str, &str)> = shown
            .filter(|(alias, canonical)| !names.contains(alias) || !names.contains(canonical))
            .collect();
        if new.is_empty() || names.len() + 2 * new.len() > MAX_NAMES {
            return;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600);
        let lines: String = new
            .iter()
            .map(|(alias, canonical)| format!("{alias} {canonical}\n"))
            .filter(|line| line.len() <= MAX_LINE)
            .collect();
        let written = file
            .open(self.dir.join(NAMES_NAME))
            .and_then(|mut file| file.write_all(lines.as_bytes()));
        if let Err(error) = written {
            tracing::warn!(
                error = error.to_string(),
                "names of presented tools not written, lost at a restart"
            );
        }
        let names = Arc::make_mut(&mut names);
        for (alias, canonical) in new {
            names.insert(alias, canonical);
        }
    }

    fn names(&self) -> MutexGuard<'_, Arc<RememberedTools>> {
        // A panic under the lock leaves at worst a name unwritten.
        self.names.lock()
    }

    pub fn history_edits(
        &self,
        request: &Request,
        presented: &PresentedTools,
    ) -> Result<HistoryEdits, DialectError> {
        self.file().continuity.history_edits(request, presented)
    }

    /// Remembers the hidden rounds of a turn. Blocks to write a few KiB to a local file.
    pub fn remember(&self, hidden: HiddenRounds) {
        let ContinuityFile { continuity, file } = &mut *self.file();
        let line = serde_json::to_vec(&hidden).expect("texts always serialize");
        continuity.remember(hidden);
        lost(file.append(line, || lines(continuity)));
    }

    fn file(&self) -> MutexGuard<'_, ContinuityFile> {
        // A panic under the lock leaves at worst a line unwritten.
        self.kept.lock()
    }
}

fn names(dir: &Path) -> RememberedTools {
    let mut names = RememberedTools::default();
    let mut text = String::new();
    let room = (MAX_NAMES * MAX_LINE) as u64;
    let read =
        File::open(dir.join(NAMES_NAME)).and_then(|file| file.take(room).read_to_string(&mut text));
    match read {
        Ok(_) => {
            for line in text.lines() {
                let (alias, canonical) = line.split_once(' ').unwrap_or((line, line));
                names.insert(alias, canonical);
            }
        }
        // Usually there is no file yet.
        Err(error) => {
            tracing::debug!(
                error = error.to_string(),
                "names of presented tools not read"
            );
        }
    }
    names
}

fn lines(continuity: &Continuity) -> impl Iterator<Item = Vec<u8>> {
    let line = |hidden| serde_json::to_vec(&hidden).expect("texts always serialize");
    continuity.entries().map(line)
}

fn lost(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(
            error = error.to_string(),
            "hidden rounds not written, lost at a restart"
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ROOM: u64 = 64 * 1024;

    fn hidden(number: usize, length: usize) -> HiddenRounds {
        let items = ["x".repeat(length)];
        let value = json!({"key": format!("k{number}"), "reply": "r", "items": items});
        serde_json::from_value(value).unwrap()
    }

    fn kept(store: &ContinuityStore) -> Vec<HiddenRounds> {
        store.file().continuity.entries().collect()
    }

    fn on_disk(dir: &Path) -> u64 {
        let files = std::fs::read_dir(dir).unwrap();
        files.map(|it| it.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn half_a_line_of_a_killed_process_loses_that_line_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = ContinuityStore::open(dir.path(), ROOM);
        let all: Vec<_> = (0..3).map(|number| hidden(number, 10)).collect();
        for hidden in &all {
            store.remember(hidden.clone());
        }
        drop(store);
        let path = dir.path().join(FILE_NAME);
        let text = std::fs::read(&path).unwrap();
        for cut in 1..40 {
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            let store = ContinuityStore::open(dir.path(), ROOM);
            // Without only its line break the last line is still whole.
            let whole = if cut == 1 { 3 } else { 2 };
            assert_eq!(kept(&store), all[..whole]);
            store.remember(hidden(7, 10));
            drop(store);
            let again = kept(&ContinuityStore::open(dir.path(), ROOM));
            assert_eq!(again, [&all[..whole], &[hidden(7, 10)]].concat());
        }
    }

    #[test]
    fn the_files_stay_within_their_share_of_a_small_volume() {
        for room in [4 * 1024, ROOM] {
            let dir = tempfile::tempdir().unwrap();
            let store = ContinuityStore::open(dir.path(), room);
            for number in 0..200 {
                store.remember(hidden(number, number * 7));
                // Half, since file and replacement exist together for a moment.
                assert!(on_disk(dir.path()) <= room / 2, "{number}");
            }
            let left = kept(&store);
            drop(store);
            let again = ContinuityStore::open(dir.path(), room);
            assert_eq!(kept(&again), left);
        }
    }
}
