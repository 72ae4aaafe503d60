//! Tools over MCP: the mediator's call for a native client, a call of a wrapped server, and the
//! memory of sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;

use super::{Bench, CONNECTIONS};
use crate::Plan;
use crate::load::{Load, Step, Work, ask, connected};
use crate::manifest::{Streaming, Transport};
use crate::pairs::{LoadTarget, MIB, Pairs, memory};
use crate::process::Program;
use crate::report::Row;

const CALL: &str = "a tool's call over MCP, for a client at /mcp";
const WRAPPED: &str = "a wrapped MCP server's call";
const LISTENING: &str = "64 sessions at /mcp, each listening";
const CREDENTIALS: &str = "64 sessions of an MCP server, one for each credential";
/// Number of sessions, which is the mediator's bound on the sessions of its clients and of its MCP
/// servers.
const HELD: usize = 64;
/// Number of calls of each tool, after which the memory is stable.
const ROUNDS: usize = 4;

const PATH: &str = "/mcp";
const SESSION: &str = "mcp-session-id";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
/// A text that every result contains.
const RESULT: &str = "depth_m";

/// A call as the mediator sends it.
pub(super) fn downstream_call() -> Step {
    call("depth_0", r#"{"spot":"reed 0","claw_id":"otter"}"#)
}

/// A call as a client of the mediator sends it.
fn native_call(tool: usize) -> Step {
    call(&format!("pond__depth_{tool}"), r#"{"spot":"reed 0"}"#)
}

/// A `tools/call` of MCP revision 2026-07-28.
fn call(name: &str, arguments: &str) -> Step {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"toolcrib","version":"0.1.0"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    Step::post(PATH, body)
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", "tools/call")
        .with("mcp-name", name)
}

impl Bench {
    pub(super) async fn mcp(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        if plan.wants(CALL) {
            rows.extend(self.call(plan).await?);
        }
        if plan.wants(WRAPPED) {
            rows.extend(self.wrapped(plan).await?);
        }
        if plan.wants(LISTENING) {
            rows.extend(self.listening(plan).await?);
        }
        if plan.wants(CREDENTIALS) {
            rows.extend(self.credentials(plan).await?);
        }
        Ok(rows)
    }

    /// Measures the mediator's call of the scripted server beside the same call by the protocol's
    /// own SDK; both are requested over HTTP.
    async fn call(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self
            .mediator_of(plan, 10, Streaming::Buffered, Transport::Mcp)
            .await?;
        let address = toolcrib_ports::free()?;
        let (listen, upstream) = (address.to_string(), self.servers_address.to_string());
        let arguments = ["--listen", &listen, "--upstream", &upstream];
        let mut bare = Program::start(&plan.bare_mcp, &arguments)?;
        bare.ready(address, "/").await?;
        proved(address, &downstream_call()).await?;
        proved(mediator.address, &native_call(0)).await?;
        let (asked, work) = (Work::from(downstream_call()), Work::from(native_call(0)));
        let reference = LoadTarget::connect(&bare, address, CONNECTIONS, asked);
        let measured = LoadTarget::connect(&mediator.program, mediator.address, CONNECTIONS, work);
        let sides = [reference.await?, measured.await?];
        rows_of(CALL, sides, plan, [&bare, &mediator.program]).await
    }

    /// Measures the scripted server on standard streams behind the wrapper, beside the same
    /// server on HTTP behind the bare proxy. Both are one hop, so the server's own time cancels
    /// out.
    async fn wrapped(&self, plan: &Plan) -> Result<Vec<Row>> {
        let address = toolcrib_ports::free()?;
        let server = plan.programs.join("bench-servers").display().to_string();
        let listen = address.to_string();
        let arguments = ["--listen", &listen, "--", &server, "--stdio"];
        let mut wrapper = Program::start(&plan.wrapper, &arguments)?;
        wrapper.ready(address, "/readyz").await?;
        for place in [self.bare_address, address] {
            proved(place, &downstream_call()).await?;
        }
        let work = || Work::from(downstream_call());
        let reference = LoadTarget::connect(&self.bare, self.bare_address, CONNECTIONS, work());
        let measured = LoadTarget::connect(&wrapper, address, CONNECTIONS, work());
        let sides = [reference.await?, measured.await?];
        rows_of(WRAPPED, sides, plan, [&self.bare, &wrapper]).await
    }

    async fn listening(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self
            .mediator_of(plan, 10, Streaming::Buffered, Transport::Mcp)
            .await?;
        // The first session allocates memory that all sessions share.
        let mut held = vec![EventSession::begin(mediator.address).await?];
        let (before, _) = mediator.program.memory()?;
        while held.len() < HELD {
            held.push(EventSession::begin(mediator.address).await?);
        }
        let (after, _) = mediator.program.memory()?;
        Ok(vec![Row::alone(
            LISTENING,
            "memory of each",
            "KiB",
            each(before, after),
        )])
    }

    /// Measures the memory of the mediator after the same calls in one session, and in one session
    /// per credential.
    async fn credentials(&self, plan: &Plan) -> Result<Vec<Row>> {
        let one = self.called(plan, Transport::McpSession).await?;
        let many = self.called(plan, Transport::McpSessions).await?;
        let mib = |kib: u64| kib as f64 / MIB;
        Ok(vec![
            Row::beside(
                CREDENTIALS,
                "memory, and in one",
                "MiB",
                mib(one),
                mib(many),
            ),
            Row::alone(CREDENTIALS, "memory of each", "KiB", each(one, many)),
        ])
    }

    /// Returns the mediator's memory, in KiB, after calls of every tool.
    async fn called(&self, plan: &Plan, transport: Transport) -> Result<u64> {
        let mediator = self
            .mediator_of(plan, HELD, Streaming::Buffered, transport)
            .await?;
        proved(mediator.address, &native_call(0)).await?;
        let calls = Arc::new(Work((0..HELD).map(native_call).collect()));
        let mut load = Load::connect(mediator.address, 1).await?;
        load.run(&calls, ROUNDS).await?;
        Ok(mediator.program.memory()?.0)
    }
}

async fn rows_of(
    case: &'static str,
    sides: [LoadTarget<'_>; 2],
    plan: &Plan,
    [reference, measured]: [&Program; 2],
) -> Result<Vec<Row>> {
    let pairs = Pairs::measure(case, sides, plan.pairs, plan.requests).await?;
    let mut rows = vec![pairs.cpu()];
    rows.extend(pairs.latency_and_throughput());
    rows.push(memory(case, reference, measured)?);
    Ok(rows)
}

/// Returns the memory of each session after the first, in KiB. The allocator can make it negative.
fn each(with_one: u64, with_all: u64) -> f64 {
    (with_all as f64 - with_one as f64) / (HELD - 1) as f64
}

/// Checks that the call returns the tool's result, which the HTTP status does not show.
async fn proved(address: SocketAddr, step: &Step) -> Result<()> {
    let answer = ask(address, step).await?;
    ensure!(answer.contains(RESULT), "{address} answered {answer}");
    Ok(())
}

/// A client's session with its stream of change events. Dropping it disconnects the client.
struct EventSession {
    _sender: SendRequest<Full<Bytes>>,
    _stream: Response<Incoming>,
}

impl EventSession {
    async fn begin(address: SocketAddr) -> Result<Self> {
        let mut sender = connected(address).await?;
        let initialize = Step::post(PATH, INITIALIZE);
        let begun = sender.send_request(initialize.request()?).await?;
        let session = begun.headers().get(SESSION);
        let session = session
            .context("no session was begun")?
            .to_str()?
            .to_string();
        begun.into_body().collect().await?;
        let listen = Step::get(PATH)
            .with("accept", "text/event-stream")
            .with(SESSION, session);
        sender.ready().await?;
        let stream = sender.send_request(listen.request()?).await?;
        let status = stream.status();
        ensure!(status.is_success(), "listening is answered {status}");
        Ok(Self {
            _sender: sender,
            _stream: stream,
        })
    }
}
