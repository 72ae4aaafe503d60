//! Set-up of the process: forbids core dumps and waits for the signal that ends it.

pub mod args;
pub mod log;
pub mod probe;

use std::io;

use rustix::process::DumpableBehavior;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Keeps processes of the same UID from reading this process's memory or environment through
/// `/proc`, and keeps credentials out of core dumps.
pub fn make_undumpable() -> std::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Resolves on SIGTERM or SIGINT, and with `with_stdin` at the end of stdin: the parent process
/// holds the other end of a pipe, which closes however the parent ends.
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

/// Waits for the end of stdin on a thread that is not joined when the process ends.
async fn end_of_stdin() {
    let (send, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let read = io::copy(&mut io::stdin().lock(), &mut io::sink());
        // Stdin closed or failed. The thread is not joined: the process is ending.
        drop((read, send));
    });
    drop(ended.await);
}
