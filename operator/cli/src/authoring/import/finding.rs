//! Findings of a translation for the user, each with its line.

use std::collections::BTreeSet;
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
    pub cause: Option<Cause>,
}

/// The fault behind a finding. The compiler's findings that it causes are not reported again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A port of this service cannot be read.
    Port(String),
    /// No Surface of this name is written, or it has no descriptor.
    Surface(String),
    /// This field of a Surface is wrong.
    SurfaceField(String, String),
    /// No ModelProvider of this name is known. `None`: the name of a model is missing.
    Provider(String),
    /// No ModelProvider is known.
    AnyProvider,
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
pub struct Findings {
    all: Vec<Finding>,
    causes: BTreeSet<Cause>,
}

impl Findings {
    pub fn note(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Note, message.into(), None);
    }

    pub fn warning(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Warning, message.into(), None);
    }

    pub fn error(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Weight::Error, message.into(), None);
    }

    /// Adds a finding of a fault that causes findings of the compiler.
    pub fn add_cause(
        &mut self,
        line: usize,
        weight: Weight,
        message: impl Into<String>,
        cause: Cause,
    ) {
        self.causes.insert(cause.clone());
        self.add(line, weight, message.into(), Some(cause));
    }

    /// Adds an error, unless a finding names its cause already.
    pub fn error_once(&mut self, line: usize, message: impl Into<String>, cause: Cause) {
        if !self.causes.contains(&cause) {
            self.add_cause(line, Weight::Error, message, cause);
        }
    }

    /// Notes that one fault causes another. Returns false if no finding has the first.
    pub fn has_effect(&mut self, cause: &Cause, effect: Cause) -> bool {
        let is_known = self.causes.contains(cause);
        if is_known {
            self.causes.insert(effect);
        }
        is_known
    }

    fn add(&mut self, line: usize, weight: Weight, message: String, cause: Option<Cause>) {
        self.all.push(Finding {
            line,
            weight,
            message,
            cause,
        });
    }

    pub fn causes(&self) -> &BTreeSet<Cause> {
        &self.causes
    }

    /// Makes the findings of a cause errors.
    pub fn make_error(&mut self, cause: &Cause) {
        let findings = self.all.iter_mut();
        for finding in findings.filter(|finding| finding.cause.as_ref() == Some(cause)) {
            finding.weight = Weight::Error;
        }
    }

    /// Returns the findings by line, without duplicates: an anchor that is used twice has one
    /// fault.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        self.all.sort();
        self.all.dedup();
        self.all
    }
}
