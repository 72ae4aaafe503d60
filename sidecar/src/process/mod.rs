//! What the process does to itself before it serves: no dumps, and one signal that ends it.

pub mod args;
pub mod log;
pub mod probe;

use std::io;

use rustix::process::DumpableBehavior;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Nobody of the same UID reads our memory or environment through `/proc`, and no core
/// dump holds a credential.
pub fn make_undumpable() -> std::io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
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
