//! `propose`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{self, dns_label};
use super::{OperatorArgs, RecordArgs};

#[derive(ClapArgs)]
pub struct ProposeArgs {
    /// The agent, as NAME or agent/NAME
    #[arg(value_parser = values::agent)]
    pub agent: String,
    #[command(flatten)]
    pub record: RecordArgs,
    /// Files or folders with the objects that are in force now; may be repeated. Without it, the
    /// cluster is read with your own rights. Secrets and Services that the files lack are assumed to
    /// exist
    #[arg(long, value_name = "PATH")]
    pub against: Vec<PathBuf>,
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// The name of the grant; without it, AGENT-proposed
    #[arg(long, value_name = "NAME", value_parser = dns_label)]
    pub name: Option<String>,
    /// Bound numbers too: minimum and maximum as in the record
    #[arg(long)]
    pub bounds: bool,
    /// With -o tests and -o json: write recorded arguments into the tests; without it, values that
    /// the grant does not hold are made up
    #[arg(long)]
    pub arguments: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ProposeOutput::Yaml)]
    pub output: ProposeOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProposeOutput {
    /// The grant, with the number of calls that each line rests on
    Yaml,
    /// A ToolTest for `kubectl toolcrib test`
    Tests,
    /// Grant, numbers, tests and plan, for programs
    Json,
}
