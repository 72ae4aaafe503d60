//! An MCP server that runs as a child process. Its stderr is that of this process.

use std::ffi::OsString;
use std::process::Stdio as Pipe;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use toolcrib_mcp::client::{RpcResult, ServerMessage};

use super::MESSAGE;

/// Limit on waiting for a program that has closed its output.
const FAREWELL: Duration = Duration::from_secs(1);

pub struct Stdio {
    /// The child process, which is killed on drop.
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Stdio {
    pub fn start(command: &[OsString]) -> anyhow::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .context("no program is named: write it after `--`")?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "{} cannot be started: check its path, and that it may be executed",
                    program.display()
                )
            })?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the program has no pipes");
        };
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub async fn write(&mut self, message: &str) -> anyhow::Result<()> {
        let line = message.to_owned() + "\n";
        let written = self.stdin.write_all(line.as_bytes()).await;
        written
            .context("the program does not read its standard input: is it an MCP server for stdio?")
    }

    /// Returns the answer to a request; requests of the program are refused meanwhile.
    pub async fn ask(&mut self, id: u64, request: &str) -> anyhow::Result<RpcResult> {
        self.write(request).await?;
        loop {
            let mut line = Vec::new();
            let limit = u64::try_from(MESSAGE)?;
            let mut bounded = (&mut self.stdout).take(limit);
            bounded.read_until(b'\n', &mut line).await?;
            if line.is_empty() {
                // A program may close its output and run on; it is killed on drop.
                let ended = tokio::time::timeout(FAREWELL, self.process.wait()).await;
                match ended {
                    Ok(status) => bail!(
                        "the program ended with {}: start it alone to see why",
                        status?
                    ),
                    Err(_) => bail!(
                        "the program closed its standard output: is it an MCP server for stdio?"
                    ),
                }
            }
            ensure!(
                line.ends_with(b"\n") || line.len() < MESSAGE,
                "the program's answer is longer than {MESSAGE} bytes: write a descriptor with the \
                 tools that agents need"
            );
            // Some programs write lines that are not messages; they are skipped.
            let message = std::str::from_utf8(&line).ok();
            match message.and_then(|text| ServerMessage::read(text, id)) {
                Some(ServerMessage::Response(answer)) => return Ok(answer),
                Some(ServerMessage::Request(request)) => self.write(&request.reply()).await?,
                Some(ServerMessage::OtherResponse(_) | ServerMessage::Notification) | None => {}
            }
        }
    }
}
