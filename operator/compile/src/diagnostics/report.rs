//! Reports on objects of all kinds except Agent; the controller writes them into their status.

use std::collections::BTreeMap;

use crate::{Diagnostic, ObjectRef, Subject};

/// The report on a Surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurfaceReport {
    pub tools: u32,
    /// `sha256:<hex>` of the resolved descriptor; `None` if there is none.
    pub descriptor_digest: Option<String>,
    /// Agents that declare this surface and have its consent.
    pub consumers: u32,
    pub diagnostics: Vec<Diagnostic>,
    /// Secrets that the Surface names and that could not be read, with the reason.
    pub unread: BTreeMap<ObjectRef, String>,
}

/// The report on a ToolGrant or ToolDefaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantReport {
    /// Number of existing agents that it names or selects; for ToolDefaults, of agents that include
    /// them.
    pub agents: u32,
    /// Names of the agents that a grant names, and of the others that it selects.
    pub agent_names: Vec<String>,
    /// Number of existing tools that it names. Only surfaces count that at least one of its agents
    /// declares.
    pub tools: u32,
    pub diagnostics: Vec<Diagnostic>,
}

/// The report on a ModelProvider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReport {
    /// Number of keys that exist and are usable.
    pub keys: u32,
    /// Number of agents whose models can select it.
    pub consumers: u32,
    pub diagnostics: Vec<Diagnostic>,
    /// Secrets that the provider names and that could not be read, with the reason.
    pub unread: BTreeMap<ObjectRef, String>,
}

/// The report on a ClusterToolPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    /// Number of agents that it matches.
    pub agents: u32,
    /// Whether `maxTier` and `deny` withhold nothing.
    pub is_tried_out: bool,
    /// Number of tools that it would deny. `None`: it is enforced, or its agents are not compiled.
    pub would_deny: Option<u32>,
    pub diagnostics: Vec<Diagnostic>,
}

impl PolicyReport {
    /// Sets the number of tools that the policy would deny, if it is tried out.
    pub fn with_denied(self, tools: u32) -> Self {
        Self {
            would_deny: self.is_tried_out.then_some(tools),
            ..self
        }
    }
}

/// Returns the first error in an object's own spec: the reason for `Accepted=False`.
pub fn not_accepted<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
) -> Option<&'a Diagnostic> {
    errors(diagnostics, object, crate::Concern::Spec).next()
}

/// Returns all errors in an object's own spec.
pub fn all_not_accepted<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
) -> impl Iterator<Item = &'a Diagnostic> {
    errors(diagnostics, object, crate::Concern::Spec)
}

/// Returns the first error in an object's references: the reason for `Resolved=False`.
pub fn not_resolved<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
) -> Option<&'a Diagnostic> {
    errors(diagnostics, object, crate::Concern::Reference).next()
}

fn errors<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
    concern: crate::Concern,
) -> impl Iterator<Item = &'a Diagnostic> {
    diagnostics.iter().filter(move |diagnostic| {
        diagnostic.object == *object
            && diagnostic.severity == crate::Severity::Error
            && diagnostic.code.concern() == concern
    })
}
