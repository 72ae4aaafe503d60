//! The clients that a call's context may hold.
//!
//! What a tool can send is decided by the type of the client that it is given: [`ReadClient`]
//! has no way to send a method that writes, and none to become a [`FullClient`]. Both are made
//! by [`ToolClient::new`] alone, from the tier that the context is for. The requests
//! themselves are put together in [`super::http`] and [`super::mcp`].
//!
//! A read client does send POST, for searches with their arguments in a body, and calls
//! tools of MCP servers, where every call is the same POST. That those only read is the
//! word of their authors: no client can know it.

use toolcrib_manifest::{HttpMethod, ReadMethod, Tier};
use toolcrib_mediation::{Certainty, HttpCall, ResultCode, Scrubber, ToolFailure};

use super::credential::{Credential, CredentialError, credential};
use super::granted::GrantedTool;
use super::mcp::Servers;
use super::oauth::{AccessToken, Tokens};
use super::prepared::Prepared;
use super::{Tool, ToolContext, http, mcp, unanswered};
use crate::config::Current;
use crate::outbound::{Outbound, OutboundError};

/// The client of a context: all that it can do to the outside.
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
/// # use toolcrib_sidecar::tools::client::ReadClient;
/// # use toolcrib_sidecar::tools::granted::GrantedTool;
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
/// # use toolcrib_sidecar::tools::client::ReadClient;
/// # use toolcrib_sidecar::tools::granted::GrantedTool;
/// fn delete(client: ReadClient<'_>, tool: &GrantedTool, call: HttpCall) {
///     assert!(client.http(tool, HttpMethod::Delete, call).is_ok());
/// }
/// ```
///
/// And nothing in it makes a client that has:
///
/// ```compile_fail,E0423
/// # use toolcrib_sidecar::tools::client::{FullClient, ReadClient};
/// fn promote<'a>(client: ReadClient<'a>) -> FullClient<'a> {
///     FullClient(client.0)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReadClient<'a>(Services<'a>);

/// Sends anything that was permitted.
///
/// ```
/// # use toolcrib_manifest::HttpMethod;
/// # use toolcrib_mediation::HttpCall;
/// # use toolcrib_sidecar::tools::client::FullClient;
/// # use toolcrib_sidecar::tools::granted::GrantedTool;
/// fn delete(client: FullClient<'_>, tool: &GrantedTool, call: HttpCall) {
///     assert!(client.http(tool, HttpMethod::Delete, call).is_ok());
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FullClient<'a>(Services<'a>);

impl<'a> ToolClient<'a> {
    /// The client of a context in which a tool of at most `tier` may act.
    pub fn new(services: Services<'a>, tier: Tier) -> Self {
        match tier {
            Tier::ReadOnly => Self::Read(ReadClient(services)),
            Tier::Workspace | Tier::System | Tier::Elevated => Self::Full(FullClient(services)),
        }
    }

    /// To read with. Every context has it.
    pub fn read(self) -> ReadClient<'a> {
        match self {
            ToolClient::Read(client) => client,
            ToolClient::Full(client) => ReadClient(client.0),
        }
    }

    /// To write with. `None`: this context is for tools that only read.
    pub fn full(self) -> Option<FullClient<'a>> {
        match self {
            ToolClient::Read(_) => None,
            ToolClient::Full(client) => Some(client),
        }
    }
}

impl<'a> ReadClient<'a> {
    /// A request to the tool's service by a method that reads.
    pub fn http(
        self,
        tool: &GrantedTool,
        method: ReadMethod,
        call: HttpCall,
    ) -> Result<Prepared<'a>, ToolFailure> {
        self.0.http(tool, method.into(), call)
    }

    /// A call of the tool on its MCP server.
    pub fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<Prepared<'a>, ToolFailure> {
        self.0.mcp(tool, context)
    }
}

impl<'a> FullClient<'a> {
    /// A request to the tool's service by any method.
    pub fn http(
        self,
        tool: &GrantedTool,
        method: HttpMethod,
        call: HttpCall,
    ) -> Result<Prepared<'a>, ToolFailure> {
        self.0.http(tool, method, call)
    }

    /// A call of the tool on its MCP server.
    pub fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<Prepared<'a>, ToolFailure> {
        self.0.mcp(tool, context)
    }
}

/// What sends, whichever client it is in. Only a request that a client made holds one, too.
#[derive(Clone, Copy, Debug)]
pub struct Services<'a> {
    outbound: &'a Outbound,
    tokens: &'a Tokens,
    /// How MCP servers are spoken to.
    servers: &'a Servers,
    /// Its scrubber is asked when the answer is there: it knows the token of this call.
    current: &'a Current,
}

impl<'a> Services<'a> {
    pub fn new(
        outbound: &'a Outbound,
        tokens: &'a Tokens,
        servers: &'a Servers,
        current: &'a Current,
    ) -> Self {
        Self {
            outbound,
            tokens,
            servers,
            current,
        }
    }

    fn http(
        self,
        tool: &GrantedTool,
        method: HttpMethod,
        call: HttpCall,
    ) -> Result<Prepared<'a>, ToolFailure> {
        let request = http::request(&self.connections(tool)?, tool, method, call)?;
        Ok(Prepared::http(self, request))
    }

    fn mcp(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<Prepared<'a>, ToolFailure> {
        let call = mcp::prepare(self.connections(tool)?, tool, context)?;
        Ok(Prepared::mcp(self, call))
    }

    fn connections(self, tool: &GrantedTool) -> Result<reqwest::Client, ToolFailure> {
        let url = self.outbound.url(&tool.entry().execution.base_url);
        let url = url.map_err(|_| tool.unusable("its address is no URL"))?;
        let client = self.outbound.towards_service(&url, tool.settings());
        client.map_err(|error| match error {
            OutboundError::AddressRefused(connection) => {
                let failure = ToolFailure::unreachable(tool.name());
                unanswered(tool.name(), failure, connection)
            }
            OutboundError::Ca(_) | OutboundError::Proxy | OutboundError::Build(_) => {
                tracing::error!(tool = tool.name(), error = error.to_string(), "no client");
                tool.unusable("its transport settings cannot be used")
            }
        })
    }

    pub(super) fn servers(self) -> &'a Servers {
        self.servers
    }

    pub(super) fn scrubber(self) -> std::sync::Arc<Scrubber> {
        self.current.scrubber()
    }

    /// The tool's credential of now.
    pub(super) async fn credential(
        self,
        tool: &GrantedTool,
    ) -> Result<Option<Credential>, ToolFailure> {
        let Some(auth) = &tool.entry().execution.auth else {
            return Ok(None);
        };
        let found = credential(auth, tool.settings(), self.tokens).await;
        found.map(Some).map_err(|error| {
            let (code, certainty) = match error {
                CredentialError::Header(_) => (ResultCode::UnsupportedTool, Certainty::NeverRan),
                CredentialError::Token(error) if error.is_transient() => {
                    (ResultCode::RequestFailed, Certainty::Unreached)
                }
                CredentialError::Token(_) => (ResultCode::RequestFailed, Certainty::NeverRan),
            };
            ToolFailure::new(
                code,
                certainty,
                format!("{} was not called: {error}", tool.name()),
            )
        })
    }

    /// The service answered 401 to the token. `Some`: the next call can go better, since it
    /// brings another one.
    pub(super) fn refused(self, name: &str, token: &AccessToken) -> Option<ToolFailure> {
        self.tokens.forget(token);
        token.reused.then(|| {
            ToolFailure::new(
                ResultCode::Http(401),
                Certainty::Transient,
                format!("{name} did not take the access token; the next call brings a new one"),
            )
        })
    }
}
