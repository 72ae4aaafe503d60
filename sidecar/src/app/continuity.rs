//! Keeps the hidden rounds of past turns, and the names of presented tools, in memory and in files
//! that are read after a restart.
//!
//! A line that cannot be written or read loses the context of one turn, never an answer. The file
//! is as confidential as the record, so it has the same mode. The file and its replacement together
//! stay within their share of the volume.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use toolcrib_dialect::{DialectError, Insertion, Request};
use toolcrib_mediation::{Continuity, HiddenRounds, PresentedTools, RememberedTools};

const FILE_NAME: &str = "continuity.jsonl";
/// The file with one tool per line: its alias and its canonical name. Earlier releases wrote only
/// the alias.
const NAMES_NAME: &str = "presented";
/// Most names of tools that are remembered; most tools have two. An agent has at most 120 tools at
/// a time.
const MAX_NAMES: usize = 4000;
/// Most bytes of a line. A tool with a longer name is remembered only until a restart.
const MAX_LINE: usize = 512;
const REWRITTEN_NAME: &str = "continuity.jsonl.new";
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
    file: Option<File>,
    written: u64,
    /// Size at which the file is rewritten.
    limit: u64,
    /// True if the last line is incomplete: the next one must not become part of it.
    torn: bool,
}

impl ContinuityStore {
    /// Opens the store. `disk_bytes`: most bytes of all its files.
    pub fn open(dir: &Path, disk_bytes: u64) -> ContinuityStore {
        let share = disk_bytes / ON_DISK;
        let in_memory = usize::try_from(share).map_or(MAX_BYTES, |share| share.min(MAX_BYTES));
        let limit = 2 * in_memory as u64;
        let mut continuity = Continuity::new(in_memory);
        if let Ok(file) = File::open(dir.join(FILE_NAME)) {
            let lines = BufReader::new(file.take(4 * MAX_BYTES as u64)).split(b'\n');
            for line in lines.map_while(Result::ok) {
                // A kill can leave half a line.
                if let Ok(hidden) = serde_json::from_slice::<HiddenRounds>(&line) {
                    continuity.remember(hidden);
                }
            }
        }
        let mut kept = ContinuityFile {
            continuity,
            file: None,
            written: 0,
            limit,
            torn: false,
        };
        rewrite(dir, &mut kept);
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

    pub fn insertions(
        &self,
        request: &Request,
        presented: &PresentedTools,
    ) -> Result<Vec<Insertion>, DialectError> {
        self.file().continuity.insertions(request, presented)
    }

    /// Remembers the hidden rounds of a turn. Blocks to write a few KiB to a local file.
    pub fn remember(&self, hidden: HiddenRounds) {
        let mut kept = self.file();
        let line = serde_json::to_vec(&hidden);
        kept.continuity.remember(hidden);
        let Ok(mut line) = line else {
            return;
        };
        if kept.torn {
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        if kept.written + line.len() as u64 > kept.limit {
            rewrite(&self.dir, &mut kept);
            return;
        }
        kept.written += line.len() as u64;
        let Some(file) = &mut kept.file else {
            return;
        };
        let written = file.write_all(&line);
        kept.torn = written.is_err();
        if let Err(error) = written {
            tracing::warn!(
                error = error.to_string(),
                "hidden rounds not written, lost at a restart"
            );
        }
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

/// Replaces the file, in one step, with one that has the remembered rounds that fit.
fn rewrite(dir: &Path, kept: &mut ContinuityFile) {
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
            // The overhead of JSON may be too much for the last turn.
            if size + line.len() as u64 > kept.limit {
                continue;
            }
            file.write_all(&line)?;
            size += line.len() as u64;
        }
        std::fs::rename(&path, dir.join(FILE_NAME))?;
        Ok((file, size))
    };
    kept.torn = false;
    match written() {
        Ok((file, size)) => (kept.file, kept.written) = (Some(file), size),
        Err(error) => {
            tracing::warn!(
                error = error.to_string(),
                "hidden rounds not written, lost at a restart"
            );
            (kept.file, kept.written) = (None, 0);
        }
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

    /// A disk that was full in the middle of a line.
    #[test]
    fn half_a_line_of_a_full_disk_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let store = ContinuityStore::open(dir.path(), ROOM);
        store.remember(hidden(1, 10));
        {
            let mut kept = store.file();
            let file = kept.file.as_mut().unwrap();
            file.write_all(b"{\"key\":\"torn").unwrap();
            kept.torn = true;
        }
        store.remember(hidden(2, 10));
        store.remember(hidden(3, 10));
        drop(store);
        let again = kept(&ContinuityStore::open(dir.path(), ROOM));
        assert_eq!(again, [1, 2, 3].map(|number| hidden(number, 10)));
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
