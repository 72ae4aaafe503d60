//! Measures the cost of the mediator, the wrapper and the compiler, each beside a reference in
//! the same run.
//!
//! Absolute figures depend on the machine and its load. So each cost is a ratio to a named
//! reference that did the same work seconds before or after. For the mediator and the wrapper
//! that is `bare-proxy`, a reverse proxy on bare hyper; for the mediator as an MCP client it is
//! `bare-mcp`, the protocol's own SDK; for the compiler it is serde_json reading and writing the
//! same bytes; for reading the record it is jq.
//!
//! - [`machine`]: the machine of the figures;
//! - [`process`]: programs under measurement: CPU time, memory, readiness;
//! - [`manifest`]: the mediator's four files;
//! - [`gateway`]: gateways of others, and their settings;
//! - [`load`]: the load generator, closed loop and at a fixed rate;
//! - [`pairs`]: alternating slices of a reference and the measured program;
//! - [`cases`]: the measurements of the mediator, of gateways, and of the wrapper of MCP servers;
//! - [`audit`]: the measurements of reading a large record;
//! - [`compiler`]: the measurements of the compiler;
//! - [`report`]: rows, as a table and as JSON;
//! - [`soak`]: mediators under mixed load and faults for an hour: no reference, but checks.
//!
//! The targets are about CPU time per request: it is stable where latency and throughput are not.
//! No measurement asserts a figure; a missed target is a row that says so. Only [`soak`] fails.

pub mod audit;
pub mod cases;
pub mod compiler;
pub mod gateway;
pub mod load;
pub mod machine;
pub mod manifest;
mod pairs;
pub mod process;
pub mod report;
pub mod soak;

use std::path::PathBuf;

/// The programs, cases and amounts of work of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Folder of bare-proxy and bench-servers.
    pub programs: PathBuf,
    pub mediator: PathBuf,
    /// Path of toolcrib-mcp-stdio.
    pub wrapper: PathBuf,
    /// Path of kubectl-toolcrib.
    pub command_line: PathBuf,
    /// The reference for calls over MCP.
    pub bare_mcp: PathBuf,
    /// Number of pairs of slices per case: one slice of the reference, one of the measured program.
    pub pairs: usize,
    /// Number of requests in one slice of the cheapest case.
    pub requests: usize,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// Gateways of others for [`cases::field`].
    pub gateways: Vec<gateway::InstalledGateway>,
}

impl Plan {
    /// A plan for real figures, which takes minutes. All programs are in one folder by default.
    pub fn full(programs: PathBuf) -> Self {
        Self {
            mediator: programs.join("toolcrib-sidecar"),
            wrapper: programs.join("toolcrib-mcp-stdio"),
            command_line: programs.join("kubectl-toolcrib"),
            bare_mcp: programs.join("bare-mcp"),
            programs,
            pairs: 12,
            requests: 1200,
            only: None,
            gateways: Vec::new(),
        }
    }

    /// A plan that shows that everything runs; its figures mean nothing.
    pub fn short(programs: PathBuf) -> Self {
        Self {
            pairs: 1,
            requests: 34,
            ..Self::full(programs)
        }
    }

    pub fn is_short(&self) -> bool {
        self.pairs == 1
    }

    pub fn wants(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only))
    }
}
