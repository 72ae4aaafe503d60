//! A call of an MCP server over Streamable HTTP, in the revisions 2026-07-28 (stateless) and
//! 2025-11-25 (`initialize`, perhaps a session).
//!
//! The only request is `tools/call`, for tools of the manifest: the list of tools is reviewed and
//! compiled, never fetched. [`toolcrib_mcp::client`] has the messages; [`result`] is pure; [`exchange`]
//! sends one message and reads the answer; [`servers`] caches the protocol and session of each server.
//!
//! Invariants: a session belongs to one server, credential and identity; a call is sent again
//! only after a 404 to its session, which cannot have run it; every request of a server is refused;
//! one deadline covers the whole call, and progress does not extend it.

mod exchange;
mod result;
mod servers;

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use toolcrib_mcp::client::{RpcError, ServerMessage, lists_stateless, settled};
use toolcrib_mcp::code::UNSUPPORTED_VERSION;
use toolcrib_mcp::header;
use toolcrib_mediation::{Certainty, ResultCode, Scrubber, ToolBody, ToolFailure, path_at, target};
use url::Url;

use super::credential::Credential;
use super::granted::GrantedTool;
use super::services::Services;
use crate::outbound::tools::answer;
use crate::outbound::tools::{ToolContext, ToolOutput, ToolResult};
use exchange::{Endpoint, ExchangeError, Reply, ReplyContent};
use result::{CallResult, ResultFault};
pub use servers::Servers;
use servers::{Key, OpenError, OpenSession};

/// Reads a message of a server as a call does, and returns the text for the model; `None` if it
/// holds no result.
pub(crate) fn text_of(message: &str) -> Option<String> {
    /// The id that the harness's messages answer.
    const ID: u64 = 1;
    match ServerMessage::read(message, ID)? {
        ServerMessage::Response(answer) | ServerMessage::OtherResponse(answer) => {
            let result = answer.ok()?;
            lists_stateless(&result);
            settled(&result);
            CallResult::read(&result).ok().map(|result| result.text)
        }
        ServerMessage::Request(request) => Some(request.reply()),
        ServerMessage::Notification => None,
    }
}

/// A call that is ready to be sent, without its credential.
#[derive(Debug)]
pub(super) struct McpCall {
    client: reqwest::Client,
    url: Url,
    claw_id: HeaderValue,
    call: Call,
    max_result: usize,
}

/// The parameters of a `tools/call`.
#[derive(Debug)]
struct Call {
    /// The server's own name of the tool.
    name: String,
    arguments: String,
    mirrored: Vec<(HeaderName, HeaderValue)>,
}

pub(super) fn prepare(
    base: &Url,
    connections: reqwest::Client,
    tool: &GrantedTool,
    context: ToolContext<'_>,
) -> Result<McpCall, ToolFailure> {
    let entry = tool.entry();
    let execution = &entry.execution;
    let (Some(path), Some(name)) = (&execution.path, &execution.tool_name) else {
        return Err(tool.unusable("it has no path or no tool_name"));
    };
    let url = target(base, &path_at(execution, path))
        .ok_or_else(|| tool.unusable("its path cannot be sent as it is written"))?;
    let claw_id = HeaderValue::from_str(context.claw_id).map_err(|_| {
        tool.unusable("the agent's identity has characters that a header cannot contain")
    })?;
    let arguments = context.arguments.get();
    Ok(McpCall {
        client: connections,
        url,
        claw_id,
        call: Call {
            name: name.clone(),
            arguments: arguments.to_string(),
            mirrored: header::mirrored(entry.input_schema.get(), arguments),
        },
        max_result: context.max_result,
    })
}

pub(super) async fn call(
    services: Services<'_>,
    servers: &Servers,
    tool: &GrantedTool,
    prepared: McpCall,
    credential: Option<Credential>,
    deadline: Instant,
) -> Result<ToolResult, ToolFailure> {
    let name = tool.name();
    let McpCall {
        client: dial,
        url,
        claw_id,
        call,
        max_result,
    } = prepared;
    let (header, token) = match credential {
        None => (None, None),
        Some(it) => (Some((it.name, it.value)), it.token),
    };
    let endpoint = Arc::new(Endpoint {
        client: dial,
        url,
        credential: header,
        claw_id,
    });
    let key = Key::of(&endpoint, tool.settings());
    // A 401 to any message is about the credential.
    let refused = |status: u16| {
        let token = token.as_ref().filter(|_| status == 401)?;
        services.refused(name, token)
    };
    let mut renewed = false;
    loop {
        // Before the session is open, nothing was sent that could have run.
        let opened = timeout_at(deadline, servers.open(key, &endpoint)).await;
        let opened = opened.unwrap_or(Err(OpenError::Exchange(ExchangeError::Silent)));
        let OpenSession { protocol, reused } = opened.map_err(|error| match error {
            OpenError::Http(status) => {
                refused(status).unwrap_or_else(|| error.failure(name, &endpoint))
            }
            OpenError::Rpc(_) | OpenError::Revision | OpenError::Exchange(_) => {
                error.failure(name, &endpoint)
            }
        })?;
        let sent = timeout_at(deadline, servers.call(&endpoint, &protocol, &call)).await;
        let sent = sent.unwrap_or(Err(ExchangeError::Silent));
        let Reply {
            status, content, ..
        } = sent.map_err(|error| error.failure(name, &endpoint))?;
        let in_session = protocol.has_session();
        let has_run = matches!(content, ReplyContent::Rpc(Ok(_)));
        if in_session && status == 404 && !has_run && !renewed {
            servers.forget(&key, &protocol);
            renewed = true;
            continue;
        }
        if in_session && status == 400 && reused {
            // Some servers report an unknown session like this. It can mean more, so the call is
            // not sent again.
            servers.forget(&key, &protocol);
            return Err(ToolFailure::new(
                ResultCode::Http(status),
                Certainty::Transient,
                format!("{name} did not take its session; the next call begins a new one"),
            ));
        }
        return match content {
            ReplyContent::Rpc(Ok(result)) => {
                output(&services.scrubber(), servers, tool, &result, max_result)
            }
            ReplyContent::Rpc(Err(RpcError { code, message })) => {
                if code == UNSUPPORTED_VERSION {
                    servers.forget(&key, &protocol);
                }
                let body = body(message, max_result, &services.scrubber());
                Ok(ToolResult {
                    display: format!("{name}: error {code}"),
                    output: ToolOutput::McpError { code, body },
                })
            }
            ReplyContent::Http(text) => {
                if let Some(failure) = refused(status) {
                    return Err(failure);
                }
                if matches!(status, 400 | 404..=406) {
                    // The server's protocol has changed: the next call opens it anew.
                    servers.forget(&key, &protocol);
                }
                let body = body(text, max_result, &services.scrubber());
                Ok(ToolResult {
                    display: format!("{name}: status {status}, {} bytes", body.bytes.len()),
                    output: ToolOutput::Http { status, body },
                })
            }
        };
    }
}

fn output(
    scrubber: &Scrubber,
    servers: &Servers,
    tool: &GrantedTool,
    result: &RawValue,
    max_result: usize,
) -> Result<ToolResult, ToolFailure> {
    let name = tool.name();
    let unusable = |what: String| {
        ToolFailure::new(
            ResultCode::McpError,
            Certainty::Ran,
            format!("the server of {name} {what}"),
        )
    };
    let result = CallResult::read(result).map_err(|error| {
        unusable(match error {
            ResultFault::Malformed => "answered with an invalid tool result".into(),
            ResultFault::OtherKind => "answered with a kind of result that is not read".into(),
            ResultFault::InputRequired => {
                servers.refused_input();
                "asks for input, which no tool's server is given".into()
            }
        })
    })?;
    if !result.is_error {
        let checked = tool
            .catalog_tool()
            .check_output(result.structured.as_deref());
        checked.map_err(|mismatch| {
            // The mismatch can quote names that the server chose.
            let mismatch = scrubber.scrub(mismatch.to_string().into_bytes());
            let mismatch = String::from_utf8_lossy(&mismatch).into_owned();
            unusable(format!("answered with what its output schema does not allow, so it may have changed since review: {mismatch}"))
        })?;
    }
    let body = body(result.text, max_result, scrubber);
    Ok(ToolResult {
        display: format!("{name}: result of {} bytes", body.bytes.len()),
        output: ToolOutput::Mcp {
            is_error: result.is_error,
            body,
        },
    })
}

/// Cuts the text to just over the limit, and scrubs it.
fn body(text: impl Into<Vec<u8>>, max: usize, scrubber: &Scrubber) -> ToolBody {
    let mut text = text.into();
    let length = text.len() as u64;
    let room = answer::room(max, scrubber);
    let cut = text.len() > room;
    text.truncate(room);
    let mut bytes = answer::scrubbed(text, cut, max, scrubber);
    bytes.truncate(max.saturating_add(1));
    ToolBody {
        bytes,
        original_bytes: Some(length),
    }
}
