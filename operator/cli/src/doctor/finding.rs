//! The findings of checks.

use serde::Serialize;

use crate::cluster::installation::Gap;

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
}

impl Findings {
    pub fn of(check: Check) -> Self {
        let findings = Vec::new();
        Self { check, findings }
    }

    pub fn error(&mut self, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Level::Error, message.into(), cure.into());
    }

    pub fn warning(&mut self, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Level::Warning, message.into(), cure.into());
    }

    /// Notes that an answer is missing. One gap is noted once, however many objects need it.
    pub fn gap(&mut self, gap: &Gap) {
        let message = format!("could not {}: {}", gap.question, gap.why);
        let cure = match gap.question.split_once(' ') {
            Some((verb, what)) => format!("ask for `{verb}` on {what}"),
            None => format!("ask for the right to {}", gap.question),
        };
        if self.findings.iter().all(|found| found.message != message) {
            self.push(Level::NotChecked, message, cure);
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
        if self.findings.is_empty() {
            self.push(Level::Ok, message.into(), String::new());
        }
        self.findings
    }
}
