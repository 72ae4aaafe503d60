//! Runs a program under measurement: starts it, waits for it, reads its `/proc`, kills it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of waiting for a program to serve; generous for a loaded machine.
const READY: Duration = Duration::from_secs(20);

/// Timeout of an orderly end; longer than the mediator's own bounds.
const END: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    /// The reader of standard output. It ends with the program.
    reader: Option<JoinHandle<()>>,
    counted: CountedProcesses,
}

/// The processes whose CPU time and memory are a program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedProcesses {
    /// The program's process alone: a wrapped server is not the wrapper's cost.
    Process,
    /// The processes that it starts too, such as the workers of a server.
    Descendants,
}

impl Program {
    /// Starts the program. Its output is read to the end and dropped, as by a node's log
    /// collector.
    pub fn start<A: AsRef<OsStr>>(path: &Path, arguments: &[A]) -> Result<Self> {
        Self::start_drained(path, arguments, &[])
    }

    /// Starts a program that may start others, which are part of it, with these variables.
    pub(crate) fn start_with_descendants(
        path: &Path,
        arguments: &[String],
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let mut program = Self::start_drained(path, arguments, variables)?;
        program.counted = CountedProcesses::Descendants;
        Ok(program)
    }

    /// Starts the program. `read` gets its standard output on a thread; `log` gets its errors. Its
    /// standard input stays open until [`Self::end`].
    pub fn start_reading<A: AsRef<OsStr>>(
        path: &Path,
        arguments: &[A],
        log: Stdio,
        read: impl FnOnce(ChildStdout) + Send + 'static,
    ) -> Result<Self> {
        Self::spawn(path, arguments, &[], log, read)
    }

    fn start_drained<A: AsRef<OsStr>>(
        path: &Path,
        arguments: &[A],
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let mut program = Self::spawn(path, arguments, variables, Stdio::piped(), drained)?;
        if let Some(err) = program.child.stderr.take() {
            std::thread::spawn(move || drained(err));
        }
        Ok(program)
    }

    fn spawn<A: AsRef<OsStr>>(
        path: &Path,
        arguments: &[A],
        variables: &[(&str, String)],
        log: Stdio,
        read: impl FnOnce(ChildStdout) + Send + 'static,
    ) -> Result<Self> {
        let mut child = Command::new(path)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", path.display()))?;
        let out = child.stdout.take();
        Ok(Self {
            child,
            name: path.display().to_string(),
            reader: out.map(|out| std::thread::spawn(move || read(out))),
            counted: CountedProcesses::Process,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the program has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Closes standard input, waits until the program ends, and until its output is read.
    pub async fn end(mut self) -> Result<ExitStatus> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("{} does not end", self.name);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        self.join_reader()?;
        Ok(status)
    }

    /// Kills the program, and waits until its output is read.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.join_reader()
    }

    fn join_reader(&mut self) -> Result<()> {
        match self.reader.take().map(JoinHandle::join) {
            Some(Err(_)) => bail!("the reader of {} panicked", self.name),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Waits until `GET path` at this address is answered 200.
    pub async fn ready(&mut self, address: SocketAddr, path: &str) -> Result<()> {
        self.ready_within(address, path, READY).await
    }

    pub(crate) async fn ready_within(
        &mut self,
        address: SocketAddr,
        path: &str,
        patience: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            self.check()?;
            if answers(address, path).await {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{} does not serve on {address}", self.name);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the CPU time of all threads, in nanoseconds, from `schedstat`, which is finer than
    /// the ticks of `/proc/PID/stat`.
    pub fn cpu(&self) -> Result<u64> {
        self.processes()?.into_iter().map(cpu).sum()
    }

    /// Returns the resident memory in KiB: the current one, and the peak.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for process in self.processes()? {
            let (now, most) = memory(&process.to_string())?;
            sum = (sum.0 + now, sum.1 + most);
        }
        Ok(sum)
    }

    /// Returns the resident memory in KiB that the process shares with no other: no pages of its
    /// program's file, of which the kernel maps more or fewer with the state of its cache.
    pub fn unshared_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        kib(&status, "RssAnon:")
    }

    fn processes(&self) -> Result<Vec<u32>> {
        match self.counted {
            CountedProcesses::Process => Ok(vec![self.child.id()]),
            CountedProcesses::Descendants => with_descendants(self.child.id()),
        }
    }
}

/// Returns the process and all that it, or one of them, has started and that still run.
fn with_descendants(process: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(child) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let stat = match fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat,
            // The process has ended since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        // A program's name is in parentheses and may contain any character.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(1));
        parents.push((child, parent.context("stat has a parent")?.parse::<u32>()?));
    }
    let mut found = vec![process];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        found.extend(children.map(|(child, _)| *child));
        at += 1;
    }
    Ok(found)
}

/// Returns the resident memory of this process, as [`Program::memory`] does.
pub fn own_memory() -> Result<(u64, u64)> {
    memory("self")
}

/// Returns the CPU time of a process, as [`Program::cpu`] does.
pub(crate) fn cpu(process: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            // The thread has ended since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context("this kernel has no schedstat"),
        };
        let nanos = text.split(' ').next().unwrap_or_default();
        sum += nanos.parse::<u64>().context("schedstat is numbers")?;
    }
    Ok(sum)
}

pub(crate) fn memory(process: &str) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok((kib(&status, "VmRSS:")?, kib(&status, "VmHWM:")?))
}

/// Returns a field of `/proc/PID/status`, in KiB.
pub(crate) fn kib(status: &str, field: &str) -> Result<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse().ok())
        .with_context(|| format!("no {field} in /proc"))
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors mean that the process has ended already.
        let processes = self.processes().unwrap_or_default();
        for process in processes.into_iter().filter(|it| *it != self.child.id()) {
            if let Some(process) = rustix::process::Pid::from_raw(process.cast_signed()) {
                rustix::process::kill_process(process, rustix::process::Signal::KILL).ok();
            }
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn drained(mut from: impl io::Read) {
    // An error means that the program was killed, as every program here is.
    drop(io::copy(&mut from, &mut io::sink()));
}

async fn answers(address: SocketAddr, path: &str) -> bool {
    get(address, path).await.is_ok()
}

/// Returns the body of the answer to `GET path`, which must be 200.
pub async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: bench\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(READY, exchange).await??;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => bail!("{path} is not answered 200"),
    }
}
