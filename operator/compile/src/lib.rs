//! Pure: objects in, per-agent manifests and diagnostics out; pod injection.
//!
//! [`Inputs`] → [`compile`] → [`Compilation`] (references, no secrets) → [`materialize`].
//! No clock, file, socket or environment; the same inputs in any order give the same
//! bytes. A user's mistake is a [`Diagnostic`], never an `Err`: the broken part is withheld
//! and the rest of the agent compiles. Removing an object never adds a tool. Not here:
//! watching, writing, status (`toolcrib-operator`), files and printing (`kubectl-toolcrib`).

pub mod names;
pub mod near;

mod grants;
mod inputs;
mod objects;
mod reference;

mod compile;

mod address;
mod allowlist;
mod authority;
mod bounds;
mod budget;
mod consent;
mod context;
mod credential;
mod descriptor;
mod effective;
mod egress;
mod lower;
mod mcp_config;
mod models;
mod offer;
mod reach;
mod schema;
mod surface;
mod template;

mod check;
mod code;
mod compilation;
mod diagnostic;
pub mod digest;
mod explain;
mod fetch;
mod finding;
mod floor;
mod holdings;
pub mod identity;
pub mod inject;
mod load;
mod materialize;
pub mod normalize;
mod plan;
mod report;
mod services;
mod settings;
mod topology;
mod view;
mod why;
pub mod yaml;

pub use allowlist::{Allowlist, host_entry};
pub use budget::{left_out, too_heavy, too_heavy_text};
pub use check::{check_defaults, check_grant, check_provider, check_surface};
pub use code::Code;
pub use compilation::{
    Compilation, CredentialKind, FeedSummary, Files, GrantSource, Object, ObjectKind, Role, Source,
    SourceState, ToolSummary, Withheld,
};
pub use compile::{compile, compile_all};
pub use credential::credential_value;
pub use diagnostic::{Concern, Diagnostic, Diagnostics, Kind, Severity, Subject};
pub use digest::{comparable, manifest_digest};
pub use egress::{Declared, Network, NetworkSettings};
pub use explain::{GivenTool, ToolExplained, explain_tool, given_tools};
pub use fetch::{Fetch, MOST_ROUNDS, OverBound};
pub use floor::{floor, takes_away};
pub use holdings::{Item, ItemKind, executed, method_name};
pub use inputs::{ConfigMapFacts, Inputs, PodPort, Presence, SecretFacts, ServiceFacts, Synced};
pub use load::{Loaded, Origin, OtherDocument, load, load_into};
pub use materialize::{LastGood, Materialized, materialize};
pub use objects::{Key, Keys, List, Objects, Recorder, Unusable};
pub use plan::{AgentPlan, Change, Detail, Effect, Fate, Plan, plan, plan_agent};
pub use reference::{ObjectRef, SecretKeyRef};
pub use report::{
    GrantReport, ProviderReport, SurfaceReport, all_not_accepted, not_accepted, not_resolved,
};
pub use services::{Leads, allowlist};
pub use settings::{Settings, refused_hosts};
pub use topology::{AgentNode, GrantNode, SurfaceNode, topology};
pub use view::{
    ConsumerView, EndpointView, FeedView, GrantedView, SurfaceView, ToolView, inspect_surface,
};
pub use why::{WhyNot, why_not};
