//! `--bundle`: a tar file for a bug report.
//!
//! [`redact`] removes what may not be in it, [`content`] makes the files, and this file asks and writes.
//!
//! Invariant: nothing is written before the user has seen the list of the files and agreed.

mod content;
mod redact;

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_compile::names;

use self::content::{Extras, File, Log};
use super::finding::Finding;
use crate::args::DoctorArgs;
use crate::cluster::Session;
use crate::cluster::installation::Facts;
use crate::failure::Failure;
use crate::print::{self, plain};

/// Most logs of the operator, and of mediators.
const MOST_LOGS: usize = 20;
/// The folder in the archive.
const FOLDER: &str = "toolcrib-bundle";

/// Fails if the file cannot be written, before anything is read.
pub fn check(args: &DoctorArgs, path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(format_args!(
            "{} exists: name another file with --bundle",
            path.display()
        )));
    }
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--bundle asks before it writes, and standard input is no terminal: add --yes",
        ));
    }
    Ok(())
}

/// Reads the other objects of a bug report, asks the user, and writes `path`.
pub fn write(
    args: &DoctorArgs,
    path: &Path,
    session: &Session,
    facts: &Facts,
    findings: &[Finding],
) -> Result<(), Failure> {
    let operator_pods = session.operator_pods(facts);
    let extras = Extras {
        documents: session.documents(facts)?,
        logs: match args.logs {
            true => logs(session, facts, operator_pods.as_deref().unwrap_or_default()),
            false => Vec::new(),
        },
        operator_pods,
    };
    let files = content::files(facts, &extras, findings)?;
    eprint!("\n{}", list(path, &files, args.logs));
    if !args.yes && !print::confirm("Write it?")? {
        eprintln!("bundle not written: answer y, or add --yes");
        return Ok(());
    }
    archive(path, &files).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}: read it before you share it", path.display());
    Ok(())
}

/// The list of the files, for the user's decision.
fn list(path: &Path, files: &[File], with_logs: bool) -> String {
    let mut text = format!("{} will contain:\n", plain(&path.display().to_string()));
    for file in files {
        let size = file.text.len().div_ceil(1024);
        text += &format!("  {:44} {size:6} KiB  {}\n", plain(&file.name), file.about);
    }
    let logs = if with_logs {
        ""
    } else {
        ", no log (--logs adds them)"
    };
    text + &format!(
        "It contains no Secret, no argument of a call, no value of a variable and no token{logs}. It contains names of objects, and messages of conditions and events.\n"
    )
}

/// Writes a new file that only the user may read.
fn archive(path: &Path, files: &[File]) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut archive = tar::Builder::new(file);
    for File { name, text, .. } in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.sync_all()
}

/// The logs of the operator, and of the first mediators.
fn logs(session: &Session, facts: &Facts, operator_pods: &[Pod]) -> Vec<Log> {
    let pods = facts.pods.as_deref().unwrap_or_default();
    let mediators = pods.iter().filter_map(|pod| {
        let spec = pod.spec.as_ref();
        let containers = spec
            .into_iter()
            .flat_map(|it| it.init_containers.iter().flatten());
        let mut containers = containers.filter(|it| it.name == names::MEDIATOR_CONTAINER);
        containers
            .next()
            .map(|container| (pod, container.name.clone()))
    });
    let operator = operator_pods.iter().flat_map(|pod| {
        let spec = pod.spec.as_ref();
        let containers = spec.into_iter().flat_map(|it| &it.containers);
        containers.map(move |container| (pod, container.name.clone()))
    });
    let wanted = operator.take(MOST_LOGS).chain(mediators.take(MOST_LOGS));
    let read = wanted.map(|(pod, container)| {
        let (namespace, pod) = (pod.namespace().unwrap_or_default(), pod.name_any());
        Log {
            text: session.log(&namespace, &pod, &container),
            namespace,
            pod,
            container,
        }
    });
    read.collect()
}
