//! The log: JSON lines on stderr (stdout belongs to the record), written in batches.
//!
//! Lines are batched for some milliseconds, in a queue of bounded bytes like that of stdout: one
//! write per line would cost a request as much as its record. Invariant: logging never waits for
//! the reader of stderr. Lines that do not fit are dropped, and a later line has their number.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tracing_subscriber::EnvFilter;

use crate::history::line::escaped;
use crate::history::stdout::{self, Queue};

/// The log filter. The resolver logs a warning for each datagram that is not an answer, so a
/// container that shares the pod's network could fill the log.
const FILTER: &str = "info,hickory=error";
const STACK: usize = 256 * 1024;
/// Longest wait for a stderr that is not read any more.
const FLUSH: Duration = Duration::from_secs(3);

/// The log's writer. Lines after its end are lost.
#[derive(Debug)]
pub struct Log {
    lines: Lines,
    /// Resolves when the writing thread ends.
    ended: Receiver<()>,
}

impl Log {
    /// Sends the log of this process to stderr from now on.
    pub fn to_stderr() -> io::Result<Self> {
        let log = Self::to(io::stderr())?;
        let lines = log.lines.clone();
        let filter =
            EnvFilter::try_from_env("TOOLCRIB_LOG").unwrap_or_else(|_| EnvFilter::new(FILTER));
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(filter)
            .with_writer(move || lines.clone())
            .init();
        Ok(log)
    }

    fn to(end: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, drain) = stdout::queue();
        let (ending, ended) = sync_channel::<()>(0);
        std::thread::Builder::new()
            .name("log".to_string())
            .stack_size(STACK)
            .spawn(move || {
                drain.run(end);
                drop(ending);
            })?;
        let open = LogWriter { queue, missing: 0 };
        Ok(Self {
            lines: Lines(Arc::new(Mutex::new(Some(open)))),
            ended,
        })
    }

    /// Writes all lines and ends the log: at once, if stderr is read.
    pub fn close(self) {
        drop(self.lines.open().take());
        // Always Err: the thread has ended, or stderr is not read and the lines are lost.
        self.ended.recv_timeout(FLUSH).ok();
    }
}

#[derive(Debug)]
struct LogWriter {
    queue: Queue,
    /// Number of lines without room.
    missing: u64,
}

impl LogWriter {
    fn offer(&mut self, line: &[u8]) {
        if self.missing > 0 && self.queue.offer(&[&missed(self.missing)]) {
            self.missing = 0;
        }
        self.missing += u64::from(!self.queue.offer(&[line]));
    }
}

fn missed(lines: u64) -> Vec<u8> {
    let timestamp = jiff::Timestamp::now();
    format!(
        r#"{{"timestamp":"{timestamp}","level":"WARN","message":"stderr was not read; lines are missing here","lines":{lines}}}"#
    )
    .into_bytes()
}

/// A writer of whole JSON lines, as the formatter makes them.
#[derive(Clone, Debug)]
struct Lines(Arc<Mutex<Option<LogWriter>>>);

impl Lines {
    fn open(&self) -> MutexGuard<'_, Option<LogWriter>> {
        // A panic under it leaves at worst a line uncounted.
        self.0.lock()
    }
}

impl Write for Lines {
    /// Control characters are escaped, so that a logged value can neither forge a line nor control
    /// a terminal.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = escaped(Cow::Borrowed(bytes.trim_ascii_end()));
        if let Some(open) = &mut *self.open() {
            open.offer(&line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;

    use super::*;

    /// A stderr that takes nothing until its gate is gone.
    struct GatedStderr(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for GatedStderr {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Err: the gate is open.
            self.0.recv().ok();
            self.1.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (SyncSender<()>, Log, Arc<Mutex<Vec<u8>>>) {
        let (gate, closed) = sync_channel(1);
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Log::to(GatedStderr(closed, written.clone())).unwrap();
        (gate, log, written)
    }

    fn text(written: &Mutex<Vec<u8>>) -> String {
        String::from_utf8(written.lock().clone()).unwrap()
    }

    #[test]
    fn a_logged_value_forges_no_line() {
        let (gate, log, written) = gated();
        drop(gate);
        let line = "{\"model\":\"a\u{9b}2J\u{7f}\u{2028}b\"}\n";
        log.lines.clone().write_all(line.as_bytes()).unwrap();
        log.close();
        let expected = "{\"model\":\"a\\u009b2J\\u007f\\u2028b\"}\n";
        assert_eq!(text(&written), expected);
    }

    #[test]
    fn closing_the_log_writes_all_lines_in_order() {
        let (gate, log, written) = gated();
        drop(gate);
        let expected: String = (0..100).map(|at| format!("{{\"at\":{at}}}\n")).collect();
        for line in expected.split_inclusive('\n') {
            log.lines.clone().write_all(line.as_bytes()).unwrap();
        }
        log.close();
        assert_eq!(text(&written), expected);
    }

    #[test]
    fn a_blocked_stderr_drops_lines_and_logs_the_count() {
        let (gate, log, written) = gated();
        let mut lines = log.lines.clone();
        for _ in 0..1000 {
            lines.write_all(b"{\"early\":true}\n").unwrap();
        }
        let missing = || log.lines.open().as_ref().unwrap().missing;
        assert!(missing() > 0);
        drop(gate);
        // Until there is room again, each further line is missing as well.
        let mut logged = 1000;
        while missing() > 0 {
            lines.write_all(b"{\"early\":false}\n").unwrap();
            logged += 1;
            std::thread::yield_now();
        }
        log.close();
        let heard: u64 = text(&written)
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| line.get("lines").map_or(1, |it| it.as_u64().unwrap()))
            .sum();
        assert_eq!(heard, logged);
    }
}
