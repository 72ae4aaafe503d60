//! The clients that a call's context may hold.
//!
//! The type of the client decides which requests a tool can send: [`ReadClient`] cannot send a
//! method that writes, and cannot become a [`FullClient`]. Only [`ToolClient::new`] makes them,
//! from the tier of the context. [`crate::outbound::tools::http`] and [`crate::outbound::tools::mcp`] make the requests.
//!
//! A read client does send POST: for searches with their arguments in a body, and for tools of
//! MCP servers, where every call is a POST. For those, ReadOnly is a statement of their authors,
//! which no client can check.

use toolcrib_manifest::{HttpMethod, ReadMethod, Tier};
use toolcrib_mediation::{HttpCall, ToolFailure};

use super::granted::GrantedTool;
use super::mcp::Servers;
use super::oauth::Tokens;
use super::prepared::PreparedCall;
use super::services::Services;
use crate::config::CurrentConfig;
use crate::outbound::Outbound;
use crate::outbound::tools::{ToolContext, http, mcp};

/// The client of a context, its only access to services.
#[derive(Clone, Copy, Debug)]
pub enum ToolClient<'a> {
    Read(ReadClient<'a>),
    Full(FullClient<'a>),
}

/// Sends requests that read.
///
/// ```
/// # use toolcrib_manifest::ReadMethod;
/// # use toolcrib_mediation::HttpCall;
/// # use toolcrib_sidecar::outbound::tools::client::ReadClient;
/// # use toolcrib_sidecar::outbound::tools::granted::GrantedTool;
/// fn read(client: ReadClient<'_>, tool: &GrantedTool, call: HttpCall) {
///     assert!(client.http(tool, ReadMethod::Get, call).is_ok());
/// }
/// ```
///
/// It has no method that takes a DELETE (or PUT, or PATCH):
///
/// ```compile_fail,E0308
/// # use toolcrib_manifest::HttpMethod;
/// # use toolcrib_mediation::HttpCall;
/// # use toolcrib_sidecar::outbound::tools::client::ReadClient;
/// # use toolcrib_sidecar::outbound::tools::granted::GrantedTool;
/// fn delete(client: ReadClient<'_>, tool: &GrantedTool, call: HttpCall) {
///     assert!(client.http(tool, HttpMethod::Delete, call).is_ok());
/// }
/// ```
///
/// And nothing in it makes a client that has:
///
/// ```compile_fail,E0423
/// # use toolcrib_sidecar::outbound::tools::client::{FullClient, ReadClient};
/// fn promote<'a>(client: ReadClient<'a>) -> FullClient<'a> {
///     FullClient(client.0)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReadClient<'a>(Sender<'a>);

/// Sends every permitted request.
///
/// ```
/// # use toolcrib_manifest::HttpMethod;
/// # use toolcrib_mediation::HttpCall;
/// # use toolcrib_sidecar::outbound::tools::client::FullClient;
/// # use toolcrib_sidecar::outbound::tools::granted::GrantedTool;
/// fn delete(client: FullClient<'_>, tool: &GrantedTool, call: HttpCall) {
///     assert!(client.http(tool, HttpMethod::Delete, call).is_ok());
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FullClient<'a>(Sender<'a>);

impl<'a> ToolClient<'a> {
    /// Makes the client of a context for tools of at most `tier`.
    pub fn new(sender: Sender<'a>, tier: Tier) -> Self {
        match tier {
            Tier::ReadOnly => Self::Read(ReadClient(sender)),
            Tier::Workspace | Tier::System | Tier::Elevated => Self::Full(FullClient(sender)),
        }
    }

    /// The client that reads. Every context has one.
    pub fn read(self) -> ReadClient<'a> {
        match self {
            ToolClient::Read(client) => client,
            ToolClient::Full(client) => ReadClient(client.0),
        }
    }

    /// The client that writes. `None`: this context is for ReadOnly tools.
    pub fn full(self) -> Option<FullClient<'a>> {
        match self {
            ToolClient::Read(_) => None,
            ToolClient::Full(client) => Some(client),
        }
    }
}

impl<'a> ReadClient<'a> {
    /// Prepares a request to the tool's service with a method that reads.
    pub fn http(
        self,
        tool: &GrantedTool,
        method: ReadMethod,
        call: HttpCall,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        self.0.http(tool, method.into(), call)
    }

    /// Prepares a call of the tool on its MCP server.
    pub fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        self.0.mcp(tool, context)
    }
}

impl<'a> FullClient<'a> {
    /// Prepares a request to the tool's service with any method.
    pub fn http(
        self,
        tool: &GrantedTool,
        method: HttpMethod,
        call: HttpCall,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        self.0.http(tool, method, call)
    }

    /// Prepares a call of the tool on its MCP server.
    pub fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        self.0.mcp(tool, context)
    }
}

/// Makes requests for both clients.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    services: Services<'a>,
    /// The protocol and session of each MCP server.
    servers: &'a Servers,
}

impl<'a> Sender<'a> {
    pub fn new(
        outbound: &'a Outbound,
        tokens: &'a Tokens,
        servers: &'a Servers,
        current: &'a CurrentConfig,
    ) -> Self {
        let services = Services {
            outbound,
            tokens,
            current,
        };
        Self { services, servers }
    }

    fn http(
        self,
        tool: &GrantedTool,
        method: HttpMethod,
        call: HttpCall,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        let (base, transport) = self.services.transport(tool)?;
        let request = http::request(&base.url, transport, tool, method, call)?;
        Ok(PreparedCall::http(self.services, request))
    }

    fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<PreparedCall<'a>, ToolFailure> {
        let (base, connections) = self.services.connections(tool)?;
        let call = mcp::prepare(&base.url, connections, tool, context)?;
        Ok(PreparedCall::mcp(self.services, self.servers, call))
    }
}
