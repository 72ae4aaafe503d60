//! Sends the record to an OpenTelemetry Collector, as OTLP logs.
//!
//! [`cursor`] is the place up to which the collector has taken the record; [`file`] and [`files`] read
//! the lines after it, [`line`] and [`batch`] make messages of them, and [`send`] hands one after the
//! other to the collector. Not here: writing the record, and the rotation that may wait for this
//! ([`crate::history::rotation`]).
//!
//! Invariants: a line is sent at least once, over restarts of either side, or counted as lost; bodies
//! of requests and responses are never sent, and arguments and results of calls only if the installation
//! says so; one message is in memory at a time; nothing here delays or fails a request.

pub mod batch;
pub mod cursor;
pub mod file;
pub mod files;
pub mod line;
mod send;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use toolcrib_bounds::chain;

use self::batch::{Batch, Source};
use self::cursor::CursorFile;
use self::files::RecordFiles;
pub use self::line::Arguments;
use self::send::Sender;
use crate::config::CurrentConfig;
use crate::history::RotationGate;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::telemetry::otlp::{Receiver, Signal};

/// The rhythm of the export. Only tests have another than the default.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Interval in which the record's files are looked at. It is also how long lines wait for others.
    pub look: Duration,
    /// Wait after the first failed attempt. It doubles up to `longest_wait`.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// Bound of one request to the collector.
    pub request: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(1),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(30),
            request: Duration::from_secs(10),
        }
    }
}

/// What the export shares with the rest of the mediator.
#[derive(Debug)]
pub struct ExportContext {
    pub current: Arc<CurrentConfig>,
    pub metrics: Arc<Metrics>,
    pub outbound: Arc<Outbound>,
    /// `None`: rotation does not wait for the collector.
    pub gate: Option<Arc<RotationGate>>,
}

/// The settings of the export.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Base URL of OTLP.
    pub endpoint: &'a str,
    pub pod: &'a str,
    pub arguments: Arguments,
    pub pace: Pace,
}

/// The record as it was found, from the place on that the collector has taken.
#[derive(Debug)]
pub struct Backlog {
    files: RecordFiles,
    cursor: CursorFile,
}

impl Backlog {
    /// Opens the record in `dir` before its writer does: the writer's first line can rotate it.
    pub fn open(dir: &Path, gate: Option<&RotationGate>) -> io::Result<Backlog> {
        let cursor = CursorFile::of(dir);
        let files = RecordFiles::open(dir, cursor.read())?;
        if let (Some(gate), Some(place)) = (gate, files.place()) {
            gate.taken(place);
        }
        Ok(Backlog { files, cursor })
    }
}

/// The running export.
#[derive(Debug)]
pub struct Exporter {
    flushes: mpsc::Sender<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Begins to send. Must be called within a runtime.
    pub fn start(backlog: Backlog, settings: Settings<'_>, shared: ExportContext) -> Exporter {
        let (flushes, asked) = mpsc::channel(1);
        let receiver = Receiver::new(settings.endpoint, Signal::Logs, shared.outbound);
        let export = Export {
            files: Arc::new(Mutex::new(backlog.files)),
            cursor: backlog.cursor,
            source: Source {
                pod: settings.pod.to_owned(),
                ..Source::default()
            },
            arguments: settings.arguments,
            pace: settings.pace,
            sender: Sender::new(receiver, settings.pod.to_owned(), settings.pace),
            current: shared.current,
            metrics: shared.metrics,
            gate: shared.gate,
            flushes: asked,
            flushed: None,
        };
        Exporter {
            flushes,
            task: tokio::spawn(export.run()),
        }
    }

    /// Waits until the collector has taken all lines on disk. The caller bounds the wait.
    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        // An error: the task has panicked, which its owner reports.
        if self.flushes.send(done).await.is_ok() && is_done.await.is_err() {
            tracing::error!("record export ended before its flush");
        }
    }

    /// Ends the export. Lines that were not taken are sent by the next process, if the volume has one.
    pub async fn stop(self) {
        self.task.abort();
        if self.task.await.is_err_and(|error| error.is_panic()) {
            tracing::error!("record export panicked");
        }
    }
}

/// The export's task.
struct Export {
    files: Arc<Mutex<RecordFiles>>,
    cursor: CursorFile,
    source: Source,
    arguments: Arguments,
    pace: Pace,
    sender: Sender,
    current: Arc<CurrentConfig>,
    metrics: Arc<Metrics>,
    gate: Option<Arc<RotationGate>>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    /// Waits for the end of a flush.
    flushed: Option<oneshot::Sender<()>>,
}

impl Export {
    async fn run(mut self) {
        loop {
            self.name_source();
            let (source, arguments) = (self.source.clone(), self.arguments);
            let read = self.on_files(move |files| {
                files.look()?;
                let batch = Batch::read(files, &source, arguments)?;
                // Without a figure the lag is that of this batch: its lines must not be lost for it.
                Ok((batch, files.left().unwrap_or_default()))
            });
            match read.await {
                Ok((Some(batch), left)) => {
                    self.metrics.exported("lost", batch.lost);
                    let size: usize = batch.records.iter().map(prost::Message::encoded_len).sum();
                    self.metrics.export_lag(left + size as u64);
                    self.send(batch).await;
                    self.remember().await;
                }
                Ok((None, left)) => {
                    self.metrics.export_lag(left);
                    self.open_gate();
                    if let Some(flushed) = self.flushed.take()
                        && flushed.send(()).is_err()
                    {
                        tracing::debug!("record exported after the time of its flush");
                    }
                    self.pause(self.pace.look).await;
                }
                Err(error) => {
                    tracing::error!(
                        error = chain(&error),
                        "record not read for export, tried again"
                    );
                    self.pause(self.pace.longest_wait).await;
                }
            }
        }
    }

    /// Sends until the collector has taken or refused all of it.
    async fn send(&mut self, batch: Batch) {
        let mut sending = self.sender.begin(batch.records);
        loop {
            let attempt = self.sender.attempt(&mut sending);
            let outcome = {
                tokio::pin!(attempt);
                loop {
                    tokio::select! {
                        outcome = &mut attempt => break outcome,
                        // What rotation removes meanwhile is counted, and its room is freed.
                        () = tokio::time::sleep(self.pace.look) => look(&self.files).await,
                    }
                }
            };
            let counts = sending.take_counts();
            self.metrics.exported("sent", counts.sent);
            self.metrics.exported("rejected", counts.rejected);
            match outcome {
                None => return,
                Some(wait) => self.pause_between_attempts(wait).await,
            }
        }
    }

    async fn pause_between_attempts(&mut self, wait: Duration) {
        let until = tokio::time::Instant::now() + wait;
        while tokio::time::Instant::now() < until {
            let left = until - tokio::time::Instant::now();
            look(&self.files).await;
            if self.pause(left.min(self.pace.look)).await == WakeReason::ByFlush {
                self.sender.be_quick();
                return;
            }
        }
    }

    /// Writes the place of the next line to disk.
    async fn remember(&self) {
        let cursor = self.cursor.clone();
        let written = self.on_files(move |files| match files.cursor() {
            Some(place) => cursor.write(&place),
            None => Ok(()),
        });
        if let Err(error) = written.await {
            // After a restart the lines are sent again. Rotation does not wait for this: it makes room
            // on a full disk.
            tracing::error!(error = chain(&error), "export cursor not written");
        }
        self.open_gate();
    }

    fn open_gate(&self) {
        if let (Some(gate), Some(place)) = (&self.gate, self.files.lock().place()) {
            gate.taken(place);
        }
    }

    fn name_source(&mut self) {
        if let Some(agent) = self.current.now().agent() {
            self.source.agent.clone_from(&agent.agent);
            self.source.namespace.clone_from(&agent.namespace);
        }
    }

    async fn pause(&mut self, wait: Duration) -> WakeReason {
        match tokio::time::timeout(wait, self.flushes.recv()).await {
            Ok(Some(flushed)) => {
                self.flushed = Some(flushed);
                WakeReason::ByFlush
            }
            // The exporter is dropped without a stop.
            Ok(None) => {
                tokio::time::sleep(wait).await;
                WakeReason::ByTime
            }
            Err(_) => WakeReason::ByTime,
        }
    }

    /// Reads files on a thread that may block.
    async fn on_files<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut RecordFiles) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        on_files(&self.files, read).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    ByTime,
    ByFlush,
}

async fn look(files: &Arc<Mutex<RecordFiles>>) {
    if let Err(error) = on_files(files, RecordFiles::look).await {
        tracing::debug!(error = chain(&error), "record's files not looked at");
    }
}

async fn on_files<T: Send + 'static>(
    files: &Arc<Mutex<RecordFiles>>,
    read: impl FnOnce(&mut RecordFiles) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || read(&mut files.lock()));
    read.await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
