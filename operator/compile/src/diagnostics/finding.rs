//! A finding before it is known which object it belongs to.

use crate::{Code, Diagnostics, Subject};

/// `field` is relative to a place that the reader of the finding knows.
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

    /// The same finding, seen from one level up.
    pub fn within(mut self, prefix: &str) -> Self {
        self.field = join(prefix, &self.field);
        self
    }

    pub fn report(&self, object: &Subject, diagnostics: &mut Diagnostics) {
        diagnostics.add(object, self.field.clone(), self.code, self.message.clone());
    }
}

/// `spec.tools` + `[2].name`, `spec` + `tools`, `spec` + nothing.
pub(crate) fn join(prefix: &str, field: &str) -> String {
    if prefix.is_empty() || field.is_empty() || field.starts_with('[') {
        format!("{prefix}{field}")
    } else {
        format!("{prefix}.{field}")
    }
}
