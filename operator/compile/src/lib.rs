//! Compiles objects into per-agent manifests and diagnostics, and injects pods. Pure.
//!
//! [`Inputs`] → [`compile`] → [`Compilation`] (references, no secrets) → [`materialize`].
//!
//! Invariants: no clock, file, socket or environment is used; the same inputs in any order give
//! the same bytes. A user's mistake is a [`Diagnostic`], never an `Err`: the broken part is
//! withheld, and the rest of the agent compiles. Removing an object never adds a tool. Not here:
//! watching, writing, status (`toolcrib-operator`), files and printing (`kubectl-toolcrib`).
//!
//! Each folder imports only folders that are named before it: `diagnostics` (findings about
//! objects), `approval` (decisions of persons about calls), `objects` (the objects that compile reads),
//! `routes` (the addresses that objects lead to), `surface` (the tools and feeds of a Surface),
//! `compilation` (the result of compile, and its bounds), `compile` (the steps and the checks), `load`
//! (objects from YAML), `queries` (questions about compilations).

pub mod approval;
pub mod identity;
pub mod inject;
pub mod names;

mod canonical;
mod compilation;
mod compile;
mod diagnostics;
mod load;
mod objects;
mod queries;
mod reference;
mod routes;
mod surface;

pub use canonical::{digest, normalize};
pub use compilation::files::{Files, comparable, manifest_digest, published, render};
pub use compilation::limits::limits_of;
pub use compilation::link_allowlist::{link_allowlist, takes_away};
pub use compilation::materialize::{CompiledSecret, LastGood, materialize};
pub use compilation::network::{DeclaredEgress, Network};
pub use compilation::{
    Compilation, CredentialKind, FeedSummary, GrantSource, Object, ObjectKind, Role, RuleSummary,
    Source, SourceState, ToolSummary, WithheldItem,
};
pub use compile::authority::policies::policy_matches;
pub use compile::authority::suspension::{MAX_SUSPEND_REASON, suspend_reason};
pub use compile::check::{
    check_defaults, check_grant, check_policy, check_provider, check_surface,
};
pub use compile::{compile, compile_all};
pub use diagnostics::code::{Code, Concern, Severity};
pub use diagnostics::report::{
    GrantReport, PolicyReport, ProviderReport, SurfaceReport, all_not_accepted, not_accepted,
    not_resolved,
};
pub use diagnostics::{Diagnostic, Diagnostics, Kind, Subject};
pub use load::yaml;
pub use load::{LoadResult, Origin, OtherDocument, load, load_into};
pub use names::method_name;
pub use objects::agent_selector::{AgentLabel, MAX_GRANT_LABELS, grant_labels};
pub use objects::allowlist::{Allowlist, host_entry};
pub use objects::budget::{left_out, too_heavy, too_heavy_text};
pub use objects::facts::{
    ConfigMapFacts, PodPort, Presence, SecretFacts, ServiceFacts, credential_value,
};
pub use objects::inputs::{Inputs, SyncProof};
pub use objects::range::Range;
pub use objects::selector::selector_matches;
pub use objects::settings::{AgentSelectors, NetworkSettings, Settings, refused_hosts};
pub use objects::{Key, Keys, List, Objects, Recorder, Unusable};
pub use queries::allowlist::allowlist;
pub use queries::approval::{CallRequirements, NotApprovable, ToolRequirements, tool_requirements};
pub use queries::entitlements::{Item, ItemKind, executed, would_deny_it};
pub use queries::explain::{GivenRule, GivenTool, ToolExplanation, explain_tool, given_tools};
pub use queries::fetch::{Fetch, MOST_ROUNDS, OverBound};
pub use queries::plan::{
    AgentPlan, Change, Detail, Effect, Fate, Plan, plan, plan_agent, plan_compiled,
};
pub use queries::topology::{AgentNode, GrantNode, SurfaceNode, agents_without_grant, topology};
pub use queries::view::{
    ConsumerView, EndpointView, FeedView, GrantedView, SurfaceView, ToolView, inspect_surface,
};
pub use queries::why::{WhyNot, suspended, why_not};
pub use reference::{ObjectRef, SecretKeyRef, surface_key};
pub use routes::address::own_service_of_url;
pub use routes::leads::Leads;

pub use toolcrib_crds::near;
