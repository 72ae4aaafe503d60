//! `audit` and `audit verify`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use jiff::Timestamp;
use toolcrib_record::{Digest, Head};

use super::suspend::agent_name;
use super::{ClusterArgs, examples, values};

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub verb: Option<AuditVerb>,
    #[command(flatten)]
    pub query: AuditQuery,
}

#[derive(Subcommand)]
pub enum AuditVerb {
    /// Check the chain of a record: whether lines are missing, changed or cut off
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyArgs),
}

fn agent(text: &str) -> Result<String, String> {
    agent_name(text).map_err(|why| format!("{why}; a file follows -f"))
}

/// The record that is read: files, or the mediators' logs; and its span.
#[derive(Clone, Debug, ClapArgs)]
pub struct RecordArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// File of a record (history.jsonl, or a saved log), or - for standard input; may be repeated.
    /// Without it, the mediators' logs are read with your own rights
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub records: Vec<PathBuf>,
    /// Only calls from this time on, such as 2026-12-31T08:00:00Z. Exit with 3 if the record of a pod
    /// begins later
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub since: Option<Timestamp>,
    /// Only calls before this time
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub until: Option<Timestamp>,
}

impl RecordArgs {
    /// Returns whether a time of the record is in the span.
    pub fn includes(&self, when: &str) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let Ok(when) = when.parse::<Timestamp>() else {
            return false;
        };
        self.since.is_none_or(|since| since <= when) && self.until.is_none_or(|until| when < until)
    }
}

/// The record that is read, and the calls of it that are shown.
#[derive(ClapArgs)]
pub struct AuditQuery {
    /// Only this agent, as NAME or agent/NAME
    #[arg(value_name = "AGENT", value_parser = agent)]
    pub agent: Option<String>,
    #[command(flatten)]
    pub record: RecordArgs,
    /// Only this tool, as SURFACE.TOOL
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only calls that were not allowed
    #[arg(long, group = "outcome")]
    pub denied: bool,
    /// Only calls that were allowed and failed
    #[arg(long, group = "outcome")]
    pub failed: bool,
    /// Only calls that a person has to look at: they may have run, and their outcome is unknown
    #[arg(long, group = "outcome")]
    pub unsettled: bool,
    /// Only calls that ran because a grant tries out its limits (`enforcement: Audit`)
    #[arg(long, group = "outcome")]
    pub would_deny: bool,
    /// Only calls that wait for an approval
    #[arg(long, group = "outcome")]
    pub pending: bool,
    /// Only calls about which this user decided
    #[arg(long, value_name = "USER")]
    pub decided_by: Option<String>,
    /// Only calls that this grant allowed, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME")]
    pub grant: Option<String>,
    /// Only the calls of this request
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// Print requests too, also those without calls
    #[arg(long, conflicts_with = "summary")]
    pub requests: bool,
    /// Print numbers per agent and tool instead of calls
    #[arg(long)]
    pub summary: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = AuditOutput::Table)]
    pub output: AuditOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuditOutput {
    /// For people
    Table,
    /// One JSON object per line
    Json,
    /// For spreadsheets. A cell that a spreadsheet would calculate begins with '
    Csv,
}

#[derive(ClapArgs)]
pub struct VerifyArgs {
    /// Files of records, or - for standard input. Lines that one file lacks and another one has are
    /// not missing
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// A line that is known from elsewhere, as an earlier `verify` printed it; may be repeated
    #[arg(long, value_name = "CHAIN:SEQ:HASH", value_parser = head)]
    pub head: Vec<Head>,
    /// Compare with the lines that the operator keeps in the status of this Agent, which is read from
    /// the cluster with your own rights
    #[arg(long, value_name = "NAME", value_parser = agent_name)]
    pub agent: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

fn head(text: &str) -> Result<Head, String> {
    let parse = || {
        let (chain, rest) = text.split_once(':')?;
        let (seq, hash) = rest.split_once(':')?;
        Some(Head {
            chain: chain.to_owned(),
            seq: seq.parse().ok()?,
            hash: Digest::parse(hash)?,
            aside: None,
        })
    };
    parse().ok_or_else(|| "write it as `audit verify` prints it: CHAIN:SEQ:HASH".to_owned())
}
