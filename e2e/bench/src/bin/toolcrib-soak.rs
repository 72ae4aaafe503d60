//! `toolcrib-soak`: parses, runs, prints.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use toolcrib_bench::soak::{Settings, run};

/// Runs mediators under mixed load, with swaps, revocations, hung tools and kills of the upstream, and
/// checks memory, descriptors, tasks and the record.
#[derive(Parser)]
#[command(name = "toolcrib-soak")]
struct Args {
    /// Duration of the load in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Run 20 seconds, to show that everything runs.
    #[arg(long, conflicts_with = "minutes")]
    short: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Directory of bench-servers; default: this program's.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// The mediator's program; default: toolcrib-sidecar beside bench-servers.
    #[arg(long)]
    mediator: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let programs = match args.programs {
        Some(programs) => programs,
        None => {
            let own = std::env::current_exe().context("find this program")?;
            own.parent().context("a program is in a folder")?.to_owned()
        }
    };
    let upstream = programs.join("bench-servers");
    let mediator = args
        .mediator
        .unwrap_or_else(|| programs.join("toolcrib-sidecar"));
    let settings = if args.short {
        Settings::short(upstream, mediator)
    } else {
        Settings::full(upstream, mediator, Duration::from_secs(60 * args.minutes))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let report = runtime.block_on(run(&settings))?;
    if args.json {
        println!("{}", report.json()?);
    } else {
        print!("{}", report.table());
    }
    eprint!("{}", report.failures());
    Ok(match report.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
