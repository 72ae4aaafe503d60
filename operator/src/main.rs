//! `toolcrib-operator`: one binary, two commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use toolcrib_operator::{controller, webhook};
use tracing_subscriber::EnvFilter;

/// The Toolcrib operator.
#[derive(Parser)]
#[command(name = "toolcrib-operator", version, about)]
struct Cli {
    /// Log filter: a level, or `target=level` pairs separated by commas.
    #[arg(long, env = "TOOLCRIB_LOG", default_value = "info", global = true)]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compiles agents into Secrets and ConfigMaps, writes status, serves the link, rotates
    /// the certificates. One of several replicas is the leader.
    Controller(Box<controller::Args>),
    /// Injects the mediator into labelled pods. Has no right to any Secret.
    Webhook(Box<webhook::Args>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("--log: {error}");
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the async runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Controller(args) => controller::main(*args).await,
            Command::Webhook(args) => webhook::run(*args).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Logs the error that ends the process with all its causes.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
