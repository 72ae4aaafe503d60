//! Two threads that write: one the file, one stdout. Both have bounded queues; the file's
//! answer is waited for, stdout's queue takes what fits.
//!
//! A full disk, or a stdout that nobody reads, refuses the *next* side effect. A finished
//! turn's line that stdout cannot take is on disk, and a `gap` line says how many are
//! missing there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

pub const FILE_NAME: &str = "history.jsonl";
const ROTATED_NAME: &str = "history.jsonl.1";

/// Lines that wait for the disk; a turn waits in its own task beyond that.
const FILE_QUEUE: usize = 64;
/// Lines that wait for stdout. Mostly a few KiB each: prompts are not in there unasked.
const STDOUT_QUEUE: usize = 512;
const STACK: usize = 256 * 1024;

#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("the record cannot be opened")]
    Open(#[source] io::Error),
    #[error("the record cannot be written")]
    Write(#[source] io::Error),
    #[error("nobody reads the record on stdout")]
    StdoutBlocked,
    #[error("the record is closed")]
    Closed,
}

/// What must hold before the line counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// On disk, and taken by stdout's queue.
    Both,
    /// On disk.
    File,
}

struct Entry {
    line: Vec<u8>,
    stdout: Vec<u8>,
    durability: Durability,
    written: oneshot::Sender<Result<(), HistoryError>>,
}

/// Where lines go. Closing waits until what was given is written.
#[derive(Debug)]
pub struct History {
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    entries: mpsc::Sender<Entry>,
    threads: Vec<JoinHandle<()>>,
}

impl History {
    /// `max_bytes` caps everything that is kept under `dir`.
    pub fn open(
        dir: &Path,
        max_bytes: u64,
        stdout: impl Write + Send + 'static,
    ) -> Result<History, HistoryError> {
        let log = Log::open(dir, max_bytes).map_err(HistoryError::Open)?;
        let (entries, queue) = mpsc::channel(FILE_QUEUE);
        let (lines, stdout_queue) = sync_channel(STDOUT_QUEUE);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_string())
                .stack_size(STACK)
                .spawn(run)
                .map_err(HistoryError::Open)
        };
        let threads = vec![
            spawn(
                "history",
                Box::new(move || write_entries(queue, log, &lines)),
            )?,
            spawn(
                "stdout",
                Box::new(move || write_stdout(&stdout_queue, stdout)),
            )?,
        ];
        Ok(History {
            open: Mutex::new(Some(Open { entries, threads })),
        })
    }

    /// Written before a side effect: an error means that it must not happen.
    pub async fn intent(&self, line: Vec<u8>) -> Result<(), HistoryError> {
        let stdout = line.clone();
        self.write(line, stdout, Durability::Both).await
    }

    /// What happened. `stdout` is the line without what does not belong there.
    pub async fn turn(&self, line: Vec<u8>, stdout: Vec<u8>) -> Result<(), HistoryError> {
        self.write(line, stdout, Durability::File).await
    }

    async fn write(
        &self,
        line: Vec<u8>,
        stdout: Vec<u8>,
        durability: Durability,
    ) -> Result<(), HistoryError> {
        let (written, done) = oneshot::channel();
        let entries = self.opened().as_ref().map(|open| open.entries.clone());
        let entries = entries.ok_or(HistoryError::Closed)?;
        let entry = Entry {
            line,
            stdout,
            durability,
            written,
        };
        entries
            .send(entry)
            .await
            .map_err(|_| HistoryError::Closed)?;
        done.await.map_err(|_| HistoryError::Closed)?
    }

    /// Writes what was given and ends. Blocks as long as stdout does, so the caller bounds it.
    pub fn close(&self) {
        let Some(open) = self.opened().take() else {
            return;
        };
        drop(open.entries);
        for thread in open.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the record panicked");
            }
        }
    }

    fn opened(&self) -> MutexGuard<'_, Option<Open>> {
        // Taken or not taken: a panic leaves nothing in between.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_entries(mut queue: mpsc::Receiver<Entry>, mut log: Log, stdout: &SyncSender<Vec<u8>>) {
    let mut missed = 0u64;
    while let Some(entry) = queue.blocking_recv() {
        let result = write_entry(&mut log, stdout, &mut missed, &entry);
        if let Err(error) = &result {
            tracing::error!(error = error.to_string(), "a line of the record is missing");
        }
        // Err: the turn was dropped; its line is written all the same.
        entry.written.send(result).ok();
    }
}

fn write_entry(
    log: &mut Log,
    stdout: &SyncSender<Vec<u8>>,
    missed: &mut u64,
    entry: &Entry,
) -> Result<(), HistoryError> {
    if *missed > 0 {
        let gap = format!(r#"{{"kind":"gap","lines":{missed}}}"#);
        if stdout.try_send(gap.into_bytes()).is_ok() {
            *missed = 0;
        }
    }
    // Stdout first: an intent that only stdout has is harmless, one that nobody has is not.
    match stdout.try_send(entry.stdout.clone()) {
        Ok(()) => {}
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => match entry.durability {
            Durability::Both => return Err(HistoryError::StdoutBlocked),
            Durability::File => *missed += 1,
        },
    }
    log.append(&entry.line).map_err(HistoryError::Write)
}

fn write_stdout(queue: &Receiver<Vec<u8>>, mut stdout: impl Write) {
    while let Ok(line) = queue.recv() {
        let written = stdout
            .write_all(&line)
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush());
        if let Err(error) = written {
            // A closed stdout: from now on its queue fills, and side effects are refused.
            tracing::error!(error = error.to_string(), "stdout cannot be written");
            return;
        }
    }
}

/// The file, and the one before it.
struct Log {
    dir: PathBuf,
    file: File,
    size: u64,
    half: u64,
}

impl Log {
    fn open(dir: &Path, max_bytes: u64) -> io::Result<Log> {
        std::fs::create_dir_all(dir)?;
        let mut file = open_file(&dir.join(FILE_NAME))?;
        let size = end_torn_line(&mut file)?;
        Ok(Log {
            dir: dir.to_path_buf(),
            file,
            size,
            half: (max_bytes / 2).max(1),
        })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if length > self.half {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "a line is larger than the record may be",
            ));
        }
        if self.size > 0 && self.size + length > self.half {
            std::fs::rename(self.dir.join(FILE_NAME), self.dir.join(ROTATED_NAME))?;
            self.file = open_file(&self.dir.join(FILE_NAME))?;
            self.size = 0;
        }
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes) {
            // Half a line would spoil the next one.
            self.file.set_len(self.size)?;
            return Err(error);
        }
        self.size += length;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// A kill can leave half a line at the end; the next one must start on its own.
fn end_torn_line(file: &mut File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    if size == 0 {
        return Ok(0);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(size);
    }
    file.write_all(b"\n")?;
    Ok(size + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A stdout that nobody reads.
    struct Blocked(Receiver<()>);

    impl Write for Blocked {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_are_kept_rotated_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::default();
        let history = History::open(dir.path(), 40, sink.clone()).unwrap();
        for line in ["0123456789", "abcdefghij", "second-file"] {
            history
                .turn(line.into(), format!("out {line}").into())
                .await
                .unwrap();
        }
        assert!(history.turn(vec![b'x'; 30], Vec::new()).await.is_err());
        history.close();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read(ROTATED_NAME), "abcdefghij\n");
        assert_eq!(read(FILE_NAME), "second-file\n");
        let mode = std::fs::metadata(dir.path().join(FILE_NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let out = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert!(
            out.starts_with("out 0123456789\nout abcdefghij\nout second-file\n"),
            "{out}"
        );
    }

    #[tokio::test]
    async fn half_a_line_of_a_killed_process_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), "{\"torn").unwrap();
        let history = History::open(dir.path(), 1000, Sink::default()).unwrap();
        history.intent(b"{}".to_vec()).await.unwrap();
        history.close();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(text, "{\"torn\n{}\n");
    }

    #[tokio::test]
    async fn a_blocked_stdout_refuses_intents_and_counts_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let (open, gate) = sync_channel(1);
        let history = History::open(dir.path(), 1_000_000, Blocked(gate)).unwrap();
        // One line is in the writer's hands, the queue holds the others.
        let mut refused = false;
        for _ in 0..STDOUT_QUEUE + 2 {
            refused |= history.intent(b"{}".to_vec()).await.is_err();
        }
        assert!(refused);
        history
            .turn(b"{\"kind\":\"turn\"}".to_vec(), b"{}".to_vec())
            .await
            .unwrap();
        drop(open);
        history.close();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert!(text.ends_with("{\"kind\":\"turn\"}\n"));
    }
}
