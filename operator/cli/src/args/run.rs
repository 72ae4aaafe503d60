//! `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::FileArgs;
use super::values::{LocalAddress, SecretFrom};

#[derive(ClapArgs)]
pub struct RunArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The agent that the program runs as
    #[arg(long, value_name = "NAME")]
    pub agent: String,
    /// The agent's namespace, if the name alone is not unique
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The address of a surface on this machine: SURFACE=URL, or provider:NAME=URL for a model
    /// provider. A URL without a path keeps the path of the object. May be repeated
    #[arg(long, value_name = "SURFACE=URL", value_parser = LocalAddress::parse)]
    pub at: Vec<LocalAddress>,
    /// A credential outside the files: NAMESPACE/NAME/KEY=env:VARIABLE, or
    /// =file:PATH. The program does not get the variable. May be repeated
    #[arg(long, value_name = "NAMESPACE/NAME/KEY=env:VARIABLE", value_parser = SecretFrom::parse)]
    pub secret: Vec<SecretFrom>,
    /// Send a credential of --secret to several hosts without asking
    #[arg(long)]
    pub yes: bool,
    /// The mediator's program; without it, toolcrib-sidecar beside this program, else on PATH
    #[arg(long, value_name = "PATH")]
    pub sidecar: Option<PathBuf>,
    /// Folder for the record (history.jsonl); without it, the record is deleted at the end
    #[arg(long, value_name = "DIR")]
    pub history_dir: Option<PathBuf>,
    /// Print the mediator's log lines to standard error
    #[arg(long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
