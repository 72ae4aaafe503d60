//! Reads the API server's audit log of all tests on the node, before Toolcrib is uninstalled. The
//! accounts must have used all of their rights and no others, and the webhook's account must not
//! have asked for a Secret.
//!
//! A separate target, since it reads the log that the other tests produce.

#[path = "governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toolcrib_e2e::audit::rare::STEPS;
use toolcrib_e2e::audit::{self, Findings, Use, was_used};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{NAMESPACE, PollResult, RELEASE};

/// Namespace for the rare requests; the operator has rights in it.
const HERE: &str = "rights";

#[test]
fn the_accounts_used_all_of_their_rights_and_no_others() -> Result<()> {
    let platform = support::platform()?;
    let evidence = Evidence::of(&platform, &[HERE]);
    let path = platform.cluster().audit_log();
    let mut log = Log::new(path.context("a cluster of yours keeps its log elsewhere")?);
    log.read()?;
    for step in STEPS {
        let from = log.uses.len();
        platform.apply(&step.manifest(HERE))?;
        let what = format!("{} {} to be used", step.verb, step.resource);
        platform.eventually(&what, support::START, || {
            log.read()?;
            let new = &log.uses[from..];
            let seen: Vec<String> = new.iter().map(Use::to_string).collect();
            Ok(PollResult::when(
                was_used(new, step.verb, step.resource),
                seen.join("; "),
            ))
        })?;
    }

    let selector = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let list = platform.get(&[
        "clusterroles,clusterrolebindings,roles,rolebindings",
        "--all-namespaces",
        &selector,
    ])?;
    let objects: Vec<Value> = serde_json::from_value(list["items"].clone())?;
    let rights = audit::rights(&objects)?;
    ensure!(rights.len() > 40, "the chart's rights: {}", rights.len());
    // The last requests may still be in progress.
    let mut findings = Findings::default();
    let settled = platform.eventually("every right to be used", support::START, || {
        log.read()?;
        findings = audit::check(&log.uses, &rights);
        Ok(PollResult::when(
            findings.unused.is_empty(),
            findings.to_string(),
        ))
    });
    settled?;
    ensure!(findings.none(), "{findings}");
    let webhook = audit::user(NAMESPACE, &format!("{RELEASE}-webhook"));
    let asked = log
        .uses
        .iter()
        .find(|used| used.user == webhook && used.resource == "secrets");
    ensure!(asked.is_none(), "the webhook asked for a Secret: {asked:?}");
    println!(
        "{} requests, {} rights, all used",
        log.uses.len(),
        rights.len()
    );
    evidence.passed()
}

/// The log of this installation's accounts, as far as it has been read.
struct Log {
    path: PathBuf,
    offset: u64,
    uses: Vec<Use>,
}

impl Log {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            uses: Vec::new(),
        }
    }

    fn read(&mut self) -> Result<()> {
        let mut file = File::open(&self.path).context("audit log")?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line may be incomplete.
        let end = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        self.offset += u64::try_from(end)?;
        let text = std::str::from_utf8(&text[..end])?;
        // Filters lines before decoding: only a few of a hundred requests are from these accounts.
        let account = audit::user(NAMESPACE, "");
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(&account))
            .collect();
        let mut uses = audit::uses(&lines.join("\n"))?;
        uses.retain(|used| used.user.starts_with(&account));
        self.uses.extend(uses);
        Ok(())
    }
}
