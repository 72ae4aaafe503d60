//! `approvals`, `approve` and `deny`.

use clap::Args as ClapArgs;
use toolcrib_manifest::LONGEST_REASON;

use super::values::dns_label;
use super::{ClusterArgs, ConnectionArgs};
use crate::print::Output;

#[derive(ClapArgs)]
pub struct ApprovalsArgs {
    /// One ToolApproval, with all its arguments
    #[arg(value_name = "NAME", value_parser = approval_name)]
    pub approval: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// List them, then print a line for each change, until interrupted
    #[arg(short, long, conflicts_with_all = ["approval", "output"])]
    pub watch: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// The decision about a ToolApproval.
#[derive(ClapArgs)]
pub struct DecideArgs {
    /// The ToolApproval
    #[arg(value_name = "NAME", value_parser = approval_name)]
    pub approval: String,
    /// The namespace; else the kubeconfig's own
    #[arg(short, long, value_parser = dns_label)]
    pub namespace: Option<String>,
    /// Why, in one line of at most 512 bytes: the agent reads it if its call is denied
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "", hide_default_value = true)]
    pub reason: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

fn approval_name(text: &str) -> Result<String, String> {
    let kinds = [
        "approval/",
        "toolapproval/",
        "toolapprovals/",
        "toolapprovals.toolcrib.dev/",
    ];
    let name = kinds
        .iter()
        .find_map(|kind| text.strip_prefix(kind))
        .unwrap_or(text);
    let is_of_a_name =
        |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    match !name.is_empty() && name.len() <= 253 && name.bytes().all(is_of_a_name) {
        true => Ok(name.to_owned()),
        false => Err("an approval's name has at most 253 lower-case letters, digits, '-' and '.': `kubectl toolcrib approvals` lists them".to_owned()),
    }
}

fn reason(text: &str) -> Result<String, String> {
    let is_hidden = |c: char| c.is_control() || toolcrib_bounds::is_hidden(c);
    match text.len() <= LONGEST_REASON && !text.contains(is_hidden) {
        true => Ok(text.to_owned()),
        false => Err(format!("write one line of at most {LONGEST_REASON} bytes")),
    }
}
