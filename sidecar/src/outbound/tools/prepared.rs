//! A call that is ready to be sent.
//!
//! Invariants: destination, method and credential come from the manifest alone; one deadline
//! covers the credential, connect, headers and body; no error names a host, an address or a
//! path.

use tokio::time::{Instant, timeout_at};
use toolcrib_mediation::ToolFailure;

use super::granted::GrantedTool;
use super::mcp::Servers;
use super::services::Services;
use crate::outbound::error;
use crate::outbound::tools::{ToolContext, ToolResult, http, mcp, unanswered};

/// A call that passed all checks and has sent nothing yet.
#[derive(Debug)]
pub struct PreparedCall<'a> {
    services: Services<'a>,
    request: Request<'a>,
}

#[derive(Debug)]
enum Request<'a> {
    Http(Box<http::Request>),
    Mcp(&'a Servers, Box<mcp::McpCall>),
}

impl<'a> PreparedCall<'a> {
    pub(super) fn http(services: Services<'a>, request: http::Request) -> Self {
        Self {
            services,
            request: Request::Http(Box::new(request)),
        }
    }

    pub(super) fn mcp(services: Services<'a>, servers: &'a Servers, call: mcp::McpCall) -> Self {
        Self {
            services,
            request: Request::Mcp(servers, Box::new(call)),
        }
    }

    /// Fetches the credential, sends the call once and reads its answer.
    pub(super) async fn send(
        self,
        tool: &GrantedTool,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        let name = tool.name();
        let deadline = Instant::now() + context.timeout;
        let credential = self.services.credential(tool, deadline).await?;
        match self.request {
            Request::Http(request) => {
                let to = request.to.clone();
                let exchange = http::exchange(
                    self.services,
                    name,
                    *request,
                    credential,
                    context.max_result,
                );
                match timeout_at(deadline, exchange).await {
                    Ok(result) => result,
                    Err(_) => {
                        let connection = error::timed_out(to.url.as_str());
                        Err(unanswered(name, ToolFailure::timeout(name), connection))
                    }
                }
            }
            Request::Mcp(servers, call) => {
                mcp::call(self.services, servers, tool, *call, credential, deadline).await
            }
        }
    }
}
