//! `approvals`: calls that wait for a person. `approve` and `deny`: the decision about one.

mod decide;
mod shown;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::ToolApproval;

use crate::args::{ApprovalsArgs, OperatorArgs};
use crate::cluster::{Session, WithoutCluster};
use crate::failure::Failure;
use crate::print::{self, Output};

pub use decide::{approve, deny};

pub fn approvals(args: &ApprovalsArgs) -> Result<ExitCode, Failure> {
    let session = Session::open(
        &args.cluster,
        &OperatorArgs::default(),
        WithoutCluster::Nothing,
    )?;
    if args.watch {
        return watch(&session);
    }
    let text = match &args.approval {
        Some(name) => {
            let key = ObjectRef::new(session.default_namespace(), &**name);
            let approval = session.approval(&key)?;
            match args.output {
                Output::Table => shown::whole(&approval, Timestamp::now()),
                Output::Json | Output::Yaml => print::value(&approval, args.output)?,
            }
        }
        None => {
            let mut approvals = session.approvals()?;
            approvals.sort_by_key(shown::order);
            match args.output {
                Output::Table if approvals.is_empty() => none(&session),
                Output::Table => {
                    shown::table(&approvals, session.namespace.is_none(), Timestamp::now())
                }
                Output::Json | Output::Yaml => print::value(&approvals, args.output)?,
            }
        }
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn none(session: &Session) -> String {
    match &session.namespace {
        Some(namespace) => format!("no call waits for an approval in namespace {namespace}\n"),
        None => "no call waits for an approval\n".to_owned(),
    }
}

/// Prints each ToolApproval, and again whenever its phase changes.
fn watch(session: &Session) -> Result<ExitCode, Failure> {
    let mut phases: BTreeMap<String, String> = BTreeMap::new();
    session.watch_approvals(|approval: &ToolApproval| {
        let uid = approval.metadata.uid.clone().unwrap_or_default();
        let phase = shown::phase(approval);
        if phases.get(&uid) == Some(&phase) {
            return Ok(());
        }
        phases.insert(uid, phase);
        say(&shown::line(
            approval,
            session.namespace.is_none(),
            Timestamp::now(),
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) -> anyhow::Result<()> {
    print::to_stdout(text).context("cannot write to standard output")
}
