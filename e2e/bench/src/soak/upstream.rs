//! The scripted model and the tool service, as a process that is killed and started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::findings::Findings;
use super::record::Ledger;
use crate::cases::TOOL;
use crate::process::Program;

pub struct Upstream {
    path: PathBuf,
    pub address: SocketAddr,
    /// Compares the calls of the tool service with the record.
    calls: Arc<Ledger>,
    findings: Arc<Findings>,
    running: Option<Program>,
}

impl Upstream {
    pub fn new(
        path: PathBuf,
        address: SocketAddr,
        calls: Arc<Ledger>,
        findings: Arc<Findings>,
    ) -> Self {
        Self {
            path,
            address,
            calls,
            findings,
            running: None,
        }
    }

    /// Starts the program on the same address as before; it serves when this returns.
    pub async fn start(&mut self) -> Result<()> {
        let (calls, findings) = (self.calls.clone(), self.findings.clone());
        let address = self.address.to_string();
        let arguments = ["--report", "--listen", &address];
        // Its errors are those of connections that clients closed.
        let mut program =
            Program::start_reading(&self.path, &arguments, Stdio::null(), move |out| {
                if let Err(error) = read(out, &calls) {
                    findings.add("service", format!("its report is unreadable: {error:#}"));
                }
            })?;
        program.ready(self.address, TOOL).await?;
        self.running = Some(program);
        Ok(())
    }

    /// Kills the program with SIGKILL; its report has been read when this returns.
    pub fn kill(&mut self) -> Result<()> {
        let running = self.running.take().context("the upstream does not run")?;
        running.kill()
    }
}

fn read(output: ChildStdout, calls: &Ledger) -> Result<()> {
    for line in BufReader::new(output).lines() {
        calls.called(&line?);
    }
    Ok(())
}
