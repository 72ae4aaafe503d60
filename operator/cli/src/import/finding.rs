//! What a user must know of a translation, each with its line.

use std::fmt;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Decided or added without being asked to.
    Note,
    /// Left out; nobody's tools depend on it.
    Warning,
    /// Something that an agent was to have is not given.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// From 1; 0 where the whole file is meant.
    pub line: usize,
    pub weight: Weight,
    pub message: String,
}

impl fmt::Display for Finding {
    /// Without the file's name: `12: warning: …`.
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

/// Where findings are collected.
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

    /// By line, each once: an anchor that is used twice is wrong in one place.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}
