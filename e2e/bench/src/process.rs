//! Runs a program under measurement: starts it, waits for it, reads its `/proc`, kills it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of waiting for a program to serve; generous for a loaded machine.
const READY: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
}

impl Program {
    /// Starts the program. Its output is read to the end and dropped, as by a node's log
    /// collector.
    pub fn start<A: AsRef<OsStr>>(path: &Path, arguments: &[A]) -> Result<Self> {
        let mut child = Command::new(path)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", path.display()))?;
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || drained(out));
        }
        if let Some(err) = child.stderr.take() {
            std::thread::spawn(move || drained(err));
        }
        Ok(Self {
            child,
            name: path.display().to_string(),
        })
    }

    /// Waits until `GET path` at this address is answered 200.
    pub async fn ready(&mut self, address: SocketAddr, path: &str) -> Result<()> {
        let deadline = Instant::now() + READY;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}", self.name);
            }
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
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
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

    /// Returns the resident memory in KiB: the current one, and the peak.
    pub fn memory(&self) -> Result<(u64, u64)> {
        memory(&self.child.id().to_string())
    }
}

/// Returns the resident memory of this process, as [`Program::memory`] does.
pub fn own_memory() -> Result<(u64, u64)> {
    memory("self")
}

pub(crate) fn memory(process: &str) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))
            .and_then(|number| number.trim().parse().ok())
            .with_context(|| format!("no {name} in /proc"))
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the process has ended already.
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

/// Returns addresses without a listener. All are bound until the last one is chosen, so they
/// differ.
pub fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let listeners: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect::<io::Result<_>>()?;
    let addresses: Vec<SocketAddr> = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<io::Result<_>>()?;
    addresses.try_into().ok().context("as many as were asked")
}
