//! The contract between operator and mediator: four files and the link's two messages.
//!
//! The operator's compiler writes these types, the mediator reads them, and nothing
//! else is shared between the two but [`names`], which [`addresses`] both refuse, and which
//! absolute name a host stands for ([`dns`]). Here are shapes only: no digest, no file access, no
//! policy. `fixtures/` holds complete directories that both sides are tested against.
//!
//! Invariants: a reader ignores fields that it does not know, so a field that *restricts*
//! comes with a name in `requires`, which an older reader must refuse. The one exception is a
//! restriction that nobody wrote (`provider_tools` where `egress: Declared` implies it): refusing
//! it would stop older mediators of agents that did not change. Tool
//! schemas are the bytes that were written ([`RawJson`]), never a re-serialized tree; the
//! fields of what the files hold stand in the order of the names that they are written under,
//! so what serde writes is sorted as it stands; no type prints a secret ([`SecretText`]).

pub mod addresses;
mod agent;
mod annotations;
pub mod dns;
mod feeds;
mod link;
pub mod names;
mod providers;
mod raw;
mod secret;
mod tools;

pub use agent::{
    AgentFile, Context, Digests, Identity, LinkConfig, Mode, Models, ProviderTools, RunnerToken,
    Streaming, UnknownModel,
};
pub use annotations::Annotations;
pub use dns::{ClusterDomain, Dns, NameServer};
pub use feeds::{Feed, FeedAuth, FeedsFile};
pub use link::{
    AgentPresence, Floor, LONGEST_REPORT, LONGEST_TEXT, LinkDown, LinkUp, Loaded, MOST_WITHHELD,
    RunnerAccess, Usage, Want, Withheld,
};
pub use providers::{
    Endpoint, EndpointDialect, Provider, ProviderAuth, ProviderKey, ProvidersFile, Tls,
};
pub use raw::RawJson;
pub use secret::SecretText;
pub use tools::{
    Auth, BodyKind, Execution, GrantRef, HttpMethod, Policy, ReadMethod, ServiceSettings, Tier,
    Tool, ToolExtension, ToolsExtension, ToolsFile, Transport,
};

/// The only version of each file that this release writes and reads.
pub const VERSION: u32 = 1;
