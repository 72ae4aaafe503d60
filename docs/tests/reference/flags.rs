//! Flags of the programs that run in the cluster.

use clap::{Args as _, CommandFactory as _};

pub fn operator() -> String {
    let with = |name: &'static str, about: &'static str| clap::Command::new(name).about(about);
    let controller = toolcrib_operator::controller::Args::augment_args(with(
        "toolcrib-operator controller",
        "Compiles agents, writes status, serves the link, rotates the certificates; one of several replicas is the leader",
    ));
    let webhook = toolcrib_operator::webhook::Args::augment_args(with(
        "toolcrib-operator webhook",
        "Injects the mediator into labelled pods; has no right to any Secret",
    ));
    format!(
        "# The operator's flags\n\nOne program with two commands; [the chart](chart.md) sets all of this. Both take\n`--log` (`TOOLCRIB_LOG`, `info`): a level, or `target=level` pairs separated by commas.\nWhat it counts: [metrics](operator-metrics.md).\n\n{}{}",
        toolcrib_docs::command(&controller, 2),
        toolcrib_docs::command(&webhook, 2)
    )
}

pub fn mediator() -> String {
    let command = toolcrib_sidecar::process::args::Cli::command();
    format!(
        "# The mediator's flags\n\nInjection sets them; a flag wins over its variable, and no secret is either of the two.\nWhat it answers when it cannot: [errors](errors.md). What it counts:\n[metrics](../metrics.md).\n\n{}",
        toolcrib_docs::command(&command, 2)
    )
}

pub fn mcp_stdio() -> String {
    let command = toolcrib_mcp_stdio::args::Cli::command();
    format!(
        "# The wrapper's flags\n\nWhat it is for: [MCP servers on standard streams](../mcp-stdio.md).\n\n{}",
        toolcrib_docs::command(&command, 2)
    )
}
