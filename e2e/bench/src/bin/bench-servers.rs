//! The backends of every measurement, on one address: a scripted model, a tool service, and the
//! same service over MCP. At `/mcp` it speaks 2026-07-28 without sessions, at `/mcp/session`
//! 2025-11-25 with one session for all clients. With `--stdio` it is only an MCP server on standard
//! streams. It parses as little as possible, so the measured time is that of the programs in front
//! of it.
//!
//! The model's name sets its behaviour. In `otter-r2-t5-n17`, the digit after `-r` is the number of
//! tool rounds, the digit after `-t` the number of the tool (0 without it), and `-n` numbers the
//! request, so that the arguments of its calls have its number. `otter-hung` calls the tool that never
//! answers. A request with `"stream":true` is streamed. With `--report`, each call of a tool is one
//! line on standard output, with the name that the arguments give it.

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Parser;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    #[arg(long, required_unless_present = "stdio")]
    listen: Option<SocketAddr>,
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    #[arg(long)]
    report: bool,
}

type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// The path of the tool that never answers.
const HUNG: &str = "/depth_9?";

/// Number of events in a stream, and the pause between two events.
const EVENTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(2);

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let Some(listen) = args.listen else {
        return serve_lines();
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(listen, args.report))
}

fn serve_lines() -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        if let Some(answer) = answered(line?.as_bytes())? {
            writeln!(stdout, "{answer}")?;
        }
    }
    Ok(())
}

async fn serve(listen: SocketAddr, reports: bool) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.context("listen")?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            // An error means that the client has closed the connection, as at the end of a
            // benchmark.
            connection
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| answer(request, reports)),
                )
                .await
                .ok();
        });
    }
}

async fn answer(request: Request<Incoming>, reports: bool) -> anyhow::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let body = body.collect().await?.to_bytes();
    if reports && !path.ends_with("/chat/completions") {
        report(head.uri.query().unwrap_or_default().as_bytes())?;
        report(&body)?;
    }
    if head.uri.to_string().contains(HUNG) {
        std::future::pending::<()>().await;
    }
    Ok(match path {
        "/mcp" => mcp(&body)?,
        "/mcp/session" if memmem::find(&body, DISCOVER).is_some() => {
            let refused =
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown"}}"#;
            with_status(StatusCode::NOT_FOUND, refused.into())?
        }
        "/mcp/session" => {
            let mut response = mcp(&body)?;
            let session = HeaderValue::from_static("pond-session");
            response.headers_mut().insert("mcp-session-id", session);
            response
        }
        "/v1/models" => whole(Bytes::from_static(MODELS.as_bytes()))?,
        _ if path.ends_with("/chat/completions") => model(&body)?,
        _ => whole(Bytes::from_static(DEPTH.as_bytes()))?,
    })
}

/// The beginning of the name of a numbered call: `reed-REQUEST-ROUND`.
const NUMBERED: &[u8] = b"reed-";

/// Prints the name of the numbered call in this text, before the call is answered.
fn report(text: &[u8]) -> anyhow::Result<()> {
    let Some(begin) = memmem::find(text, NUMBERED) else {
        return Ok(());
    };
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let name = text[begin..].split(|byte| !in_name(byte)).next();
    let line = [name.unwrap_or_default(), b"\n"].concat();
    Ok(io::stdout().lock().write_all(&line)?)
}

const DEPTH: &str = r#"{"pond":"north","depth_m":3.25,"measured_at":"2026-02-03T04:05:06Z","points":[{"x":1,"y":2,"depth_m":3.1},{"x":4,"y":2,"depth_m":3.3},{"x":4,"y":7,"depth_m":3.35}],"surveyor":"heron-2","temperature_c":11.5,"note":"reeds along the western bank were not measured"}"#;

/// Gateways ask for the models before they pass a request on.
const MODELS: &str = r#"{"object":"list","data":[{"id":"house/otter-r0","object":"model","created":1770091506,"owned_by":"house"}]}"#;

const DISCOVER: &[u8] = b"server/discover";

fn mcp(body: &[u8]) -> anyhow::Result<Response<Body>> {
    match answered(body)? {
        Some(answer) => whole(answer.into()),
        None => with_status(StatusCode::ACCEPTED, Bytes::new()),
    }
}

/// Answers a message; `None` for a notification. The id, which is a number here, is returned
/// unchanged.
fn answered(message: &[u8]) -> anyhow::Result<Option<String>> {
    let after =
        |needle: &[u8]| memmem::find(message, needle).map(|at| &message[at + needle.len()..]);
    let Some(digits) = after(br#""id":"#) else {
        return Ok(None);
    };
    let digits = digits.split(|byte| !byte.is_ascii_digit()).next();
    let id = std::str::from_utf8(digits.unwrap_or_default())?;
    let result = match (after(DISCOVER), after(br#""method":"initialize""#)) {
        (Some(_), _) => {
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","resultType":"complete"}"#.to_string()
        }
        (None, Some(_)) => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"pond","version":"1"}}"#.to_string()
        }
        (None, None) => {
            format!(r#"{{"content":[],"structuredContent":{DEPTH},"resultType":"complete"}}"#)
        }
    };
    Ok(Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    )))
}

fn model(body: &[u8]) -> anyhow::Result<Response<Body>> {
    let finder = |needle: &[u8]| memmem::find(body, needle).map(|at| at + needle.len());
    let name = finder(b"otter-r").map_or(&[][..], |at| &body[at..]);
    let digit = |at: usize| name.get(at).map_or(0, |digit| digit.saturating_sub(b'0'));
    let wanted = usize::from(digit(0));
    let done = memmem::find_iter(body, br#""role":"tool""#).count();
    if finder(br#""stream":true"#).is_some() {
        return streamed();
    }
    if finder(b"otter-hung").is_some() {
        const CALL: &[u8] = br#"{"id":"chatcmpl-hung","object":"chat.completion","created":1770091506,"model":"otter","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_hung","type":"function","function":{"name":"pond__depth_9","arguments":"{\"spot\":\"reed\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":211,"completion_tokens":17,"total_tokens":228}}"#;
        return whole(Bytes::from_static(CALL));
    }
    if done < wanted {
        let has_tool = name.get(1..3) == Some(b"-t");
        let tool = if has_tool { digit(3) } else { 0 };
        let number = name.get(if has_tool { 4.. } else { 1.. });
        let number = number.and_then(|rest| rest.strip_prefix(b"-n"));
        let spot = match number.and_then(|rest| rest.split(|byte| !byte.is_ascii_digit()).next()) {
            Some(number) => format!("reed-{}-{done}", std::str::from_utf8(number)?),
            None => format!("reed {done}"),
        };
        let text = format!(
            r#"{{"id":"chatcmpl-{done}","object":"chat.completion","created":1770091506,"model":"otter","choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{done}","type":"function","function":{{"name":"pond__depth_{tool}","arguments":"{{\"spot\":\"{spot}\"}}"}}}}]}},"finish_reason":"tool_calls"}}],"usage":{{"prompt_tokens":211,"completion_tokens":17,"total_tokens":228}}}}"#
        );
        return whole(text.into());
    }
    const TEXT: &[u8] = br#"{"id":"chatcmpl-last","object":"chat.completion","created":1770091506,"model":"otter","choices":[{"index":0,"message":{"role":"assistant","content":"The pond is 3.25 m deep at its northern end, and shallower along the reeds, where nobody measured. Come back in spring, when the water is lower and the herons are elsewhere."},"finish_reason":"stop"}],"usage":{"prompt_tokens":211,"completion_tokens":43,"total_tokens":254}}"#;
    whole(Bytes::from_static(TEXT))
}

fn whole(body: Bytes) -> anyhow::Result<Response<Body>> {
    with_status(StatusCode::OK, body)
}

fn with_status(status: StatusCode, body: Bytes) -> anyhow::Result<Response<Body>> {
    Ok(Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Either::Left(Full::new(body)))?)
}

fn streamed() -> anyhow::Result<Response<Body>> {
    let event = |at: usize| {
        let text = match at {
            EVENTS => concat!(
                r#"data: {"id":"chatcmpl-last","object":"chat.completion.chunk","created":1770091506,"model":"otter","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                "\n\ndata: [DONE]\n\n"
            )
            .to_string(),
            _ => format!(
                "data: {}\n\n",
                format_args!(r#"{{"id":"chatcmpl-last","object":"chat.completion.chunk","created":1770091506,"model":"otter","choices":[{{"index":0,"delta":{{"role":"assistant","content":"word {at} "}},"finish_reason":null}}]}}"#)
            ),
        };
        Ok(Frame::data(Bytes::from(text)))
    };
    let events = stream::iter(0..=EVENTS)
        .then(move |at| async move {
            // The first event is sent at once, so that the time to first byte is that of the proxy
            // and not of the model.
            if at > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            event(at)
        })
        .boxed();
    Ok(Response::builder()
        .header(CONTENT_TYPE, "text/event-stream")
        .body(Either::Right(StreamBody::new(events)))?)
}
