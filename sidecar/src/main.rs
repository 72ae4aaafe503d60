//! `toolcrib-sidecar`: the mediator's process. See the library for what it does.

use std::process::ExitCode;

use clap::Parser;
use toolcrib_sidecar::app::Limits;
use toolcrib_sidecar::http::server::Server;
use toolcrib_sidecar::process::args::{Cli, Command, ServeArgs};
use toolcrib_sidecar::process::log::Log;
use toolcrib_sidecar::process::{self, probe};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Probe(args)) => probe::probe(&args).map_err(anyhow::Error::from),
        None => serve(cli.serve),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toolcrib-sidecar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    process::make_undumpable()?;
    let log = Log::to_stderr()?;
    let result = run(args);
    log.close();
    result
}

fn run(args: ServeArgs) -> anyhow::Result<()> {
    // A single thread: waking another one would cost as much as the work on a request. The
    // largest body occupies the thread for some tens of milliseconds, and nothing here is that
    // urgent.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(8)
        .enable_all()
        .build()?;
    let with_stdin = args.exit_with_stdin;
    let result = runtime.block_on(async {
        let server = Server::start(args, Limits::default(), std::io::stdout()).await?;
        tracing::info!(
            listen = server.address.to_string(),
            admin = server.admin_address.to_string(),
            "serving"
        );
        process::terminated(with_stdin).await?;
        tracing::info!("draining");
        server.drain().await;
        Ok(())
    });
    // Dropping the runtime would wait for a write to a stdout that nobody reads.
    runtime.shutdown_background();
    result
}
