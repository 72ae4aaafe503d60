//! The contract between operator and mediator: four files and the link's two messages.
//!
//! The operator's compiler writes these types and the mediator reads them. The two sides also share
//! [`names`], the refused [`addresses`], and the absolute name of a host ([`dns`]); nothing else.
//! Not here: digests, file access, policy. `fixtures/` holds complete directories that both sides
//! are tested against.
//!
//! Invariants: a reader ignores unknown fields, so a field that *restricts* comes with a name in
//! `requires`. A reader that does not know the name refuses the files, or withholds the tool. There
//! are three exceptions. `provider_tools` has no name if only `egress: Declared` implies it: older
//! mediators of agents that did not change would stop. `suspension` and `models.matching` have
//! none, because their files give a reader that ignores them nothing to serve, or no model. Tool
//! schemas keep their bytes ([`RawJson`]) and are never re-serialized. Fields are declared in the
//! order of their wire names, so serde's output is sorted. No type prints a secret
//! ([`SecretText`]).

pub mod addresses;
mod agent;
mod annotations;
mod budget;
pub mod dns;
mod feeds;
mod grant;
mod link;
pub mod names;
mod providers;
mod question;
mod rate_use;
mod raw;
mod rule;
mod secret;
mod tools;

pub use agent::{
    AgentFile, Context, Digests, Identity, LinkConfig, Mode, Models, ProviderTools, RunnerToken,
    Streaming, Suspension, UnknownModel,
};
pub use annotations::Annotations;
pub use budget::{Budget, BudgetPeriod, BudgetUnit, BudgetUse};
pub use dns::{ClusterDomain, Dns, NameServer};
pub use feeds::{Feed, FeedAuth, FeedsFile};
pub use grant::GrantRef;
pub use link::{
    AgentPresence, AllowedRules, LONGEST_REPORT, LONGEST_TEXT, LinkAllowlist, LinkDown, LinkUp,
    LoadedVersion, MOST_OUTAGES, MOST_PROVIDERS, MOST_RECENT_CALLS, MOST_WITHHELD, ProviderOutage,
    ProviderRefusal, RecentCall, RecordHead, RunnerAccess, ServiceOutage, Usage, Want,
    WithheldItem,
};
pub use providers::{
    Endpoint, EndpointDialect, Provider, ProviderAuth, ProviderKey, ProvidersFile, Tls,
};
pub use question::{
    ApprovalRef, ApprovalUse, AskingRule, Decision, LONGEST_CODE, LONGEST_QUESTION,
    LONGEST_QUESTION_ARGUMENTS, LONGEST_REASON, MOST_ASKING_RULES, MOST_QUESTIONS, MOST_REDACTED,
    OpenQuestion, Question, QuestionAnswer, QuestionRefusal, Verdict,
};
pub use rate_use::{ANSWER_TO_REPORT, MOST_RATE_SLOTS, MOST_RATED_RULES, RateCount, RateUse};
pub use raw::RawJson;
pub use rule::{Condition, Rate, Rule};
pub use secret::SecretText;
pub use tools::{
    Auth, BodyKind, Execution, HttpMethod, Policy, ReadMethod, ServiceSettings, Tier, Tool,
    ToolExtension, ToolsExtension, ToolsFile, Transport,
};

/// The only version of each file that this release writes and reads.
pub const VERSION: u32 = 1;
