//! The mediator as a child process: finds, starts, probes and stops it.

use std::{
    fs,
    io::{self, Read as _, Seek as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{Instant, timeout},
};

const PROGRAM: &str = "toolcrib-sidecar";
/// Limit on the start. It takes milliseconds; a machine that is busy compiling needs longer.
const START_DEADLINE: Duration = Duration::from_secs(15);
/// Interval between probes. It is short, since a developer waits for the start.
const PROBE_INTERVAL: Duration = Duration::from_millis(30);
/// Limit on the stop: longer than the mediator's own drain of running requests.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
/// Attempts to find a port: another process may take it before the mediator binds it.
const PORT_ATTEMPTS: u32 = 3;

pub struct Setup {
    pub program: PathBuf,
    pub config: PathBuf,
    /// File with the token of the link.
    pub link_token: PathBuf,
    pub history: PathBuf,
    /// Value of `{claw_id}` with `identity: Pod`.
    pub pod: String,
    /// File for the mediator's log lines.
    pub log: PathBuf,
    /// Sends the log lines to standard error instead.
    pub verbose: bool,
}

pub struct Mediator {
    child: Child,
    address: SocketAddr,
}

/// Finds the program: as given, beside this one, or on PATH.
pub fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_path_buf());
    }
    let here = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = here.with_file_name(PROGRAM);
    let on_path = std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join(PROGRAM))
        .find(|path| path.is_file());
    if beside.is_file() {
        Some(beside)
    } else {
        on_path
    }
    .with_context(|| {
        format!(
            "{PROGRAM} is neither beside {} nor on PATH: name it with --sidecar",
            here.display()
        )
    })
}

impl Mediator {
    /// Starts the mediator and waits until it is ready.
    pub async fn start(setup: &Setup) -> anyhow::Result<Self> {
        let mut last = None;
        for _ in 0..PORT_ATTEMPTS {
            match Self::attempt(setup).await {
                Ok(mediator) => return Ok(mediator),
                Err(Attempt::PortTaken(error)) => last = Some(error),
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
        Err(last.context("no port was tried")?)
    }

    async fn attempt(setup: &Setup) -> Result<Self, Attempt> {
        let (address, admin) = free_addresses().context("no free port on this machine")?;
        let mut child = spawn(setup, address, admin)?;
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if let Some(status) = child.try_wait().context("cannot watch the mediator")? {
                let error =
                    anyhow::anyhow!("the mediator ended with {status}: {}", tail(&setup.log));
                return Err(match TcpListener::bind(address) {
                    Ok(_) => Attempt::Failed(error),
                    Err(_) => Attempt::PortTaken(error),
                });
            }
            let why = match probe(&setup.program, admin).await? {
                Readiness::Ready => return Ok(Self { child, address }),
                Readiness::NotYet(why) => why,
            };
            if Instant::now() >= deadline {
                let waited = START_DEADLINE.as_secs();
                child.kill().await.context("cannot stop the mediator")?;
                let error = anyhow::anyhow!(
                    "the mediator is not ready after {waited} s: {why}\n{}",
                    tail(&setup.log)
                );
                return Err(Attempt::Failed(error));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the mediator, which drains its requests and flushes the record.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        if self
            .child
            .try_wait()
            .context("cannot watch the mediator")?
            .is_some()
        {
            bail!("the mediator ended before the program did: look at its log with --verbose");
        }
        terminate(&self.child)?;
        if let Ok(ended) = timeout(STOP_DEADLINE, self.child.wait()).await {
            ended.context("cannot wait for the mediator")?;
            return Ok(());
        }
        eprintln!(
            "warning: the mediator did not stop in {} s and is killed",
            STOP_DEADLINE.as_secs()
        );
        self.child.kill().await.context("cannot stop the mediator")
    }
}

enum Attempt {
    PortTaken(anyhow::Error),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Attempt {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Sends SIGTERM; a child that has ended already is no error.
pub fn terminate(child: &Child) -> anyhow::Result<()> {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    match pid.map_or(Ok(()), |pid| kill_process(pid, Signal::TERM)) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("cannot signal a child"),
    }
}

fn spawn(setup: &Setup, address: SocketAddr, admin: SocketAddr) -> anyhow::Result<Child> {
    let mut command = Command::new(&setup.program);
    command
        // Every setting is a flag; this shell's TOOLCRIB_*, proxies and keys must not count.
        .env_clear()
        .arg("--config-dir")
        .arg(&setup.config)
        .arg("--history-dir")
        .arg(&setup.history)
        .arg("--link-token-file")
        .arg(&setup.link_token)
        .args([
            "--listen",
            &address.to_string(),
            "--admin-listen",
            &admin.to_string(),
        ])
        .args(["--pod", &setup.pod, "--allow-local", "--exit-with-stdin"])
        // The pipe closes however this process ends, also by SIGKILL, and the mediator stops.
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        // The mediator has its own process group: the terminal's SIGINT is for the program, and
        // the mediator runs until the program has ended.
        .process_group(0);
    if setup.verbose {
        command.stdout(io::stderr()).stderr(io::stderr());
    } else {
        let log = fs::File::create(&setup.log).context("cannot write the mediator's log")?;
        command
            .stdout(log.try_clone().context("cannot write the mediator's log")?)
            .stderr(log);
    }
    command
        .spawn()
        .with_context(|| format!("cannot start {}", setup.program.display()))
}

/// Returns two different addresses: both listeners stay open until both ports are chosen.
fn free_addresses() -> io::Result<(SocketAddr, SocketAddr)> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let second = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((first.local_addr()?, second.local_addr()?))
}

enum Readiness {
    Ready,
    NotYet(String),
}

/// Runs the mediator's own probe, as the kubelet does.
async fn probe(program: &Path, admin: SocketAddr) -> anyhow::Result<Readiness> {
    let output = Command::new(program)
        .env_clear()
        .args(["probe", "--ready", "--admin-listen", &admin.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {}", program.display()))?;
    if output.status.success() {
        return Ok(Readiness::Ready);
    }
    Ok(Readiness::NotYet(
        String::from_utf8_lossy(&output.stderr).trim().to_string(),
    ))
}

/// Returns the end of the log, for the text of an error.
fn tail(log: &Path) -> String {
    const TAIL: u64 = 2048;
    let read = || -> io::Result<String> {
        let mut file = fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).trim().to_string();
        Ok(match text.is_empty() {
            true => format!("it wrote nothing: name {PROGRAM} with --sidecar"),
            false => text,
        })
    };
    read().unwrap_or_else(|error| format!("(no log: {error})"))
}
