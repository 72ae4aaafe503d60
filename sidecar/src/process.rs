//! What the process does to itself before it serves: no dumps, JSON lines for logs, and
//! one signal that ends it.

use rustix::process::DumpableBehavior;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Nobody of the same UID reads our memory or environment through `/proc`, and no core
/// dump holds a credential.
pub fn make_undumpable() -> std::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// JSON lines on stderr: stdout belongs to the record. The formatter escapes controls, so
/// that a logged value cannot forge a line.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("TOOLCRIB_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

/// Resolves on SIGTERM or SIGINT.
pub async fn terminated() -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
