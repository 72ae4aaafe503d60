//! A finding without its object, which the caller adds.

use crate::{Code, Diagnostics, Subject};

/// A finding whose `field` is relative to a path that the caller knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub field: String,
    pub code: Code,
    pub message: String,
}

impl Finding {
    pub fn new(field: impl Into<String>, code: Code, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            code,
            message: message.into(),
        }
    }

    /// Returns the same finding with `prefix` before its field.
    pub fn within(mut self, prefix: &str) -> Self {
        self.field = join(prefix, &self.field);
        self
    }

    pub fn report(&self, object: &Subject, diagnostics: &mut Diagnostics) {
        if diagnostics.is_full() {
            return;
        }
        diagnostics.add(object, self.field.clone(), self.code, self.message.clone());
    }
}

/// Joins a path and a field: `spec.tools` + `[2].name`, `spec` + `tools`, `spec` + nothing.
pub(crate) fn join(prefix: &str, field: &str) -> String {
    if prefix.is_empty() || field.is_empty() || field.starts_with('[') {
        format!("{prefix}{field}")
    } else {
        format!("{prefix}.{field}")
    }
}
