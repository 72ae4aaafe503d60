//! Tools of the manifest, each permitted for one call.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use toolcrib_manifest::{
    HttpMethod, RawJson, ReadMethod, ServiceSettings, Tier, Tool as Entry, Transport,
};
use toolcrib_mediation::{
    CatalogTool, Certainty, LiveTool, ResultCode, ToolFailure, http_call, http_method,
};

use super::client::ToolClient;
use super::prepared::Prepared;
use super::{Tool, ToolContext, ToolResult};
use crate::config::Version;

/// A tool of the manifest, permitted for one call.
#[derive(Debug)]
pub struct GrantedTool {
    live: LiveTool,
    version: Arc<Version>,
    access: Access,
}

/// What a call of the tool asks its context for.
#[derive(Clone, Copy, Debug)]
enum Access {
    Read(Operation<ReadMethod>),
    Write(Operation<HttpMethod>),
}

/// How the call is made.
#[derive(Clone, Copy, Debug)]
enum Operation<M> {
    Http(M),
    Mcp,
}

impl GrantedTool {
    /// Errors: its entry says of no transport how it is called.
    pub fn new(live: LiveTool, version: Arc<Version>) -> Result<Self, ToolFailure> {
        let entry = live.tool();
        let operation = match entry.execution.transport {
            Transport::Http => Operation::Http(http_method(entry)?),
            Transport::Mcp => Operation::Mcp,
        };
        let access = match (live.catalog_tool().tier, operation) {
            (Tier::ReadOnly, Operation::Mcp) => Access::Read(Operation::Mcp),
            (Tier::ReadOnly, Operation::Http(method)) => match method.reading() {
                Some(method) => Access::Read(Operation::Http(method)),
                None => Access::Write(operation),
            },
            (Tier::Workspace | Tier::System | Tier::Elevated, _) => Access::Write(operation),
        };
        Ok(Self {
            live,
            version,
            access,
        })
    }

    pub(super) fn entry(&self) -> &Entry {
        self.live.tool()
    }

    pub(super) fn catalog_tool(&self) -> &CatalogTool {
        self.live.catalog_tool()
    }

    /// The settings of its surface.
    pub(super) fn settings(&self) -> Option<&ServiceSettings> {
        self.version.services.get(&self.entry().execution.service)
    }

    /// The failure of a tool that cannot be called as its entry is written.
    pub(super) fn unusable(&self, what: &str) -> ToolFailure {
        ToolFailure::new(
            ResultCode::UnsupportedTool,
            Certainty::NeverRan,
            format!("{}: {what}", self.name()),
        )
    }

    fn prepare<'a>(&self, context: ToolContext<'a>) -> Result<Prepared<'a>, ToolFailure> {
        let call = || http_call(self.entry(), context.arguments, context.claw_id);
        match self.access {
            Access::Read(operation) => {
                let client = context.client.read();
                match operation {
                    Operation::Http(method) => client.http(self, method, call()?),
                    Operation::Mcp => client.mcp(self, context),
                }
            }
            Access::Write(operation) => {
                let client = self.full(context.client)?;
                match operation {
                    Operation::Http(method) => client.http(self, method, call()?),
                    Operation::Mcp => client.mcp(self, context),
                }
            }
        }
    }

    fn full<'a>(
        &self,
        client: ToolClient<'a>,
    ) -> Result<super::client::FullClient<'a>, ToolFailure> {
        client.full().ok_or_else(|| {
            ToolFailure::new(
                ResultCode::PermissionDenied,
                Certainty::NeverRan,
                format!("{} may write, and this call may only read", self.name()),
            )
        })
    }
}

impl Tool for GrantedTool {
    fn name(&self) -> &str {
        self.catalog_tool().name()
    }

    fn description(&self) -> &str {
        &self.entry().description
    }

    fn schema(&self) -> &RawJson {
        &self.entry().input_schema
    }

    fn tier(&self) -> Tier {
        self.catalog_tool().tier
    }

    fn execute<'a>(
        self: Box<Self>,
        context: ToolContext<'a>,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>
    where
        Self: 'a,
    {
        async move { self.prepare(context)?.send(&self, context).await }.boxed()
    }
}
