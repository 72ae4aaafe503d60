//! What the process does to itself before it serves: no dumps, JSON lines for logs, and
//! one signal that ends it.

use std::io::{self, Write};

use rustix::process::DumpableBehavior;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::history::line::escaped;

/// Nobody of the same UID reads our memory or environment through `/proc`, and no core
/// dump holds a credential.
pub fn make_undumpable() -> std::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// JSON lines on stderr: stdout belongs to the record. Controls are escaped, so that a
/// logged value can neither forge a line nor speak to a terminal.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("TOOLCRIB_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(|| Escaped(io::stderr()))
        .init();
}

/// Takes whole lines of JSON, as the formatter writes them.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut line = escaped(bytes.trim_ascii_end().into()).into_owned();
        line.push(b'\n');
        self.0.write_all(&line)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Resolves on SIGTERM or SIGINT, and if `with_stdin` at the end of stdin: whoever started
/// this process holds the other end of a pipe, which closes however that one ends.
pub async fn terminated(with_stdin: bool) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = async {
        match with_stdin {
            true => end_of_stdin().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
        () = ended => {}
    }
    Ok(())
}

/// On a thread of its own, which nobody waits for when the process ends.
async fn end_of_stdin() {
    let (send, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let read = io::copy(&mut io::stdin().lock(), &mut io::sink());
        // Closed on us or failed: nobody is at the other end. Not awaited: we are ending.
        drop((read, send));
    });
    drop(ended.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_value_forges_no_line() {
        let mut written = Vec::new();
        let line = "{\"model\":\"a\u{9b}2J\u{7f}\u{2028}b\"}\n";
        Escaped(&mut written).write_all(line.as_bytes()).unwrap();
        let expected = "{\"model\":\"a\\u009b2J\\u007f\\u2028b\"}\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
