//! The `toolcrib-mcp-stdio` binary: startup, shutdown and `--install`. It also starts as the child.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::sync::watch;
use tokio::time::timeout;
use toolcrib_mcp_stdio::args::Cli;
use toolcrib_mcp_stdio::child;
use toolcrib_mcp_stdio::orphans;
use toolcrib_mcp_stdio::relay::Relay;
use toolcrib_mcp_stdio::routes::{App, router};
use toolcrib_mcp_stdio::supervisor::{self, State};
use toolcrib_mcp_stdio::token::TokenFile;
use toolcrib_serve::bind;
use toolcrib_sidecar::app::connections;
use toolcrib_sidecar::app::connections::Bounds;
use toolcrib_sidecar::app::sessions::Sessions;
use toolcrib_sidecar::process;
use toolcrib_sidecar::process::log::Log;

/// Allows twice as many connections as concurrent calls, so that probes and new sessions have room.
const BOUNDS: Bounds = Bounds {
    connections: 128,
    head: Duration::from_secs(75),
    head_bytes: 16 * 1024,
};
/// Limits sessions. There is about one per mediator; each stores a name and a time.
const SESSIONS: usize = 1024;
/// Timeout for running calls after SIGTERM. Together with the child's grace periods it is less than
/// the 30 s that Kubernetes grants by default.
const DRAIN: Duration = Duration::from_secs(20);
/// Timeout for sending the errors of calls that ran longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let ended = match child::become_child(std::env::args_os().skip(1)) {
        Some(Err(error)) => Err(error),
        None => start(Cli::parse()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toolcrib-mcp-stdio: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    match &cli.install {
        Some(folder) => install(folder),
        None => serve(cli),
    }
}

fn install(folder: &Path) -> anyhow::Result<()> {
    let to = folder.join(env!("CARGO_BIN_NAME"));
    std::fs::copy("/proc/self/exe", &to)
        .with_context(|| format!("cannot copy this program to {}", to.display()))?;
    Ok(())
}

fn serve(cli: Cli) -> anyhow::Result<()> {
    let log = Log::to_stderr()?;
    // Uses a single thread: the kernel ends the children when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(run(cli));
    log.close();
    result
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let token = cli.token_file.map(TokenFile::new).transpose()?;
    let listener = bind(cli.listen)
        .await
        .with_context(|| format!("cannot listen on {}", cli.listen))?;
    let address = listener.local_addr()?;
    orphans::adopt().context("cannot adopt orphaned processes")?;
    let (state, states) = watch::channel(State::Starting { before: None });
    let (stop_child, child_stopped) = watch::channel(false);
    let (stop_serving, serving_stopped) = watch::channel(false);
    let app = Arc::new(App {
        relay: Relay::new(states, Duration::from_secs(cli.call_timeout)),
        sessions: Sessions::new(SESSIONS),
        token,
    });
    let child = tokio::spawn(supervisor::run(cli.command, state, child_stopped));
    let mut served = connections::serve(listener, router(app), BOUNDS, None, serving_stopped);
    tracing::info!(listen = address.to_string(), "serving");

    process::terminated(false).await?;
    tracing::info!("draining");
    stop_serving.send_replace(true);
    let drained = timeout(DRAIN, &mut served).await.is_ok();
    stop_child.send_replace(true);
    child.await.context("the supervisor task panicked")?;
    if !drained && timeout(LAST_WORDS, served).await.is_err() {
        tracing::warn!("shutdown deadline exceeded, in-flight responses dropped");
    }
    Ok(())
}
