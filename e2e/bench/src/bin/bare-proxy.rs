//! The reference for the mediator and the wrapper: a reverse proxy on bare hyper. It only forwards
//! requests and responses, streams both, and pools its connections.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Parser;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    upstream: SocketAddr,
}

type Upstream = Client<HttpConnector, Incoming>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // As many threads as the measured machine has cores, as a proxy would have.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.context("listen")?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let service = service_fn(move |request| pass(client.clone(), args.upstream, request));
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

async fn pass(
    client: Upstream,
    upstream: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Either<Incoming, Empty<Bytes>>>, http::Error> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let uri = Uri::try_from(format!("http://{upstream}{path}"))?;
    *request.uri_mut() = uri;
    match client.request(request).await {
        Ok(response) => Ok(response.map(Either::Left)),
        Err(_) => Response::builder()
            .status(StatusCode::BAD_GATEWAY)
            .body(Either::Right(Empty::new())),
    }
}
