//! `--bundle`: a tar file for a bug report.
//!
//! [`redact`] says what of an object may be in it, [`content`] makes the files, and this file asks and
//! writes. Invariant: nothing is written before the user has seen the list of the files and agreed.

mod content;
mod redact;

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_compile::names;

use self::content::{File, Log};
use super::finding::Finding;
use crate::args::DoctorArgs;
use crate::cluster::Session;
use crate::cluster::installation::{CONTROLLER, Facts, WEBHOOK};
use crate::failure::Failure;
use crate::print::plain;

/// Most mediators whose logs are read.
const MOST_LOGS: usize = 20;
/// The folder in the archive.
const FOLDER: &str = "toolcrib-bundle";

/// Reads what else belongs to a bug report, asks, and writes `path`.
pub fn write(
    args: &DoctorArgs,
    path: &Path,
    session: &Session,
    facts: &Facts,
    findings: &[Finding],
) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(format_args!(
            "{} exists: name another file with --bundle",
            path.display()
        )));
    }
    let documents = session.documents(facts)?;
    let logs = if args.logs {
        logs(session, facts)
    } else {
        Vec::new()
    };
    let files = content::files(facts, &documents, findings, &logs)?;
    eprint!("\n{}", list(path, &files, args.logs));
    if !args.yes && !agrees()? {
        eprintln!("nothing is written: answer y, or give --yes");
        return Ok(());
    }
    archive(path, &files).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}: read it before you give it away", path.display());
    Ok(())
}

/// The list of the files, for the user's decision.
fn list(path: &Path, files: &[File], with_logs: bool) -> String {
    let mut text = format!("{} will have:\n", plain(&path.display().to_string()));
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
        "It has no Secret, no argument of a call, no value of a variable and no token{logs}. It has names, and messages of status and events.\n"
    )
}

fn agrees() -> anyhow::Result<bool> {
    eprint!("Write it? [y/N] ");
    io::stderr().flush().context("cannot ask")?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
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
fn logs(session: &Session, facts: &Facts) -> Vec<Log> {
    let mut wanted: Vec<(String, String, &str)> = Vec::new();
    let endpoints = facts.endpoints.iter().flatten();
    let targets = endpoints
        .flat_map(|slice| &slice.endpoints)
        .filter_map(|it| it.target_ref.as_ref());
    for target in targets {
        let pod = target.name.clone().unwrap_or_default();
        let webhook = format!("{}-{WEBHOOK}-", facts.release.name);
        let container = if pod.starts_with(&webhook) {
            WEBHOOK
        } else {
            CONTROLLER
        };
        wanted.push((facts.release.namespace.clone(), pod, container));
    }
    wanted.sort();
    wanted.dedup();
    let mediated = |pod: &&Pod| {
        let spec = pod.spec.as_ref();
        let mut containers = spec
            .into_iter()
            .flat_map(|it| it.init_containers.iter().flatten());
        containers.any(|container| container.name == names::MEDIATOR_CONTAINER)
    };
    let pods = facts.pods.iter().flatten().filter(mediated).take(MOST_LOGS);
    wanted.extend(pods.map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        (namespace, pod.name_any(), names::MEDIATOR_CONTAINER)
    }));
    let read = wanted.into_iter().map(|(namespace, pod, container)| Log {
        text: session.log(&namespace, &pod, container),
        container: container.to_owned(),
        namespace,
        pod,
    });
    read.collect()
}
