//! The mediator's files in versions, swapped as the kubelet swaps a volume: a folder for each version,
//! and the link `..data`, which is renamed onto the next one.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use toolcrib_manifest::names;

use super::kind::{MCP, MCP_SESSION, REVOCABLE, TOOLS};
use crate::manifest::{Streaming, Transport, tool, write_files};

/// Deadline of a call, so that hung calls end often.
const CALL_MS: u64 = 2_000;

/// The folder of a mediator's files.
#[derive(Debug)]
pub struct Files {
    config: PathBuf,
    upstream: SocketAddr,
    has_tools: bool,
    number: u64,
}

/// Whether a version has the revocable tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocable {
    Given,
    Taken,
}

impl Files {
    pub fn new(config: PathBuf, upstream: SocketAddr, has_tools: bool) -> Result<Self> {
        fs::create_dir(&config)?;
        let mut files = Self {
            config,
            upstream,
            has_tools,
            number: 0,
        };
        files.swap(Revocable::Given)?;
        Ok(files)
    }

    /// The manifest digest of the present version.
    pub fn digest(&self) -> String {
        format!("version-{}", self.number)
    }

    /// Puts the next version in place: with other descriptions, other credentials and the other kind of
    /// streaming.
    pub fn swap(&mut self, revocable: Revocable) -> Result<()> {
        let before = fs::read_link(self.config.join("..data")).ok();
        self.number += 1;
        let folder = format!("..version_{}", self.number);
        self.write(&self.config.join(&folder), revocable)?;
        for name in names::FILES {
            let shown = self.config.join(name);
            if !shown.is_symlink() {
                symlink(Path::new("..data").join(name), shown)?;
            }
        }
        let next = self.config.join("..data_tmp");
        symlink(&folder, &next)?;
        fs::rename(next, self.config.join("..data"))?;
        match before {
            Some(before) => fs::remove_dir_all(self.config.join(before)).context("the old version"),
            None => Ok(()),
        }
    }

    fn write(&self, folder: &Path, revocable: Revocable) -> Result<()> {
        fs::create_dir(folder)?;
        let number = self.number;
        let is_in = |at: &usize| *at != REVOCABLE || revocable == Revocable::Given;
        let count = if self.has_tools { TOOLS } else { 0 };
        let tools: Vec<Value> = (0..count)
            .filter(is_in)
            .map(|at| {
                let transport = match at {
                    MCP => Transport::Mcp,
                    MCP_SESSION => Transport::McpSession,
                    _ => Transport::Http,
                };
                let mut tool = tool(at, self.upstream, transport);
                let description = tool["description"].as_str().unwrap_or_default();
                tool["description"] = format!("{description} Survey {number}.").into();
                let token = format!("pond-reader-{number}-2e81f7a90c");
                tool["execution"]["auth"]["token"] = token.into();
                tool
            })
            .collect();
        let tools = json!({
            "version": 1,
            "tools": tools,
            "policy": {"timeout_per_tool_ms": CALL_MS},
        });
        let streaming = match number % 2 {
            0 => Streaming::Live,
            _ => Streaming::Buffered,
        };
        let key = format!("sk-house-{number}-9b1c44e07d2f4a55");
        let members = json!({
            "streaming": streaming.word(),
            "native": false,
            "digest": {"manifest": self.digest(), "credentials": format!("credentials-{number}")},
        });
        write_files(folder, self.upstream, tools, &key, members)
    }
}
