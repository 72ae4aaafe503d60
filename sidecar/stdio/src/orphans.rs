//! Processes that the program left behind, whose own parent has ended. Somebody has to wait for
//! them: each keeps its number until then, and once there is none left nothing can be started.
//! In a pod that is this process, its first; elsewhere it takes them on, so that all is the same.
//!
//! Invariant: the program itself is not waited for here, since it has an owner who asks how it
//! ended.

use std::convert::Infallible;
use std::{fs, future, io};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// From now on they are this process's.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for them as long as it is polled.
pub async fn bury(program: Pid) -> Infallible {
    let Err(error) = bury_all_but(program).await;
    tracing::warn!(
        error = error.to_string(),
        "nobody waits for what the program leaves behind"
    );
    future::pending().await
}

async fn bury_all_but(program: Pid) -> io::Result<Infallible> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        for orphan in children()?.into_iter().filter(|it| *it != program) {
            // Most of them are running. Err: it is not there any more.
            waitpid(Some(orphan), WaitOptions::NOHANG).ok();
        }
        if ended.recv().await.is_none() {
            return Err(io::Error::other("signals do not come any more"));
        }
    }
}

/// Of this thread, which is the process's first: it starts the program, and is given orphans.
fn children() -> io::Result<Vec<Pid>> {
    let text = fs::read_to_string("/proc/thread-self/children")?;
    let ids = text.split_whitespace();
    Ok(ids
        .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect())
}
