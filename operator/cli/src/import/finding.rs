//! Findings of a translation for the user, each with its line.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A decision or addition that the file does not ask for.
    Note,
    /// A part that is left out, and that no agent's tools depend on.
    Warning,
    /// An agent does not get something that the file gives it.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// From 1; 0 for the whole file.
    pub line: usize,
    pub weight: Weight,
    pub message: String,
}

impl fmt::Display for Finding {
    /// Formats without the file's name: `12: warning: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Note => "note",
            Weight::Warning => "warning",
            Weight::Error => "error",
        };
        match self.line {
            0 => write!(f, "{weight}: {}", self.message),
            line => write!(f, "{line}: {weight}: {}", self.message),
        }
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn note(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Note, message.into());
    }

    pub fn warning(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Warning, message.into());
    }

    pub fn error(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Error, message.into());
    }

    fn add(&mut self, line: usize, weight: Weight, message: String) {
        self.0.push(Finding {
            line,
            weight,
            message,
        });
    }

    /// Returns the findings by line, without duplicates: an anchor that is used twice has one
    /// fault.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}
