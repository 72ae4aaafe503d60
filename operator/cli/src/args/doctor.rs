//! `doctor`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::ClusterArgs;
use super::source::{DEFAULT_OPERATOR, OPERATOR};
use crate::print::Output;

#[derive(ClapArgs)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The operator's namespace
    #[arg(long, help_heading = OPERATOR, env = "TOOLCRIB_NAMESPACE", value_name = "NAME", default_value = DEFAULT_OPERATOR)]
    pub operator_namespace: String,
    /// Also write a tar file for a bug report: the findings, and the objects that they rest on. It
    /// lists its contents and asks first
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// With --bundle: add the logs of the operator and of mediators, without the lines of the record
    #[arg(long, requires = "bundle")]
    pub logs: bool,
    /// With --bundle: write it without a question
    #[arg(short, long, requires = "bundle")]
    pub yes: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
