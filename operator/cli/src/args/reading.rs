//! The verbs that read objects and print an answer: `compile`, `inject`, `explain`, `inspect`, `tree`, `plan`
//! and `test`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use jiff::Timestamp;

use super::values;
use super::{AssumedArgs, ClusterArgs, FileArgs, SourceArgs};
use crate::print::{Format, Output};

#[derive(ClapArgs)]
pub struct CompileArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
}

#[derive(ClapArgs)]
pub struct InjectArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The namespace of objects and pods that name none
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The mediator's image
    #[arg(long, default_value = concat!("docker.io/toolcrib/sidecar:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Output format of the pods
    #[arg(short, long, value_enum, default_value_t = PodFormat::Yaml)]
    pub output: PodFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PodFormat {
    /// One document each
    Yaml,
    /// As one List
    Json,
}

#[derive(ClapArgs)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The agent, as NAME or agent/NAME
    #[arg(value_parser = values::agent)]
    pub agent: String,
    /// One tool, as SURFACE.TOOL; without it, all tools that are granted or withheld
    pub tool: Option<String>,
    /// The time at which grants with a window are judged, such as 2026-12-31T08:00:00Z; without it,
    /// now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct InspectArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The surface's name
    pub surface: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct TreeArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The time at which grants with a window are judged, such as 2026-12-31T08:00:00Z; without it,
    /// now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub assumed: AssumedArgs,
    /// Files or folders with the objects that are in force now; may be repeated. Without it, the
    /// cluster is read with your own rights
    #[arg(long, value_name = "PATH", conflicts_with_all = ["context", "kubeconfig", "impersonate", "impersonate_groups", "all_namespaces"])]
    pub against: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Count objects that are not among the files as deleted, like `kubectl apply --prune` or a
    /// GitOps tool. In a cluster, this concerns Toolcrib's objects in the namespaces of the files
    #[arg(long)]
    pub prune: bool,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Exit with 3 if an agent loses something
    #[arg(long)]
    pub fail_on_loss: bool,
    /// Exit with 3 if an agent gains something
    #[arg(long)]
    pub fail_on_gain: bool,
    /// Exit with 3 if anything differs
    #[arg(long)]
    pub fail_on_change: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct TestArgs {
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub assumed: AssumedArgs,
    /// The time of the calls, such as 2026-12-31T08:00:00Z; without it, now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
