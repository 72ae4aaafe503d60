//! Reaps orphans: processes of the program whose own parent has exited. Each keeps its process id
//! until a parent waits for it, and without free ids no process can start. In a pod this process is
//! PID 1 and gets orphans anyway; elsewhere it becomes a subreaper, so both cases behave alike.
//!
//! Invariant: the program itself is not reaped here, since its owner needs the exit status.

use std::convert::Infallible;
use std::{fs, future, io};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// Makes this process the parent of orphans.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Reaps orphans as long as it is polled.
pub async fn reap(program: Pid) -> Infallible {
    let Err(error) = reap_all_but(program).await;
    tracing::warn!(
        error = error.to_string(),
        "orphaned processes are no longer reaped"
    );
    future::pending().await
}

async fn reap_all_but(program: Pid) -> io::Result<Infallible> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        for orphan in children()?.into_iter().filter(|it| *it != program) {
            // Most of these processes are still running. Err: the process is gone already.
            waitpid(Some(orphan), WaitOptions::NOHANG).ok();
        }
        if ended.recv().await.is_none() {
            return Err(io::Error::other("the signal stream has ended"));
        }
    }
}

/// Returns the children of this thread. This thread is the first of the process: it starts the
/// program, and gets the orphans.
fn children() -> io::Result<Vec<Pid>> {
    let text = fs::read_to_string("/proc/thread-self/children")?;
    let ids = text.split_whitespace();
    Ok(ids
        .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect())
}
