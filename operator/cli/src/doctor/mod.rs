//! `doctor`: checks an installation and its agents, and says what is wrong and what to do.
//!
//! [`checks`] decide from facts that `crate::cluster::installation` has read, [`report`] prints, and
//! [`bundle`] writes a file for a bug report. Invariant: the cluster is only read.

mod bundle;
mod checks;
mod finding;
mod report;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::args::{DoctorArgs, OperatorArgs};
use crate::cluster::{Session, WithoutCluster};
use crate::failure::Failure;
use crate::print::{self, Output};

pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.bundle {
        bundle::check(args, path)?;
    }
    let operator = OperatorArgs::default();
    let session = Session::open(&args.cluster, &operator, WithoutCluster::Nothing)?;
    let facts = session.installation(&args.operator_namespace)?;
    let findings = checks::all(&facts);
    let text = match args.output {
        Output::Table => report::text(&findings),
        Output::Json | Output::Yaml => print::value(&findings, args.output)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    if let Some(path) = &args.bundle {
        bundle::write(args, path, &session, &facts, &findings)?;
    }
    Ok(report::exit_code(&findings))
}
