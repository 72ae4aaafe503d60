//! The process: how it is started, so that it cannot outlive this one, and how it is ended
//! with all that it started.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// This program's first argument where it is to become the child. What the kernel does to a
/// child when its parent dies is set by the child itself, before it runs another program;
/// doing that between fork and exec would take `unsafe`.
const BECOME: &str = "--become-child-of";
/// For a child whose stdin was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    /// Its own and of its number, so that what it started ends with it.
    group: Pid,
}

#[derive(Debug)]
pub struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// Must be called on a thread that lives as long as this process: for the kernel, a child's
/// parent is the thread that made it.
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
        .ok_or_else(|| io::Error::other("it has no process id"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (
        process.stdin.take(),
        process.stdout.take(),
        process.stderr.take(),
    ) else {
        return Err(io::Error::other("it has no pipes"));
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

    /// Ends it as MCP says, its stdin being closed: it may end by itself, is then asked to,
    /// and is then made to.
    pub async fn end(&mut self) {
        if tokio::time::timeout(GRACE, self.exited()).await.is_err() {
            self.signal(Signal::TERM);
            // Err: it minds neither.
            tokio::time::timeout(GRACE, self.exited()).await.ok();
        }
        self.kill().await;
    }

    /// Ends it and what it left behind. Its number stays the group's as long as anybody is in it,
    /// and one that was given up this moment is not given out anew at once.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Err(error) = self.exited().await {
            tracing::error!(
                error = error.to_string(),
                "the program cannot be waited for"
            );
        }
    }

    fn signal(&self, signal: Signal) {
        match rustix::process::kill_process_group(self.group, signal) {
            // Nobody is left of it.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::error!(error = error.to_string(), "the program cannot be signalled");
            }
        }
    }
}

/// Where the arguments say so, becomes the child and does not return but with the reason why
/// it could not.
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
    // It may have died before that.
    let now = rustix::process::getppid().map_or(0, |it| it.as_raw_nonzero().get());
    anyhow::ensure!(
        parent == Some(now.to_string().as_str()),
        "the parent has ended"
    );
    let program = arguments.next().context("no program is named")?;
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}
