//! Tools in the form of ADR-0004, and the executors over HTTP and MCP.
//!
//! A [`Tool`] is declaration and execution in one: what is presented and what runs cannot
//! drift apart. What a context does not hold cannot be done: [`ToolContext`] has no write
//! client for a tool that may only read.

pub mod answer;
pub mod auth;
pub mod client;
pub mod credential;
mod http;
pub mod mcp;
pub mod oauth;

use std::time::Duration;

use futures::future::BoxFuture;
use toolcrib_manifest::{RawJson, Tier};
use toolcrib_mediation::{ToolBody, ToolFailure};

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
    pub wire: Wire<'a>,
}

/// The clients of a context. A read-only one sends nothing for a tool that may write: it
/// holds no client that takes such a call.
#[derive(Clone, Copy, Debug)]
pub enum Wire<'a> {
    ReadOnly(client::ReadClient<'a>),
    Full(client::FullClient<'a>),
}

/// What a call gave: for the model and, apart from it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub output: ToolOutput,
    /// One line for logs; never a secret, a host or a body.
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
