//! The findings of checks.

use std::collections::BTreeSet;

use serde::Serialize;
use toolcrib_bounds::listed;

use crate::cluster::installation::{Facts, Gap, Refusal};

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

/// What a check found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    Ok,
    /// Nothing fails, and somebody should look at it.
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
    /// What is wrong, with the object; or what is in order.
    pub message: String,
    /// What to do: a command, a field, or an object to apply. Empty if all is in order.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cure: String,
}

/// The findings of one check.
#[derive(Debug)]
pub struct Findings {
    check: Check,
    findings: Vec<Finding>,
    gaps: Vec<Gap>,
}

/// Most questions that a finding about gaps names.
const NAMED: usize = 3;

impl Findings {
    pub fn of(check: Check) -> Self {
        Self {
            check,
            findings: Vec::new(),
            gaps: Vec::new(),
        }
    }

    pub fn error(&mut self, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Level::Error, message.into(), cure.into());
    }

    /// Reports an object of the chart that does not exist. Without the controller's Deployment its name
    /// is a guess, so nothing is known of it.
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
        if !self.gaps.contains(gap) {
            self.gaps.push(gap.clone());
        }
    }

    fn push(&mut self, level: Level, message: String, cure: String) {
        self.findings.push(Finding {
            check: self.check,
            level,
            message,
            cure,
        });
    }

    /// Returns the findings. If there is none, one says what is in order.
    pub fn or_ok(mut self, message: impl Into<String>) -> Vec<Finding> {
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
fn not_checked(gaps: &[Gap]) -> (String, String) {
    let mut forbidden = Vec::new();
    let mut parts = Vec::new();
    for gap in gaps {
        match &gap.why {
            Refusal::Forbidden => forbidden.push(&*gap.question),
            Refusal::Failed(why) => parts.push(format!("could not {}: {why}", gap.question)),
        }
    }
    if forbidden.is_empty() {
        let cure = "try again; if it fails again, look at the API server";
        return (parts.join("; "), cure.to_owned());
    }
    parts.insert(0, format!("you may not {}", listed(&forbidden, NAMED)));
    let rights: BTreeSet<String> = forbidden.iter().map(|question| right(question)).collect();
    let rights: Vec<String> = rights.into_iter().collect();
    (parts.join("; "), format!("ask for {}", rights.join(", ")))
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
