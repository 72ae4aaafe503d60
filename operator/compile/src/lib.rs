//! Pure: objects in, per-agent manifests and diagnostics out; pod injection.
//!
//! [`Inputs`] → [`compile`] → [`Compilation`] (references, no secrets) → [`materialize`].
//! No clock, file, socket or environment; the same inputs in any order give the same
//! bytes. A user's mistake is a [`Diagnostic`], never an `Err`: the broken part is withheld
//! and the rest of the agent compiles. Removing an object never adds a tool. Not here:
//! watching, writing, status (`toolcrib-operator`), files and printing (`kubectl-toolcrib`).

pub mod names;

mod compilation;
mod compile;
mod diagnostic;
pub mod digest;
pub mod identity;
pub mod inject;
mod inputs;
mod load;
mod materialize;
pub mod normalize;
mod reference;
mod report;

pub use compilation::{
    Compilation, CredentialKind, Files, GrantSource, Object, Role, Source, SourceState,
    ToolSummary, Withheld,
};
pub use compile::{
    References, check_defaults, check_grant, check_provider, check_surface, compile, compile_all,
    references,
};
pub use diagnostic::{Code, Concern, Diagnostic, Diagnostics, Kind, Severity, Subject};
pub use digest::{comparable, manifest_digest};
pub use inputs::{Inputs, Presence, SecretFacts, ServiceFacts, Settings, Synced};
pub use load::{Loaded, OtherDocument, load};
pub use materialize::{LastGood, Materialized, materialize};
pub use reference::{ObjectRef, SecretKeyRef};
pub use report::{GrantReport, ProviderReport, SurfaceReport, not_accepted, not_resolved};
