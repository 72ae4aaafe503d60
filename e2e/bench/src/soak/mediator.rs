//! A mediator under test: its process, its files, its record, and the state that shows leaks.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use toolcrib_record::{Finding, Head, Verifier};

use super::files::{Files, Revocable};
use super::findings::Findings;
use super::record::Ledger;
use crate::process::{Program, cpu, get, kib};

/// Timeout of waiting for swapped files to be in force; generous for a loaded machine.
const IN_FORCE: Duration = Duration::from_secs(20);
/// Pause between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(10);
/// Looks at a mediator before the load.
const FIRST_LOOKS: usize = 20;

pub struct Mediator {
    pub probe: Probe,
    pub address: SocketAddr,
    pub ledger: Arc<Ledger>,
    history: PathBuf,
    files: Files,
    program: Program,
}

/// Reads the state of a mediator's process.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub name: &'static str,
    process: u32,
    admin: SocketAddr,
}

/// What must be the same before the load and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdleState {
    pub descriptors: usize,
    pub threads: usize,
    /// Tasks of the runtime, of which one serves the question.
    pub tasks: u64,
    pub connections: u64,
    pub requests: u64,
}

/// Memory of the process, in KiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub resident: u64,
    /// The part that belongs to no file: heap and stacks.
    pub anonymous: u64,
    pub peak: u64,
}

impl Mediator {
    /// Starts a mediator in this folder.
    pub async fn start(
        name: &'static str,
        program: &Path,
        folder: &Path,
        upstream: SocketAddr,
        has_tools: bool,
        ledger: Arc<Ledger>,
    ) -> Result<Self> {
        fs::create_dir(folder)?;
        let (config, history) = (folder.join("config"), folder.join("history"));
        let files = Files::new(config.clone(), upstream, has_tools)?;
        let (address, admin) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let arguments = [
            "--config-dir".into(),
            config.display().to_string(),
            "--history-dir".into(),
            history.display().to_string(),
            "--listen".into(),
            address.to_string(),
            "--admin-listen".into(),
            admin.to_string(),
            "--pod".into(),
            "otter-0".into(),
            "--allow-local".into(),
            "--exit-with-stdin".into(),
        ];
        let log = Stdio::from(File::create(folder.join("log"))?);
        let reader = ledger.clone();
        let program =
            Program::start_reading(program, &arguments, log, move |out| reader.read(out))?;
        let probe = Probe {
            name,
            process: program.id(),
            admin,
        };
        let mut mediator = Self {
            probe,
            address,
            ledger,
            history,
            files,
            program,
        };
        mediator.program.ready(admin, "/readyz").await?;
        mediator.until_in_force().await?;
        Ok(mediator)
    }

    /// Swaps the files, and waits until they are in force. Returns the moment of the swap.
    pub async fn swap(&mut self, revocable: Revocable) -> Result<Instant> {
        self.files.swap(revocable)?;
        let swapped = Instant::now();
        self.until_in_force().await?;
        Ok(swapped)
    }

    /// Swaps the files, and does not wait.
    pub fn swap_only(&mut self, revocable: Revocable) -> Result<Instant> {
        self.files.swap(revocable)?;
        Ok(Instant::now())
    }

    async fn until_in_force(&mut self) -> Result<()> {
        let (wanted, deadline) = (self.files.digest(), Instant::now() + IN_FORCE);
        loop {
            self.program.check()?;
            let ready: Value = serde_json::from_str(&get(self.probe.admin, "/readyz").await?)?;
            ensure!(
                ready["withheld"] == serde_json::json!([]),
                "tools are withheld: {ready}"
            );
            if ready["digest"]["manifest"] == *wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{}: {wanted} is not in force after {IN_FORCE:?}: {ready}",
                    self.probe.name
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the process in order, and verifies its record on disk up to the last line on standard
    /// output.
    pub async fn end(self, findings: &Findings) -> Result<super::record::Counts> {
        let status = self.program.end().await?;
        findings.check(status.success(), "end", || {
            format!("{}: {status}", self.probe.name)
        });
        let (counts, head) = self.ledger.finish();
        verify(&self.history, head.as_ref(), findings)?;
        Ok(counts)
    }
}

impl Probe {
    /// Returns the memory; an error if the process has ended.
    pub fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process))?;
        Ok(Memory {
            resident: kib(&status, "VmRSS:")?,
            anonymous: kib(&status, "RssAnon:")?,
            peak: kib(&status, "VmHWM:")?,
        })
    }

    pub fn cpu(&self) -> Result<Duration> {
        Ok(Duration::from_nanos(cpu(self.process)?))
    }

    pub async fn idle_state(&self) -> Result<IdleState> {
        let metrics = self.metrics().await?;
        let entries = |folder: &str| -> Result<usize> {
            let path = format!("/proc/{}/{folder}", self.process);
            Ok(fs::read_dir(path)?.count())
        };
        Ok(IdleState {
            descriptors: entries("fd")?,
            threads: entries("task")?,
            tasks: metrics.sum("toolcrib_mediator_tasks")?,
            connections: metrics.sum("toolcrib_mediator_connections")?,
            requests: metrics.sum("toolcrib_mediator_requests_running")?,
        })
    }

    /// Returns the state before any load: the least of several looks, since each look is a connection of
    /// its own, which may still be open at the next one.
    pub async fn first_state(&self) -> Result<IdleState> {
        let mut least = self.idle_state().await?;
        for _ in 0..FIRST_LOOKS {
            tokio::time::sleep(LOOK).await;
            let now = self.idle_state().await?;
            least = IdleState {
                descriptors: least.descriptors.min(now.descriptors),
                threads: least.threads.min(now.threads),
                tasks: least.tasks.min(now.tasks),
                connections: least.connections.min(now.connections),
                requests: least.requests.min(now.requests),
            };
        }
        Ok(least)
    }

    /// Waits until nothing is left of the load, and returns the last state: `before` at best.
    pub async fn until_idle(&self, before: &IdleState, patience: Duration) -> Result<IdleState> {
        let deadline = Instant::now() + patience;
        loop {
            let now = self.idle_state().await?;
            if now.is_within(before) || Instant::now() > deadline {
                return Ok(now);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics(get(self.admin, "/metrics").await?))
    }
}

impl IdleState {
    /// Whether nothing is left that was not there before.
    pub fn is_within(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.tasks <= before.tasks
            && self.connections <= before.connections
            && self.requests <= before.requests
    }
}

/// The text of `/metrics`.
pub struct Metrics(String);

impl Metrics {
    /// The sum of all series of a name.
    pub fn sum(&self, name: &str) -> Result<u64> {
        let mut values = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_name = rest.starts_with('{') || rest.starts_with(' ');
            let value = rest.rsplit(' ').next().filter(|_| is_name)?;
            Some(value.parse::<f64>().map(|value| value as u64))
        });
        let first = values
            .next()
            .with_context(|| format!("no metric {name}"))??;
        values.try_fold(first, |sum, value| Ok(sum + value?))
    }
}

/// Verifies the chain in the files of the record. Rotation may have removed its beginning.
fn verify(history: &Path, head: Option<&Head>, findings: &Findings) -> Result<()> {
    let mut verifier = Verifier::default();
    for name in ["history.jsonl.1", "history.jsonl"] {
        let path = history.join(name);
        if !path.exists() {
            continue;
        }
        verifier.source(name);
        let text = fs::read(path)?;
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            verifier.push(line)?;
        }
    }
    let heads: Vec<Head> = head.cloned().into_iter().collect();
    let (chains, sources) = verifier.finish(&heads);
    findings.check(chains.len() == 1, "record (disk)", || {
        format!("{} chains", chains.len())
    });
    for alarm in chains
        .iter()
        .flat_map(|it| &it.findings)
        .filter(|it| Finding::is_alarm(it))
    {
        findings.add("record (disk)", alarm.to_string());
    }
    for source in sources {
        let is_whole =
            source.unchained == 0 && source.broken == 0 && source.out_of_order.is_empty();
        findings.check(is_whole, "record (disk)", || format!("{source:?}"));
    }
    Ok(())
}
