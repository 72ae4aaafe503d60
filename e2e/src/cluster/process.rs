//! Runs processes to their end, and identifies running ones.
//!
//! Invariant: a process is signalled only if its start time and boot match the recorded ones, so a
//! process that reuses the pid is left alone.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// Polling interval for a condition that no event announces.
const POLL: Duration = Duration::from_millis(50);

/// The identity of a process, which differs from that of a later process with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    /// Clock ticks since boot.
    start: u64,
    boot: String,
}

impl Identity {
    /// Returns `None` if no such process runs.
    pub fn of(pid: i32) -> Result<Option<Identity>> {
        let Some(start) = start_time(pid)? else {
            return Ok(None);
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .context("read /proc/sys/kernel/random/boot_id")?;
        Ok(Some(Identity {
            pid,
            start,
            boot: boot.trim().into(),
        }))
    }

    pub fn alive(&self) -> Result<bool> {
        Ok(Identity::of(self.pid)?.as_ref() == Some(self))
    }

    /// Sends SIGKILL, then waits until the process is gone.
    pub fn kill(&self, deadline: Duration) -> Result<()> {
        if !self.alive()? {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).context("a recorded pid is not positive")?;
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("kill {}", self.pid)),
        }
        poll(
            deadline,
            || format!("process {} did not end after SIGKILL", self.pid),
            || Ok((!self.alive()?).then_some(())),
        )
    }
}

/// Returns `None` for a process that is gone or a zombie: none of its code runs any more.
fn start_time(pid: i32) -> Result<Option<u64>> {
    let path = format!("/proc/{pid}/stat");
    let stat = match fs::read_to_string(&path) {
        Ok(stat) => stat,
        Err(error) if gone(&error) => return Ok(None),
        Err(error) => return Err(error).context(path),
    };
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, rest) = stat
        .rsplit_once(") ")
        .with_context(|| format!("{path}: no name"))?;
    let fields: Vec<&str> = rest.split(' ').collect();
    match (fields.first(), fields.get(19)) {
        (Some(&"Z" | &"X"), _) => Ok(None),
        (Some(_), Some(start)) => Ok(Some(start.parse().with_context(|| path)?)),
        _ => bail!("{path}: too few fields"),
    }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Returns the only child of a process, once it has one.
pub fn only_child(pid: i32) -> Result<Option<i32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    match children.split_whitespace().collect::<Vec<_>>()[..] {
        [] => Ok(None),
        [child] => Ok(Some(child.parse().with_context(|| path)?)),
        _ => bail!("process {pid} has more than one child"),
    }
}

/// Polls until `ask` returns a value, for conditions that no event announces.
pub fn poll<T>(
    deadline: Duration,
    missed: impl Fn() -> String,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() >= end {
            bail!("{} (waited {} s)", missed(), deadline.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// Runs the command to its end. A failure is an error that quotes its output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim(),
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the command to its end, successful or not.
pub fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", shown(command)))
}

/// Formats a command as a person would type it, without its environment.
pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// Runs `ip` with its arguments in one string: none of them contains a space.
pub fn ip(arguments: &str) -> Result<()> {
    run(Command::new("ip").args(arguments.split(' '))).map(drop)
}

/// Writes a file atomically.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content).with_context(|| format!("write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_not_the_same_process() {
        let own = i32::try_from(std::process::id()).expect("pids fit");
        let identity = Identity::of(own).expect("readable").expect("we run");
        assert!(identity.alive().expect("readable"));
        let reused = Identity {
            start: identity.start + 1,
            ..identity
        };
        assert!(!reused.alive().expect("readable"));
        reused.kill(Duration::from_secs(1)).expect("kills nobody");
    }

    #[test]
    fn an_ended_process_is_not_alive_even_unreaped() {
        let mut child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep starts");
        let pid = i32::try_from(child.id()).expect("pids fit");
        let identity = Identity::of(pid).expect("readable").expect("it runs");
        identity.kill(Duration::from_secs(5)).expect("ends");
        assert!(!identity.alive().expect("readable"));
        child.wait().expect("reaped");
    }
}
