//! What the status of kinds other than Agent is made of.

use std::collections::BTreeMap;

use crate::{Diagnostic, ObjectRef, Subject};

/// A Surface by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurfaceReport {
    pub tools: u32,
    /// `sha256:<hex>` of the resolved descriptor; `None`: there is none.
    pub descriptor_digest: Option<String>,
    /// Agents that declare this surface and have its consent.
    pub consumers: u32,
    pub diagnostics: Vec<Diagnostic>,
    /// Secrets that it names and that could not be read, with the reason.
    pub unread: BTreeMap<ObjectRef, String>,
}

/// A ToolGrant, or a ToolDefaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantReport {
    /// Named agents that exist; for ToolDefaults, agents that include them.
    pub agents: u32,
    /// Existing tools that are named; for a ToolGrant, of surfaces that one of its agents declares.
    pub tools: u32,
    pub diagnostics: Vec<Diagnostic>,
}

/// A ModelProvider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderReport {
    /// Keys that are there and usable.
    pub keys: u32,
    /// Agents whose models can select it.
    pub consumers: u32,
    pub diagnostics: Vec<Diagnostic>,
    /// Secrets that it names and that could not be read, with the reason.
    pub unread: BTreeMap<ObjectRef, String>,
}

/// The first finding against an object's own spec: why it is not `Accepted`.
pub fn not_accepted<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
) -> Option<&'a Diagnostic> {
    errors(diagnostics, object, crate::Concern::Spec).next()
}

/// Every finding against an object's own spec.
pub fn all_not_accepted<'a>(
    diagnostics: &'a [Diagnostic],
    object: &'a Subject,
) -> impl Iterator<Item = &'a Diagnostic> {
    errors(diagnostics, object, crate::Concern::Spec)
}

/// The first finding about what an object refers to: why it is not `Resolved`.
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
