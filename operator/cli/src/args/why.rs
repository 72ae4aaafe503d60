//! `why`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{OperatorArgs, RecordArgs};
use crate::print::Output;

#[derive(ClapArgs)]
pub struct WhyArgs {
    /// The id of a call, as `audit` prints it
    #[arg(value_name = "CALL_ID")]
    pub call: String,
    #[command(flatten)]
    pub record: RecordArgs,
    /// Files or folders that the objects come from; may be repeated. In a git checkout, the answer has
    /// the line of the grant, its commit and its author. With -f, the grant is compared with these files
    /// instead of the cluster
    #[arg(long, value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// The API server's audit log, which names the user who wrote the grant; may be repeated
    #[arg(long, value_name = "FILE")]
    pub audit_log: Vec<PathBuf>,
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
