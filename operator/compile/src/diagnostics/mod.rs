//! Findings for users, as values.
//!
//! A user's mistake is never an `Err`: the broken part is withheld, and a [`Diagnostic`] names the
//! field and the object and says what to do. Messages hold names, never a credential. Not here:
//! the list of findings ([`Code`]).

pub(crate) mod code;
pub(crate) mod finding;
pub(crate) mod report;

use self::code::Severity;
use std::borrow::Cow;
use std::fmt;

use crate::near::Suggestions;
use crate::{Code, ObjectRef};

/// One finding. The derived order (object, field, code, message) is the order of reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    pub object: Subject,
    /// Path of the field, as in `kubectl explain`: `spec.descriptor.tools[2].http.path`.
    pub field: String,
    pub code: Code,
    pub severity: Severity,
    /// One sentence with the fault and what to do.
    pub message: String,
}

impl Diagnostic {
    /// Object, field and message, without severity and code.
    pub fn located(&self) -> String {
        located(&self.object, &self.field, &self.message)
    }
}

/// `Surface pond/fish-api: spec.url: what is wrong`.
pub(crate) fn located(object: &Subject, field: &str, message: &str) -> String {
    if field.is_empty() {
        format!("{object}: {message}")
    } else {
        format!("{object}: {field}: {message}")
    }
}

/// The object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kind: Kind,
    pub key: ObjectRef,
}

impl Subject {
    pub fn new(kind: Kind, key: &ObjectRef) -> Self {
        Self {
            kind,
            key: key.clone(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.key)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, code) = (self.severity.name(), self.code.name());
        write!(f, "{severity}: {code}: {}", self.located())
    }
}

/// The kinds of objects that compile reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Surface,
    Agent,
    ToolGrant,
    ToolDefaults,
    ModelProvider,
    ClusterToolPolicy,
    Service,
    Secret,
    ConfigMap,
    Namespace,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Surface,
        Kind::Agent,
        Kind::ToolGrant,
        Kind::ToolDefaults,
        Kind::ModelProvider,
        Kind::ClusterToolPolicy,
        Kind::Service,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Namespace,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Surface => "Surface",
            Kind::Agent => "Agent",
            Kind::ToolGrant => "ToolGrant",
            Kind::ToolDefaults => "ToolDefaults",
            Kind::ModelProvider => "ModelProvider",
            Kind::ClusterToolPolicy => "ClusterToolPolicy",
            Kind::Service => "Service",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
            Kind::Namespace => "Namespace",
        }
    }
}

/// Longest message, in bytes. Messages quote names, numbers and values of objects, and are copied
/// to status, events, logs and metrics.
pub(crate) const MESSAGE: usize = 2048;
/// Limit on findings of one compilation or check. Status and events show a few; the object's own
/// findings are added first.
const FINDINGS: usize = 2_048;
/// Longest path of a field, in bytes: keys of maps are part of it.
const FIELD: usize = 512;

fn shown(text: impl Into<String>, bytes: usize) -> String {
    let text = text.into();
    match toolcrib_bounds::cut(&text, bytes) {
        Cow::Borrowed(_) => text,
        Cow::Owned(cut) => cut,
    }
}

/// Collects findings.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    /// The names that its messages suggest.
    pub(crate) suggestions: Suggestions,
}

impl Diagnostics {
    pub fn add(
        &mut self,
        object: &Subject,
        field: impl Into<String>,
        code: Code,
        message: impl Into<String>,
    ) {
        if self.is_full() {
            return;
        }
        self.found.push(Diagnostic {
            object: object.clone(),
            field: shown(field, FIELD),
            code,
            severity: code.severity(),
            message: shown(message, MESSAGE),
        });
    }

    /// Whether other findings are dropped, so their messages need not be written.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= FINDINGS
    }

    pub fn extend(&mut self, others: impl IntoIterator<Item = Diagnostic>) {
        self.found.extend(others);
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the error that was added last about `object`.
    pub(crate) fn last_error_of(&self, object: &Subject) -> Option<&Diagnostic> {
        let mut latest = self.found.iter().rev();
        latest.find(|found| found.severity == Severity::Error && found.object == *object)
    }

    /// Returns the findings sorted and without duplicates, so their order does not depend on the
    /// code.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.found.sort();
        self.found.dedup();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, check_surface, load};

    #[test]
    fn a_finding_stays_short_if_it_quotes_long_texts() {
        let text = format!(
            r#"
{{"apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface", "metadata": {{"name": "reed", "namespace": "pond"}},
 "spec": {{"url": "https://reed.example",
  "descriptorFrom": {{"configMapKeyRef": {{"name": "docs", "key": "text"}}}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: docs, namespace: pond}}
data: {{text: '{{"version": 2.{}}}'}}
"#,
            "1".repeat(400_000)
        );
        let inputs = load([("pond.yaml".to_owned(), text)], Settings::default()).inputs;
        let report = check_surface(&inputs, &ObjectRef::new("pond", "reed")).expect("the surface");
        assert!(!report.diagnostics.is_empty());
        for found in report.diagnostics {
            assert!(found.message.len() <= MESSAGE && found.field.len() <= FIELD);
            assert!(found.located().len() < 4096, "{}", found.located().len());
        }
    }
}
