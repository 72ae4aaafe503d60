//! The child process. It cannot outlive this process, and it is ended together with its process
//! group.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// First argument of this program when it has to become the child. It then asks the kernel for a
/// signal on its parent's death, before it executes the other program. Doing that between fork and
/// exec would need `unsafe`.
const BECOME: &str = "--become-child-of";
/// Grace period after stdin is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    /// The child's own process group, so that its descendants end with it.
    group: Pid,
}

#[derive(Debug)]
pub struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// Starts the child. Must be called on a thread that lives as long as this process: for the kernel,
/// the parent is the thread that forked.
pub fn spawn(command: &[OsString]) -> io::Result<(Child, Pipes)> {
    let mut process = Command::new("/proc/self/exe")
        .arg(BECOME)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = process
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        .ok_or_else(|| io::Error::other("the child has no process id"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    ) else {
        return Err(io::Error::other("the child has no pipes"));
    };
    let pipes = Pipes {
        stdin,
        stdout,
        stderr,
    };
    Ok((Child { process, group }, pipes))
}

impl Child {
    pub fn id(&self) -> Pid {
        self.group
    }

    pub async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Ends the child as MCP specifies. The caller has closed its stdin; if the child does not
    /// exit, it gets SIGTERM, then SIGKILL.
    pub async fn end(&mut self) {
        if tokio::time::timeout(GRACE, self.exited()).await.is_err() {
            self.signal(Signal::TERM);
            // Err: the child ignored both the end of stdin and SIGTERM.
            tokio::time::timeout(GRACE, self.exited()).await.ok();
        }
        self.kill().await;
    }

    /// Kills the child and its descendants. The kernel does not reuse a group's id while the group
    /// has members, nor immediately after.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Err(error) = self.exited().await {
            tracing::error!(error = error.to_string(), "waiting for the program failed");
        }
    }

    fn signal(&self, signal: Signal) {
        match rustix::process::kill_process_group(self.group, signal) {
            // The group has no members left.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::error!(error = error.to_string(), "signalling the program failed");
            }
        }
    }
}

/// Becomes the child if the first argument is `BECOME`, and then returns only with an error.
/// Returns `None` for other arguments.
pub fn become_child(
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<anyhow::Result<Infallible>> {
    (arguments.next()? == BECOME).then(|| run(arguments))
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Infallible> {
    let parent = arguments.next();
    let parent = parent.as_deref().and_then(OsStr::to_str);
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot follow the parent")?;
    // The parent may have died before the signal was set.
    let now = rustix::process::getppid().map_or(0, |it| it.as_raw_nonzero().get());
    anyhow::ensure!(
        parent == Some(now.to_string().as_str()),
        "the parent has ended"
    );
    let program = arguments.next().context("no program is named")?;
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}
