//! `trading-desk`: the demo's service.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;
use toolcrib_e2e::services::desk::{DeskState, router};
use toolcrib_e2e::services::serving;

/// The demo's service: market contexts, trades, positions, and a log of its requests.
///
/// Plain HTTP; every route but /healthz requires a bearer token. `?delay=MILLISECONDS` on any
/// request delays its answer.
#[derive(Parser)]
#[command(name = "trading-desk", version)]
struct Args {
    /// Address to listen on.
    #[arg(long, env = "TRADING_DESK_LISTEN", default_value = "127.0.0.1:4000")]
    listen: SocketAddr,
    /// Directory with one file per principal: the file's name is the principal, its content the
    /// token. Read again on each request.
    #[arg(long, env = "TRADING_DESK_TOKENS_DIR")]
    tokens_dir: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .init();
    serving::serve(args.listen, router(DeskState::new(args.tokens_dir))).await
}
