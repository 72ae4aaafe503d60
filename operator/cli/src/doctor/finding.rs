//! The findings of checks.

use std::collections::BTreeSet;

use serde::Serialize;
use toolcrib_bounds::listed;

use crate::cluster::installation::{Cause, Facts, Gap};

/// A subject that is checked. Findings are printed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    Versions,
    Definitions,
    Operator,
    Leader,
    Webhook,
    Certificates,
    Policies,
    Rights,
    Agents,
    Pods,
    Link,
    Secrets,
    Network,
    Hints,
}

impl Check {
    pub fn name(self) -> &'static str {
        match self {
            Check::Versions => "versions",
            Check::Definitions => "definitions",
            Check::Operator => "operator",
            Check::Leader => "leader",
            Check::Webhook => "webhook",
            Check::Certificates => "certificates",
            Check::Policies => "policies",
            Check::Rights => "rights",
            Check::Agents => "agents",
            Check::Pods => "pods",
            Check::Link => "link",
            Check::Secrets => "secrets",
            Check::Network => "network",
            Check::Hints => "hints",
        }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    Ok,
    /// Everything works, and a person should look at it.
    Warning,
    Error,
    /// The user may not read what the check needs.
    NotChecked,
}

impl Level {
    /// The word at the beginning of a line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
            Level::NotChecked => "NOT CHECKED",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: Check,
    pub level: Level,
    /// The fault and its object. With [`Level::Ok`], the state that was checked.
    pub message: String,
    /// The remedy: a command, a field, or an object to apply. Empty with [`Level::Ok`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cure: String,
}

/// The findings of one check.
#[derive(Debug)]
pub struct Findings {
    check: Check,
    findings: Vec<Finding>,
    gaps: BTreeSet<Gap>,
}

/// Most requests that a finding about gaps names.
const NAMED: usize = 3;

impl Findings {
    pub fn of(check: Check) -> Self {
        Self {
            check,
            findings: Vec::new(),
            gaps: BTreeSet::new(),
        }
    }

    pub fn error(&mut self, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Level::Error, message.into(), cure.into());
    }

    /// Reports that an object of the chart does not exist. If Deployments could not be listed, the name of
    /// the object is a guess, so this reports that gap instead.
    pub fn absent(&mut self, facts: &Facts, message: impl Into<String>, cure: impl Into<String>) {
        match &facts.deployments {
            Ok(_) => self.error(message, cure),
            Err(gap) => self.gap(gap),
        }
    }

    pub fn warning(&mut self, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Level::Warning, message.into(), cure.into());
    }

    /// Notes that an answer is missing. All gaps of a check are one finding.
    pub fn gap(&mut self, gap: &Gap) {
        self.gaps.insert(gap.clone());
    }

    fn push(&mut self, level: Level, message: String, cure: String) {
        self.findings.push(Finding {
            check: self.check,
            level,
            message,
            cure,
        });
    }

    /// Returns the findings, or one of [`Level::Ok`] with this message.
    pub fn finish(mut self, message: impl Into<String>) -> Vec<Finding> {
        if !self.gaps.is_empty() {
            let (message, cure) = not_checked(&self.gaps);
            self.push(Level::NotChecked, message, cure);
        }
        if self.findings.is_empty() {
            self.push(Level::Ok, message.into(), String::new());
        }
        self.findings
    }
}

/// Says what could not be read, and the rights that are missing.
fn not_checked(gaps: &BTreeSet<Gap>) -> (String, String) {
    let mut forbidden = Vec::new();
    let mut parts = Vec::new();
    for gap in gaps {
        match &gap.why {
            Cause::Forbidden => forbidden.push(&*gap.question),
            Cause::Failed(why) => parts.push(format!("could not {}: {why}", gap.question)),
        }
    }
    if forbidden.is_empty() {
        let cure = "try again; if it fails again, look at the API server";
        return (listed(&parts, NAMED), cure.to_owned());
    }
    let forbidden_words = format!("you may not {}", listed(&forbidden, NAMED));
    let rights: BTreeSet<String> = forbidden.iter().map(|question| right(question)).collect();
    let rights: Vec<String> = rights.into_iter().collect();
    let message = match parts.is_empty() {
        true => forbidden_words,
        false => format!("{forbidden_words}; {}", listed(&parts, NAMED)),
    };
    (message, format!("ask for {}", listed(&rights, NAMED)))
}

/// The right that a question needs: `get leases den/heron` needs `get` on leases in namespace den.
fn right(question: &str) -> String {
    let mut words = question.splitn(3, ' ');
    let (verb, resource) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let place = words.next().unwrap_or_default();
    let right = format!("`{verb}` on {resource}");
    match place.split_once('/') {
        _ if place.starts_with("in ") => format!("{right} {place}"),
        Some((namespace, _)) => format!("{right} in namespace {namespace}"),
        None => right,
    }
}
