//! The reference for a tool call over MCP: it receives a `tools/call` over HTTP and sends it with
//! the protocol's own SDK, in its default settings, over a connected client with kept-alive
//! connections. It authenticates, checks, bounds, scrubs and records nothing.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, Peer};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    upstream: SocketAddr,
}

#[derive(Deserialize)]
struct ToolRequest {
    id: Box<RawValue>,
    params: CallToolRequestParams,
}

#[derive(Serialize)]
struct RpcResponse {
    jsonrpc: &'static str,
    id: Box<RawValue>,
    result: CallToolResult,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Uses as many threads as the bare proxy.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let server = format!("http://{}/mcp", args.upstream);
    let config =
        StreamableHttpClientTransportConfig::with_uri(server).auth_header("pond-reader-2e81f7a90c");
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let client = ()
        .serve_with_lifecycle(
            StreamableHttpClientTransport::with_client(http, config),
            lifecycle,
        )
        .await
        .context("connect to the server")?;
    let listener = TcpListener::bind(args.listen).await.context("listen")?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let peer = client.peer().clone();
        let service = service_fn(move |request| answered(peer.clone(), request));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            // An error means that the client has closed the connection, as at the end of a
            // benchmark.
            connection
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

/// Answers a request. A request without a body is a readiness probe.
async fn answered(
    peer: Peer<RoleClient>,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    if body.is_empty() {
        return Ok(Response::new(Full::default()));
    }
    let ToolRequest { id, mut params } = serde_json::from_slice(&body)?;
    // Drops the metadata of the request: the SDK sets its own.
    params.meta = None;
    let result = peer.call_tool(params).await?;
    let answer = RpcResponse {
        jsonrpc: "2.0",
        id,
        result,
    };
    Ok(Response::new(serde_json::to_vec(&answer)?.into()))
}
