//! Tools in the form of ADR-0004, and the executors over HTTP and MCP.
//!
//! A [`Tool`] is declaration and execution in one, so the presented tool and the executed tool
//! cannot drift apart. A call can only use its context: the context's [`client`] is made for a
//! tier, and a client for ReadOnly cannot send a request that writes.
//!
//! `docs/decisions/2026-11-23-clients-by-tier.md` lists the parts of the ADR that have no
//! counterpart here (session, workspace, artifacts), with reasons.

pub mod answer;
pub mod auth;
pub mod client;
pub mod credential;
mod execute;
pub mod granted;
mod http;
pub mod mcp;
pub mod oauth;
pub mod prepared;
mod services;

use std::time::Duration;

use ::http::header::HeaderName;
use futures::future::BoxFuture;
use toolcrib_manifest::{RawJson, Tier};
use toolcrib_mediation::{ConnectionFailure, ToolBody, ToolFailure, ToolOutcome};

use client::ToolClient;

/// The header with the agent's identity, for information: it authenticates nothing.
pub const CLAW_ID: HeaderName = HeaderName::from_static("x-claw-id");

/// A callable tool.
pub trait Tool: Send + Sync {
    /// The canonical name, `surface.tool`.
    fn name(&self) -> &str;

    fn description(&self) -> &str;

    /// The JSON Schema of the arguments, with the manifest's bytes unchanged.
    fn schema(&self) -> &RawJson;

    fn tier(&self) -> Tier;

    /// Runs the tool with validated arguments. Consumes the tool, since the authority is for one
    /// call.
    fn execute<'a>(
        self: Box<Self>,
        context: ToolContext<'a>,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>
    where
        Self: 'a;
}

/// Everything that a call may use.
#[derive(Clone, Copy, Debug)]
pub struct ToolContext<'a> {
    pub arguments: &'a RawJson,
    /// The identity towards the tool's service.
    pub claw_id: &'a str,
    /// The key by which the tool's service recognizes a repetition, if it does.
    pub idempotency_key: Option<&'a str>,
    /// Timeout for connect, headers and body together.
    pub timeout: Duration,
    /// Most bytes of a result that the model may see.
    pub max_result: usize,
    pub client: ToolClient<'a>,
}

/// The result of a call: one part for the model, one for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub output: ToolOutput,
    /// One line for the record and the trace; never a secret, a host or a body.
    pub display: String,
}

/// The result for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolOutput {
    /// Status and body of a service, or of an MCP server whose answer was not MCP.
    Http { status: u16, body: ToolBody },
    /// The result of an MCP server.
    Mcp { is_error: bool, body: ToolBody },
    /// The JSON-RPC error of an MCP server.
    McpError { code: i64, body: ToolBody },
}

/// Logs the reason why a service gave no whole answer, and adds it to `failure` for the record.
fn unanswered(tool: &str, failure: ToolFailure, connection: ConnectionFailure) -> ToolFailure {
    tracing::warn!(
        tool,
        cause = connection.cause.with_advice(),
        address = connection.address,
        "service did not answer"
    );
    failure.because(connection)
}

impl From<ToolOutput> for ToolOutcome {
    fn from(output: ToolOutput) -> Self {
        match output {
            ToolOutput::Http { status, body } => ToolOutcome::Responded { status, body },
            ToolOutput::Mcp { is_error, body } => ToolOutcome::Mcp { is_error, body },
            ToolOutput::McpError { code, body } => ToolOutcome::McpError { code, body },
        }
    }
}
