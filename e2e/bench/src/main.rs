//! `toolcrib-bench`: parses, measures, prints.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;
use toolcrib_bench::gateway::InstalledGateway;
use toolcrib_bench::machine::Machine;
use toolcrib_bench::{Plan, audit, cases, compiler, report};

/// Measures the mediator, the wrapper, the compiler and `audit`, as ratios to a reference in the same run.
#[derive(Parser)]
#[command(name = "toolcrib-bench")]
struct Args {
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Run every case once, to show that it runs. The figures mean nothing.
    #[arg(long)]
    short: bool,
    /// Run only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Directory of bare-proxy and bench-servers; default: this program's.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// The mediator's program; default: toolcrib-sidecar beside them.
    #[arg(long)]
    mediator: Option<PathBuf>,
    /// The wrapper's program; default: toolcrib-mcp-stdio beside them.
    #[arg(long)]
    wrapper: Option<PathBuf>,
    /// The command line's program; default: kubectl-toolcrib beside them.
    #[arg(long)]
    command_line: Option<PathBuf>,
    /// The reference for calls over MCP; default: bare-mcp beside them.
    #[arg(long)]
    bare_mcp: Option<PathBuf>,
    /// Number of pairs of slices per case, one of the reference and one of the measured program.
    #[arg(long)]
    pairs: Option<usize>,
    /// Measure only gateways of others and the mediator, on the same cases: `smg=PROGRAM` or
    /// `litellm=PROGRAM`. May be repeated.
    #[arg(long = "gateway", value_name = "NAME=PROGRAM")]
    gateways: Vec<InstalledGateway>,
    /// Compile this number of agents in this process and print time and memory.
    #[arg(long, hide = true)]
    fleet: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(agents) = args.fleet {
        println!("{}", serde_json::to_string(&compiler::fleet(agents)?)?);
        return Ok(());
    }
    let programs = match args.programs {
        Some(programs) => programs,
        None => {
            let own = std::env::current_exe().context("find this program")?;
            own.parent().context("a program is in a folder")?.to_owned()
        }
    };
    let mut plan = if args.short {
        Plan::short(programs)
    } else {
        Plan::full(programs)
    };
    plan.mediator = args.mediator.unwrap_or(plan.mediator);
    plan.wrapper = args.wrapper.unwrap_or(plan.wrapper);
    plan.command_line = args.command_line.unwrap_or(plan.command_line);
    plan.bare_mcp = args.bare_mcp.unwrap_or(plan.bare_mcp);
    plan.only.clone_from(&args.only);
    plan.gateways = args.gateways;
    plan.pairs = args.pairs.unwrap_or(plan.pairs).max(1);
    let machine = Machine::this();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rows = if plan.gateways.is_empty() {
        let mut rows = runtime.block_on(cases::all(&plan))?;
        rows.extend(compiler::all(&plan)?);
        rows.extend(audit::all(&plan)?);
        rows
    } else {
        runtime.block_on(cases::field(&plan))?
    };
    if let (true, Some(only)) = (rows.is_empty(), &args.only) {
        bail!("no case has {only:?} in its name; --short prints the names in seconds");
    }
    if args.json {
        println!("{}", report::json(&machine, &rows)?);
    } else {
        print!("{}", report::table(&machine, &rows));
    }
    Ok(())
}
