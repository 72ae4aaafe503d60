//! The reference for the mediator and the wrapper: a reverse proxy on bare hyper. It only forwards
//! requests and responses, streams both, and pools its connections.
//!
//! With `--read` and `--record` it also does one part of a mediator's work, in little code,
//! so that a bench can say what that part costs by itself.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Parser;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Either, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    upstream: SocketAddr,
    /// Worker threads; by default as many as the measured machine has cores, as a proxy would have.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Read both bodies whole, and check that they are JSON.
    #[arg(long)]
    read: bool,
    /// Append two lines for each request to this file: one before it is sent, one with both bodies.
    /// Both have the SHA-256 of the line before, without bodies; so does standard output, which gets
    /// the second line.
    #[arg(long)]
    record: Option<PathBuf>,
}

type Upstream = Client<HttpConnector, Either<Incoming, Full<Bytes>>>;

/// Most lines that wait for standard output; more are dropped.
const QUEUE: usize = 512;
/// Time that a line waits for others, to be written with them.
const GATHER: Duration = Duration::from_millis(5);

struct Proxy {
    client: Upstream,
    upstream: SocketAddr,
    reads: bool,
    record: Option<Arc<Record>>,
}

/// A request and its response, for what is done with them besides passing them on.
struct Exchange {
    reads: bool,
    record: Option<Arc<Record>>,
    request: Bytes,
    response: Vec<u8>,
}

/// The body of a response, which is read as it passes.
struct ResponseBody {
    body: Incoming,
    exchange: Option<Exchange>,
}

/// Two lines for each request in a file, the second also on standard output.
struct Record {
    written: Mutex<RecordFile>,
    stdout: SyncSender<Vec<u8>>,
}

struct RecordFile {
    file: File,
    last: [u8; 32],
}

/// As many fields as a line of the mediator's record.
#[derive(Serialize)]
struct Line {
    kind: &'static str,
    request_id: &'static str,
    agent_id: &'static str,
    namespace: &'static str,
    pod: &'static str,
    timestamp: u128,
    dialect: &'static str,
    model: &'static str,
    token: &'static str,
    http_status: u16,
    previous: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut runtime = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime
        .worker_threads(args.threads)
        .enable_all()
        .build()?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.context("listen")?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let record = args.record.map(Record::open).transpose()?;
    let proxy = Arc::new(Proxy {
        client: Client::builder(TokioExecutor::new()).build(connector),
        upstream: args.upstream,
        reads: args.read,
        record: record.map(Arc::new),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = proxy.clone();
        let service = service_fn(move |request| {
            let proxy = proxy.clone();
            async move { proxy.pass(request).await }
        });
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

impl Proxy {
    async fn pass(
        &self,
        mut request: Request<Incoming>,
    ) -> anyhow::Result<Response<Either<ResponseBody, Empty<Bytes>>>> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let uri = Uri::try_from(format!("http://{}{path}", self.upstream))?;
        *request.uri_mut() = uri;
        let (head, body) = request.into_parts();
        let (body, exchange) = if self.reads || self.record.is_some() {
            let body = body.collect().await?.to_bytes();
            (
                Either::Right(Full::new(body.clone())),
                Some(self.exchange(body)?),
            )
        } else {
            (Either::Left(body), None)
        };
        match self.client.request(Request::from_parts(head, body)).await {
            Ok(response) => Ok(response.map(|body| Either::Left(ResponseBody { body, exchange }))),
            Err(_) => Ok(Response::builder()
                .status(StatusCode::BAD_GATEWAY)
                .body(Either::Right(Empty::new()))?),
        }
    }

    /// Reads a request that is about to be sent.
    fn exchange(&self, request: Bytes) -> anyhow::Result<Exchange> {
        if self.reads && !request.is_empty() {
            serde_json::from_slice::<IgnoredAny>(&request)?;
        }
        if let Some(record) = &self.record {
            record.write(None)?;
        }
        Ok(Exchange {
            reads: self.reads,
            record: self.record.clone(),
            request,
            response: Vec::new(),
        })
    }
}

impl Exchange {
    fn end(self) -> anyhow::Result<()> {
        // A stream of events is not JSON.
        let is_json = self.response.first() == Some(&b'{');
        if self.reads && is_json {
            serde_json::from_slice::<IgnoredAny>(&self.response)?;
        }
        if let Some(record) = &self.record {
            record.write(Some((&self.request, &self.response)))?;
        }
        Ok(())
    }
}

impl Record {
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        let file = File::options().append(true).create(true).open(&path);
        let (stdout, lines) = sync_channel(QUEUE);
        std::thread::spawn(move || drain(&lines));
        Ok(Self {
            written: Mutex::new(RecordFile {
                file: file.with_context(|| path.display().to_string())?,
                last: [0; 32],
            }),
            stdout,
        })
    }

    fn write(&self, bodies: Option<(&[u8], &[u8])>) -> anyhow::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Line {
            kind: bodies.map_or("model_call", |_| "turn"),
            request_id: "01JDTF5Z3W8A4V9N6K2M7R1XQE",
            agent_id: "claw:default/otter",
            namespace: "default",
            pod: "otter-0",
            timestamp: SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis(),
            dialect: "openai_chat",
            model: "house/otter",
            token: "runner",
            http_status: 200,
            previous: hex::encode(written.last),
        };
        let mut line = serde_json::to_vec(&line)?;
        // Neither the hash nor standard output has the bodies, as with the mediator.
        written.last = Sha256::digest(&line).into();
        if let Some((request, response)) = bodies {
            // A full queue means that nobody reads standard output; then lines are dropped.
            self.stdout.try_send([&line, &b"\n"[..]].concat()).ok();
            line.pop();
            for (name, body) in [("request", request), ("response", response)] {
                write!(line, ",\"{name}\":")?;
                match body.first() {
                    None => line.extend_from_slice(b"null"),
                    Some(b'{') => line.extend_from_slice(body),
                    Some(_) => serde_json::to_writer(&mut line, &String::from_utf8_lossy(body))?,
                }
            }
            line.push(b'}');
        }
        line.push(b'\n');
        written.file.write_all(&line)?;
        Ok(())
    }
}

fn drain(lines: &Receiver<Vec<u8>>) {
    let mut batch = Vec::new();
    while let Ok(first) = lines.recv() {
        std::thread::sleep(GATHER);
        batch.extend(first);
        lines.try_iter().for_each(|line| batch.extend(line));
        // An error means that nobody reads.
        if std::io::stdout().write_all(&batch).is_err() {
            return;
        }
        batch.clear();
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(exchange)) = (&frame, &mut this.exchange)
            && let Some(data) = frame.data_ref()
        {
            exchange.response.extend_from_slice(data);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.exchange.take().map(Exchange::end) {
            eprintln!("bare-proxy: {error:#}");
        }
    }
}
