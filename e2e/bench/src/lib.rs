//! What the mediator, the wrapper and the compiler cost, measured beside a reference in the same run.
//!
//! A figure of one machine on one day says little, and machines are noisy; so each cost is
//! a ratio to a named reference that did the same work seconds before or after. For the
//! mediator and the wrapper that is `bare-proxy`, a reverse proxy on bare hyper, and for the
//! mediator as an MCP client `bare-mcp`, the protocol's own SDK; for the compiler it is
//! serde_json reading and writing the same bytes.
//!
//! - [`machine`]: what the figures were measured on;
//! - [`process`]: programs under measurement: CPU time, memory, readiness;
//! - [`manifest`]: the mediator's four files;
//! - [`load`]: the load generator, closed loop and at a fixed rate;
//! - [`pairs`]: alternating slices of a reference and of what is measured;
//! - [`cases`]: the measurements of the mediator, and of the wrapper of MCP servers;
//! - [`compiler`]: those of the compiler;
//! - [`report`]: rows, as a table and as JSON.
//!
//! CPU time per request is what the targets are about: it holds still where latency and
//! throughput do not. Nothing here asserts a figure: a target missed is a row that says so.

pub mod cases;
pub mod compiler;
pub mod load;
pub mod machine;
pub mod manifest;
mod pairs;
pub mod process;
pub mod report;

use std::path::PathBuf;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the reference and the far side are.
    pub programs: PathBuf,
    pub mediator: PathBuf,
    /// toolcrib-mcp-stdio.
    pub wrapper: PathBuf,
    /// The reference of calls over MCP.
    pub bare_mcp: PathBuf,
    /// Alternations of reference and mediator per case.
    pub pairs: usize,
    /// Work of one slice, in requests of the cheapest case.
    pub requests: usize,
    /// Only cases whose name contains this.
    pub only: Option<String>,
}

impl Plan {
    /// For figures: minutes. Every program is in one folder unless another is named.
    pub fn full(programs: PathBuf) -> Self {
        Self {
            mediator: programs.join("toolcrib-sidecar"),
            wrapper: programs.join("toolcrib-mcp-stdio"),
            bare_mcp: programs.join("bare-mcp"),
            programs,
            pairs: 12,
            requests: 1200,
            only: None,
        }
    }

    /// Shows that everything runs; its figures mean nothing.
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
