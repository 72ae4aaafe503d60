//! Writes the record. Each caller writes to the file itself: that is a copy into the page cache,
//! which costs less than a thread. Stdout has a thread, since it blocks if it is not read.
//!
//! The effects of a full disk and of an unread stdout:
//!
//! | | the call of a tool | the call of a model | the line of a finished request |
//! |---|---|---|---|
//! | disk full | is refused | its line goes to stdout | goes to stdout, and waits in memory for the disk up to a bound |
//! | stdout blocked | is refused | its line is on disk | is on disk; a `gap` line says later how many are missing there |
//! | both | is refused | is refused with 503 | waits up to the bound; then new requests are refused with 503 |
//! | rotation waits for the collector | is refused | is refused with 503 | has the last eighth of the file, then waits in memory; new requests are refused with 503 |
//!
//! So nothing happens unrecorded: a call with a side effect has its line on disk first, and a
//! request begins only while there is room for its line.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;
use toolcrib_bounds::chain;
use toolcrib_record::{Chain, Head, Line, StartLine};

use super::line::{escaped, to_json};
use super::log::Log;
use super::recent::RecentCalls;
use super::rotation::{CollectorBehind, RotationGate};
use super::rules::{RuleSet, WrittenRules};
use super::stdout::{self, Queue};
use crate::metrics::Metrics;

/// Bytes of lines that wait in memory for a failing disk. Beyond this no request begins unless
/// stdout has room.
const WAITING: usize = 1024 * 1024;
/// The same with the room for requests that run already.
const WAITING_AT_MOST: usize = 2 * WAITING;
const STACK: usize = 256 * 1024;
/// Most bytes that the members of the chain and the line break add to a line.
const SEAL: usize = 256;

#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("the record cannot be opened")]
    Open(#[source] io::Error),
    #[error("the record cannot be written")]
    Write(#[source] io::Error),
    #[error(transparent)]
    Behind(CollectorBehind),
    #[error("stdout is blocked: its reader does not read")]
    StdoutBlocked,
    #[error("the record is closed")]
    Closed,
    #[error("the system gives no random bytes for the record's chain")]
    Randomness,
}

impl HistoryError {
    fn of_write(error: io::Error) -> Self {
        match error.get_ref().and_then(|it| it.downcast_ref()) {
            Some(behind) => HistoryError::Behind(*behind),
            None => HistoryError::Write(error),
        }
    }
}

/// The part of a finished request's line that goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutBodies {
    WithBodies,
    WithoutBodies,
}

/// The line of a finished request, with and without its bodies. Bodies are long, so they are not
/// copied on the way to the disk.
#[derive(Clone, Debug)]
pub struct TurnLines<'a> {
    /// The line without bodies: a JSON object.
    pub without: Vec<u8>,
    /// The members with the bodies, in pieces, each with the comma before it.
    pub bodies: Vec<Cow<'a, [u8]>>,
}

impl TurnLines<'_> {
    fn with_bodies(&self) -> Vec<&[u8]> {
        let (members, brace) = self.without.split_at(self.without.len().saturating_sub(1));
        let bodies = self.bodies.iter().map(AsRef::as_ref);
        [members].into_iter().chain(bodies).chain([brace]).collect()
    }
}

/// The pod in the line that begins a chain.
#[derive(Clone, Copy, Debug)]
pub struct PodIdentity<'a> {
    pub name: &'a str,
    /// `None`: the mediator has no link token.
    pub uid: Option<&'a str>,
}

/// The writer of the record. Closing it waits until all lines are written.
#[derive(Debug)]
pub struct History {
    open: Mutex<Option<OpenRecord>>,
    /// The rules of a load that the writer has not taken yet.
    loaded: Mutex<Option<RuleSet>>,
    recent: RecentCalls,
    waiting: Arc<AtomicUsize>,
    /// True if rotation waits for the collector.
    waits_for_collector: bool,
}

#[derive(Debug)]
struct OpenRecord {
    writer: Writer,
    stdout: JoinHandle<()>,
}

impl History {
    /// Opens the record and begins its chain. `max_bytes` bounds everything under `dir`; rotation waits
    /// for `gate`, if there is one.
    pub fn open(
        dir: &Path,
        max_bytes: u64,
        gate: Option<Arc<RotationGate>>,
        pod: PodIdentity<'_>,
        on_stdout: StdoutBodies,
        stdout: impl Write + Send + 'static,
        metrics: Arc<Metrics>,
    ) -> Result<History, HistoryError> {
        let waits_for_collector = gate.is_some();
        let log = Log::open(dir, max_bytes, gate).map_err(HistoryError::Open)?;
        let start = Line::Start(StartLine {
            version: toolcrib_record::VERSION,
            pod: pod.name.into(),
            pod_uid: pod.uid.map(Into::into),
            timestamp: jiff::Timestamp::now().to_string().into(),
            previous: log.last_head(),
            chain: None,
            seq: None,
        });
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| HistoryError::Randomness)?;
        let (lines, drain) = stdout::queue();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut writer = Writer {
            pod: pod.name.to_owned(),
            pod_uid: pod.uid.map(str::to_owned),
            rules: WrittenRules::default(),
            files: log.files(),
            log,
            chain: Chain::new(hex::encode(random)),
            stdout: lines,
            on_stdout,
            backlog: VecDeque::new(),
            waiting: waiting.clone(),
            missing_on_disk: 0,
            missing_on_stdout: 0,
            metrics,
        };
        // Like the line of a finished request: a full disk does not keep the mediator from serving.
        writer.turn(TurnLines {
            without: escaped(to_json(&start).into()).into_owned(),
            bodies: Vec::new(),
        })?;
        let stdout = std::thread::Builder::new()
            .name("stdout".to_string())
            .stack_size(STACK)
            .spawn(move || drain.run(stdout))
            .map_err(HistoryError::Open)?;
        Ok(History {
            open: Mutex::new(Some(OpenRecord { writer, stdout })),
            loaded: Mutex::default(),
            recent: RecentCalls::default(),
            waiting,
            waits_for_collector,
        })
    }

    /// Notes the rules of a load. Their lines are written before the next line, so this waits for no
    /// disk.
    pub fn set_rules(&self, rules: RuleSet) {
        *self.loaded.lock() = Some(rules);
    }

    /// Writes the line before a side effect. After an error the side effect must not happen.
    pub fn intent(&self, line: Vec<u8>) -> Result<(), HistoryError> {
        self.write(|writer| writer.intent(line))
    }

    /// Writes the line before a model call: only to disk while that works, so that stdout has one
    /// line for each request. An error means that the line is written nowhere.
    pub fn model_call(&self, line: Vec<u8>) -> Result<(), HistoryError> {
        self.write(|writer| writer.model_call(line))
    }

    /// Writes the line of a finished request.
    pub fn turn(&self, lines: TurnLines<'_>) -> Result<(), HistoryError> {
        self.write(|writer| writer.turn(lines))
    }

    /// Fails if no request may begin. Costs nothing while the disk works and nothing waits for the
    /// collector.
    pub fn ready(&self) -> Result<(), HistoryError> {
        if self.waits_for_collector {
            self.write(|writer| writer.log.admits_requests().map_err(HistoryError::of_write))?;
        }
        if self.waiting() < WAITING {
            return Ok(());
        }
        self.write(Writer::ready)
    }

    /// The calls that ended lately.
    pub fn recent(&self) -> &RecentCalls {
        &self.recent
    }

    /// Returns the last line of the chain. `None` if a line is being written just now: the caller asks
    /// again later and waits for no disk.
    pub fn head(&self) -> Option<Head> {
        self.open.try_lock()?.as_ref()?.writer.chain.head()
    }

    /// Bytes that wait for a failing disk.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn write(
        &self,
        write: impl FnOnce(&mut Writer) -> Result<(), HistoryError>,
    ) -> Result<(), HistoryError> {
        match &mut *self.opened() {
            Some(open) => {
                if let Some(rules) = self.loaded.lock().take() {
                    open.writer.rules.load(rules);
                }
                write(&mut open.writer)
            }
            None => Err(HistoryError::Closed),
        }
    }

    /// Writes all lines and closes the record. Blocks as long as stdout does; the caller bounds it.
    pub fn close(&self) {
        let Some(OpenRecord { writer, stdout }) = self.opened().take() else {
            return;
        };
        writer.end();
        if stdout.join().is_err() {
            tracing::error!("record thread panicked");
        }
    }

    fn opened(&self) -> MutexGuard<'_, Option<OpenRecord>> {
        // The value is taken or not: a panic leaves nothing in between.
        self.open.lock()
    }
}

#[derive(Debug)]
struct Writer {
    pod: String,
    pod_uid: Option<String>,
    rules: WrittenRules,
    /// The number of files of the log that have the lines of the rules.
    files: u64,
    log: Log,
    chain: Chain,
    stdout: Queue,
    on_stdout: StdoutBodies,
    /// Lines without bodies that the disk did not take, the oldest first.
    backlog: VecDeque<Vec<u8>>,
    /// Bytes of the lines in the backlog.
    waiting: Arc<AtomicUsize>,
    /// Lost lines that a `gap` line must report.
    missing_on_disk: u64,
    missing_on_stdout: u64,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// Tries the backlog for the last time. Dropping the queue ends the other thread.
    fn end(mut self) {
        if self.catch_up().is_err() {
            tracing::error!(
                lines = self.backlog.len(),
                "last record lines not written to disk"
            );
        }
    }

    /// Writes the lines of rules that are due before a line of this length. After an error, all of them
    /// are due again.
    fn rules(&mut self, length: usize) -> Result<(), HistoryError> {
        let length = (length + SEAL) as u64;
        // A failing disk shows when the line itself is written.
        if let Err(error) = self.log.make_room(length) {
            tracing::debug!(error = error.to_string(), "no new file of the record begun");
        }
        if self.files != self.log.files() {
            self.files = self.log.files();
            self.rules.begin_file();
        }
        let due = self.rules.take_due(&self.pod, self.pod_uid.as_deref());
        let written = due.into_iter().try_for_each(|without| {
            self.chained(TurnLines {
                without,
                bodies: Vec::new(),
            })
        });
        if written.is_err() {
            self.rules.begin_file();
        }
        written
    }

    fn intent(&mut self, mut line: Vec<u8>) -> Result<(), HistoryError> {
        self.rules(line.len())?;
        self.catch_up().map_err(HistoryError::of_write)?;
        let sealed = self.chain.seal(&mut line);
        self.log.admits(&[&line]).map_err(HistoryError::of_write)?;
        // Stdout first: an intent that is only on stdout is harmless; a call without an intent is
        // not.
        if !self.offer(&[&line]) {
            return Err(HistoryError::StdoutBlocked);
        }
        self.chain.advance(sealed);
        self.log.append(&[&line]).map_err(HistoryError::of_write)
    }

    fn model_call(&mut self, mut line: Vec<u8>) -> Result<(), HistoryError> {
        let sealed = self.chain.seal_aside(&mut line);
        let on_disk = self.catch_up().and_then(|()| self.log.append(&[&line]));
        if let Err(error) = on_disk.map_err(HistoryError::of_write) {
            // Stdout is no substitute while the collector is behind: it gets the lines on disk.
            let is_behind = matches!(error, HistoryError::Behind(_));
            if is_behind || !self.offer(&[&line]) {
                return Err(error);
            }
        }
        self.chain.advance_aside(sealed);
        Ok(())
    }

    fn turn(&mut self, lines: TurnLines<'_>) -> Result<(), HistoryError> {
        let bodies: usize = lines.bodies.iter().map(|it| it.len()).sum();
        // The request has ended, so its line is written even if those of the rules are not.
        if let Err(error) = self.rules(lines.without.len() + bodies) {
            tracing::error!(
                error = chain(&error),
                "rules not written to the record, tried again before the next line"
            );
        }
        self.chained(lines)
    }

    fn chained(&mut self, mut lines: TurnLines<'_>) -> Result<(), HistoryError> {
        let sealed = self.chain.seal(&mut lines.without);
        let with_bodies = lines.with_bodies();
        let on_stdout = match self.on_stdout {
            StdoutBodies::WithBodies => self.offer(&with_bodies),
            StdoutBodies::WithoutBodies => self.offer(&[&lines.without]),
        };
        // A line that is too long is written without its bodies.
        let line = match self.log.fits(&with_bodies) {
            true => with_bodies,
            false => vec![lines.without.as_slice()],
        };
        let on_disk = self.catch_up().and_then(|()| self.log.append(&line));
        let kept = match on_disk {
            Ok(()) => Ok(()),
            Err(error) => self.keep(lines.without, error),
        };
        // A line that neither the disk nor stdout has leaves no hole in the chain: a `gap` line
        // counts it.
        if on_stdout || kept.is_ok() {
            self.chain.advance(sealed);
        }
        if !on_stdout {
            self.missing_on_stdout += 1;
            self.metrics.record_missed("stdout");
        }
        match kept {
            Ok(()) => Ok(()),
            Err(error) => {
                self.missing_on_disk += 1;
                self.metrics.record_missed("disk");
                if on_stdout {
                    return Ok(());
                }
                self.metrics.unrecorded(1);
                Err(HistoryError::of_write(error))
            }
        }
    }

    /// Keeps a line in memory until the disk accepts it.
    fn keep(&mut self, line: Vec<u8>, error: io::Error) -> Result<(), io::Error> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if !self.log.fits(&[&line]) || waiting + line.len() > WAITING_AT_MOST {
            return Err(error);
        }
        if waiting == 0 {
            tracing::error!(
                error = error.to_string(),
                "record line not written to disk, tool calls refused until a write succeeds"
            );
        }
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        self.backlog.push_back(line);
        Ok(())
    }

    fn ready(&mut self) -> Result<(), HistoryError> {
        match self.catch_up() {
            Ok(()) => Ok(()),
            // Without a line to offer, room in the queue is enough.
            Err(_) if self.stdout.has_room() => Ok(()),
            Err(error) => Err(HistoryError::of_write(error)),
        }
    }

    /// Writes the backlog in its order, and then the number of lost lines.
    fn catch_up(&mut self) -> io::Result<()> {
        while let Some(line) = self.backlog.front() {
            self.log.append(&[line])?;
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.backlog.pop_front();
        }
        if self.missing_on_disk > 0 {
            self.log.append(&[&gap(self.missing_on_disk)])?;
            self.missing_on_disk = 0;
        }
        Ok(())
    }

    /// Queues a line, in pieces, for stdout.
    fn offer(&mut self, line: &[&[u8]]) -> bool {
        if self.missing_on_stdout > 0 {
            // Room may appear between the two offers: no line may overtake the gap before it.
            if !self.stdout.offer(&[&gap(self.missing_on_stdout)]) {
                return false;
            }
            self.missing_on_stdout = 0;
        }
        self.stdout.offer(line)
    }
}

fn gap(lines: u64) -> Vec<u8> {
    format!(r#"{{"kind":"gap","lines":{lines}}}"#).into_bytes()
}
