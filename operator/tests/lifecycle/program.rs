//! Processes that a test starts, signals, and waits for.
//!
//! Invariant: no process outlives its value, even if the test fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

pub struct Program {
    pub name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts the command; its output goes to `name.log` in the folder.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a pid")?, signal)
            .with_context(|| format!("signal {}", self.name))
    }

    /// Resident memory, in KiB.
    pub fn memory_kib(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.context("no memory in /proc")?.parse()?)
    }

    /// The exit status; `None` while the process runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until the process has ended by itself.
    pub async fn end(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        eventually(&what, deadline, async || self.ended()).await
    }

    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.end(Duration::from_secs(30)).await
    }

    /// Kills the process with SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn has_said(&self, words: &str) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|text| text.contains(words))
    }

    /// The end of the process's output.
    pub fn last_output(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(15);
        lines[from..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("cannot wait for {} to end: {error}", self.name);
        }
    }
}
