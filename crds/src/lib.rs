//! The toolcrib.dev API kinds, one per file.
//!
//! Here: shapes, their documentation (it becomes `kubectl explain`), and the rules that one object
//! can check about itself (CEL, bounds). Not here: relations between objects (`toolcrib-compile`),
//! names of compiled objects (`toolcrib_compile::names`).
//!
//! Invariants: the API grows only by additive fields; no field that a [`ToolDefaults`] may set has
//! an OpenAPI default (Agent takes precedence over ToolDefaults, and ToolDefaults over built-in
//! values, field by field); every list, map and text has a bound, which also keeps the rules within
//! the API server's cost budget; an inline descriptor keeps its bytes.

#![expect(
    clippy::duplicated_attributes,
    reason = "several `printcolumn(type_ = …)` within one `kube` attribute are not duplicates"
)]

#[cfg(feature = "admission")]
mod admitted;
mod conditions;
mod decode;
mod definitions;
mod fields;
mod kinds;
pub mod near;
mod words;

#[cfg(feature = "admission")]
pub use admitted::{Refusal, refusals};
pub use conditions::{
    ConditionStatus, ConditionType, HasConditions, NOTHING_WRITTEN, ReasonName, StateReason,
    condition, set,
};
pub use decode::{
    DecodeError, decode, decode_own, decode_part, known_fields, without_managed_fields,
};
pub use definitions::{GROUP, VERSION, definitions};
pub use fields::agent_selector::{AgentSelector, LabelExpression};
pub use fields::approval::{ApprovalRule, Approvers, ObjectIdentity};
pub use fields::arguments::ArgumentRules;
pub use fields::authority::{
    ConditionRule, Enforcement, FeedRule, RateRule, SurfaceName, ToolRule,
};
pub use fields::budget::{Budget, BudgetPeriod, BudgetUnit};
pub use fields::duration::{DurationError, DurationText};
pub use fields::policy::{
    Context, Egress, Mode, Models, Policy, ProviderTools, Streaming, Tier, UnknownModel,
};
pub use fields::reference::{CaSource, ConfigMapKey, SecretKey, TlsSpec};
pub use kinds::agent::{
    Agent, AgentSpec, AgentStatus, AgentSurface, BudgetStatus, CredentialKind, DefaultsUse,
    EgressPeer, EgressPort, EgressProtocol, EgressRule, FeedStatus, GrantName, Identity, IpBlock,
    NetworkStatus, PodsStatus, RecordHeadStatus, Runner, ToolStatus, UsageStatus, WithheldStatus,
};
pub use kinds::cluster_tool_policy::{
    AllowedModels, ClusterToolPolicy, ClusterToolPolicySpec, ClusterToolPolicyStatus, DenyRule,
    NamespacedName, PolicyEgress, RequireApproval,
};
pub use kinds::model_provider::{
    ApiKey, Dialect, ModelProvider, ModelProviderSpec, ModelProviderStatus, ProviderAuth,
    ProviderEndpoint,
};
pub use kinds::surface::{
    AgentCredential, AgentName, AuthType, Consumers, CredentialConsent, DescriptorSource, Fallback,
    Mcp, NamespaceConsent, NamespacesFrom, Scheme, ServiceTarget, Surface, SurfaceAuth,
    SurfaceSpec, SurfaceStatus,
};
pub use kinds::tool_approval::{
    ApprovalPhase, CountedDecision, GrantKind, PolicyRequirement, RuleRequirement, ToolApproval,
    ToolApprovalSpec, ToolApprovalStatus,
};
pub use kinds::tool_decision::{
    DecisionVerdict, ToolDecision, ToolDecisionSpec, ToolDecisionStatus, UserIdentity,
};
pub use kinds::tool_defaults::{ToolDefaults, ToolDefaultsSpec, ToolDefaultsStatus};
pub use kinds::tool_grant::{ToolGrant, ToolGrantSpec, ToolGrantStatus};

pub use toolcrib_manifest::RawJson;
