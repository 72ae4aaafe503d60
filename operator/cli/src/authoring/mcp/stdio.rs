//! An MCP server that runs as a child process. Its stderr is that of this process.

use std::ffi::OsString;
use std::process::Stdio as Pipe;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use toolcrib_mcp::code::METHOD_NOT_FOUND;

use super::message::{MESSAGE, answers};

pub struct Stdio {
    /// The child process, which is killed on drop.
    _process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Stdio {
    pub fn start(command: &[OsString]) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("no program is named")?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the program has no pipes");
        };
        Ok(Self {
            _process: process,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub async fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        let line = message.to_string() + "\n";
        let written = self.stdin.write_all(line.as_bytes()).await;
        written.context("the program does not read what it is asked")
    }

    /// Returns the message that answers; requests of the program are refused meanwhile.
    pub async fn ask(&mut self, id: u64, request: &Value) -> anyhow::Result<Value> {
        self.write(request).await?;
        loop {
            let mut line = Vec::new();
            let limit = u64::try_from(MESSAGE)?;
            let mut bounded = (&mut self.stdout).take(limit);
            bounded.read_until(b'\n', &mut line).await?;
            ensure!(!line.is_empty(), "the program ended");
            ensure!(
                line.ends_with(b"\n") || line.len() < MESSAGE,
                "the program's answer is too long"
            );
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                continue;
            };
            if answers(&message, id) {
                return Ok(message);
            }
            if let (Some(asked), Some(_)) = (message.get("id"), message.get("method")) {
                let error = json!({"code": METHOD_NOT_FOUND, "message": "not offered here"});
                self.write(&json!({"jsonrpc": "2.0", "id": asked, "error": error}))
                    .await?;
            }
        }
    }
}
