//! The scripted MCP server of `tests/authoring/discover`, over HTTP in its own process.

use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct ScriptedServer {
    process: Child,
    pub port: u16,
}

impl ScriptedServer {
    /// Starts the server on a free port of this address, with the tools of the folder's
    /// `tools.json`.
    pub fn start(files: &Path, address: IpAddr) -> Self {
        let mut process = Command::new("python3")
            .arg(program())
            .args(["http", "tools.json", &address.to_string()])
            .current_dir(files)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut port).unwrap();
        let port = port.trim().parse().unwrap();
        Self { process, port }
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/authoring/discover/server.py")
}
