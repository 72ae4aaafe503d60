//! Tools in the form of ADR-0004, and the executors over HTTP and MCP.
//!
//! A [`Tool`] is declaration and execution in one: what is presented and what runs cannot
//! drift apart. What a context does not hold cannot be done: its [`client`] is made for a
//! tier, and one that is made for ReadOnly has no way to send what writes.
//!
//! What of the ADR has no counterpart here (session, workspace, artifacts), and why, is in
//! `docs/decisions/2026-11-23-clients-by-tier.md`.

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

/// Says the agent's identity, for information: it authenticates nothing.
pub const CLAW_ID: HeaderName = HeaderName::from_static("x-claw-id");

/// A callable tool.
pub trait Tool: Send + Sync {
    /// Canonical, `surface.tool`.
    fn name(&self) -> &str;

    fn description(&self) -> &str;

    /// JSON Schema of the arguments, in the manifest's bytes.
    fn schema(&self) -> &RawJson;

    fn tier(&self) -> Tier;

    /// Runs with arguments that are validated already. Consumes itself: authority was
    /// given for one call.
    fn execute<'a>(
        self: Box<Self>,
        context: ToolContext<'a>,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>
    where
        Self: 'a;
}

/// All that a call may use.
#[derive(Clone, Copy, Debug)]
pub struct ToolContext<'a> {
    pub arguments: &'a RawJson,
    /// The identity towards the tool's service.
    pub claw_id: &'a str,
    /// Of connect, headers and body together.
    pub timeout: Duration,
    /// Bytes of a result that the model may see.
    pub max_result: usize,
    pub client: ToolClient<'a>,
}

/// What a call gave: for the model and, apart from it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub output: ToolOutput,
    /// One line for the record and the trace; never a secret, a host or a body.
    pub display: String,
}

/// Model-facing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolOutput {
    /// The service's status and body; of an MCP server too, where it did not answer as one.
    Http { status: u16, body: ToolBody },
    /// An MCP server's result.
    Mcp { is_error: bool, body: ToolBody },
    /// An MCP server's error instead of one.
    McpError { code: i64, body: ToolBody },
}

/// Logs why a tool's service gave no whole answer, and adds it to `failure` for the record.
fn unanswered(tool: &str, failure: ToolFailure, connection: ConnectionFailure) -> ToolFailure {
    tracing::warn!(
        tool,
        cause = connection.cause.to_string(),
        address = connection.address,
        "a service did not answer"
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
