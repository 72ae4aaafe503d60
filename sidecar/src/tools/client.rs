//! Permitted calls and who may send them.
//!
//! Here is what every transport shares: the agent's read-only or full client, the call's
//! deadline and its credential. What is sent is the transports': [`super::http`],
//! [`super::mcp`].
//!
//! Invariants: destination and credential come from the manifest alone; one deadline covers
//! the credential, connect, headers and body; no error names a host, an address or a path.

use std::sync::Arc;

use ::http::header::HeaderName;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use toolcrib_manifest::{RawJson, ServiceSettings, Tier, Transport};
use toolcrib_mediation::{Certainty, LiveTool, ResultCode, ToolFailure};

use super::credential::{Credential, CredentialError, credential};
use super::mcp::Servers;
use super::oauth::{AccessToken, Tokens};
use super::{Tool, ToolContext, ToolResult, Wire, http, mcp};
use crate::config::{Current, Version};
use crate::outbound::Outbound;

/// Says the agent's identity, for information: it authenticates nothing.
pub const CLAW_ID: HeaderName = HeaderName::from_static("x-claw-id");

/// Sends what only reads. It has no way to send anything else.
#[derive(Clone, Copy, Debug)]
pub struct ReadClient<'a>(pub Client<'a>);

/// Sends anything that was permitted.
#[derive(Clone, Copy, Debug)]
pub struct FullClient<'a>(pub Client<'a>);

/// What both are made of.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    pub outbound: &'a Outbound,
    pub tokens: &'a Tokens,
    /// How MCP servers are spoken to.
    pub servers: &'a Servers,
    /// Whose scrubber is asked when the answer is there: it knows the token of this call.
    pub current: &'a Current,
}

/// The clients of a context that may do what this tier may.
pub fn wire<'a>(client: Client<'a>, tier: Tier) -> Wire<'a> {
    match tier {
        Tier::ReadOnly => Wire::ReadOnly(ReadClient(client)),
        Tier::Workspace | Tier::System | Tier::Elevated => Wire::Full(FullClient(client)),
    }
}

/// A tool of the manifest, permitted for one call.
#[derive(Debug)]
pub struct GrantedTool {
    pub(super) live: LiveTool,
    version: Arc<Version>,
}

impl GrantedTool {
    pub fn new(live: LiveTool, version: Arc<Version>) -> Self {
        Self { live, version }
    }

    /// Of its surface.
    pub(super) fn settings(&self) -> Option<&ServiceSettings> {
        let service = &self.live.tool().execution.service;
        self.version.services.get(service)
    }

    /// It cannot be called as it is written.
    pub(super) fn unusable(&self, what: &str) -> ToolFailure {
        ToolFailure::new(
            ResultCode::UnsupportedTool,
            Certainty::NeverRan,
            format!("{}: {what}", self.name()),
        )
    }
}

/// A call that only reads, as far as its tier says.
struct ReadCall<'t>(&'t GrantedTool);

/// Any call.
struct AnyCall<'t>(&'t GrantedTool);

impl Tool for GrantedTool {
    fn name(&self) -> &str {
        self.live.catalog_tool().name()
    }

    fn description(&self) -> &str {
        &self.live.tool().description
    }

    fn schema(&self) -> &RawJson {
        &self.live.tool().input_schema
    }

    fn tier(&self) -> Tier {
        self.live.catalog_tool().tier
    }

    fn execute<'a>(
        self: Box<Self>,
        context: ToolContext<'a>,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>
    where
        Self: 'a,
    {
        async move {
            match (self.tier(), context.wire) {
                (Tier::ReadOnly, Wire::ReadOnly(client)) => {
                    client.send(ReadCall(&self), context).await
                }
                (_, Wire::Full(client)) => client.send(AnyCall(&self), context).await,
                (Tier::Workspace | Tier::System | Tier::Elevated, Wire::ReadOnly(_)) => {
                    Err(ToolFailure::new(
                        ResultCode::PermissionDenied,
                        Certainty::NeverRan,
                        format!("{} may write, and this agent may only read", self.name()),
                    ))
                }
            }
        }
        .boxed()
    }
}

impl ReadClient<'_> {
    async fn send(
        &self,
        call: ReadCall<'_>,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        self.0.send(call.0, context).await
    }
}

impl FullClient<'_> {
    async fn send(
        &self,
        call: AnyCall<'_>,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        self.0.send(call.0, context).await
    }
}

impl Client<'_> {
    async fn send(
        &self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        let name = tool.name();
        let prepared = match tool.live.tool().execution.transport {
            Transport::Http => Prepared::Http(Box::new(http::prepare(self, tool, context)?)),
            Transport::Mcp => Prepared::Mcp(Box::new(mcp::prepare(self, tool, context)?)),
        };
        let deadline = Instant::now() + context.timeout;
        let credential = self.credential(tool);
        let Ok(credential) = tokio::time::timeout_at(deadline, credential).await else {
            // Nothing was sent to the service yet.
            return Err(ToolFailure::new(
                ResultCode::Timeout,
                Certainty::Unreached,
                format!("{name} was not called: its credential did not come in time"),
            ));
        };
        let credential = credential?;
        match prepared {
            Prepared::Http(request) => {
                let exchange = http::exchange(self, name, *request, credential, context.max_result);
                let result = tokio::time::timeout_at(deadline, exchange).await;
                result.unwrap_or_else(|_| Err(ToolFailure::timeout(name)))
            }
            Prepared::Mcp(call) => mcp::call(self, tool, *call, credential, deadline).await,
        }
    }

    async fn credential(&self, tool: &GrantedTool) -> Result<Option<Credential>, ToolFailure> {
        let Some(auth) = &tool.live.tool().execution.auth else {
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

    /// The service answered 401 to it. The failure where the next call can go better, since
    /// it brings another one.
    pub(super) fn refused(&self, name: &str, token: &AccessToken) -> Option<ToolFailure> {
        self.tokens.forget(token);
        token.reused.then(|| {
            ToolFailure::new(
                ResultCode::Http(401),
                Certainty::Transient,
                format!("{name} did not take the access token; the next call brings a new one"),
            )
        })
    }

    pub(super) fn dial(&self, tool: &GrantedTool) -> Result<reqwest::Client, ToolFailure> {
        let client = self.outbound.for_service(tool.settings());
        client.map_err(|error| {
            tracing::error!(tool = tool.name(), error = error.to_string(), "no client");
            tool.unusable("its transport settings cannot be used")
        })
    }
}

/// What was found sendable, before anything is asked for it.
enum Prepared {
    Http(Box<reqwest::RequestBuilder>),
    Mcp(Box<mcp::Prepared>),
}
