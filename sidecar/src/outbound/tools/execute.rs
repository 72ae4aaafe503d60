//! Runs a tool of the manifest: asks the context's client for the one request that the tool needs.

use futures::FutureExt;
use futures::future::BoxFuture;
use toolcrib_manifest::{RawJson, Tier};
use toolcrib_mediation::{Certainty, ResultCode, ToolFailure, http_call};

use super::client::{FullClient, ToolClient};
use super::granted::{Access, GrantedTool, Operation};
use super::prepared::PreparedCall;
use crate::outbound::tools::{Tool, ToolContext, ToolResult};

impl GrantedTool {
    fn prepare<'a>(&self, context: ToolContext<'a>) -> Result<PreparedCall<'a>, ToolFailure> {
        let call = || {
            http_call(
                self.entry(),
                context.arguments,
                context.claw_id,
                context.idempotency_key,
            )
        };
        match self.access() {
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

    fn full<'a>(&self, client: ToolClient<'a>) -> Result<FullClient<'a>, ToolFailure> {
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
        GrantedTool::name(self)
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
