//! The part that ToolGrant and ToolDefaults share: tools and feeds of surfaces.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApprovalRule, ArgumentRules, DurationText};

/// Names a Surface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceName {
    /// Name of the Surface.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its namespace; the same namespace when left out. Another namespace's surface needs
    /// that surface's consent (`spec.consumers`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Tools of one surface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRule {
    /// The surface whose tools are named.
    pub surface: SurfaceName,
    /// Names of tools as the descriptor spells them, or `["*"]` for all of them.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = Rule::new("!('*' in self) || size(self) == 1").message("\"*\" means all tools: write it alone, or name the tools without it"))]
    pub allow: Vec<String>,
    /// Pins the descriptor: another descriptor withholds these tools until the pin is
    /// renewed. `kubectl get surface NAME -o jsonpath={.status.descriptorDigest}` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71), regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub descriptor_digest: Option<String>,
    /// Limits on the arguments of these tools. Left out: every call that the tool's own schema
    /// accepts. A tool that several rules give may be called within the limits of any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<ArgumentRules>,
    /// Conditions on a call that must all hold. One that cannot be evaluated for a call, such as a
    /// comparison of an argument that is left out, does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub when: Vec<ConditionRule>,
    /// How often each of these tools may be called; all rates apply. The pods of an agent share
    /// a rate, and can together exceed it by what they call in 15 seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub rate: Vec<RateRule>,
    /// A person must approve each call that this entry allows, as a ToolDecision about the exact call.
    /// A call that another entry allows without an approval runs without one. Left out: no approval,
    /// unless the tool is Elevated or a ClusterToolPolicy asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalRule>,
    /// Whether `arguments.schema`, `rate` and `when` refuse calls, or are tried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
}

/// Whether the limits of an entry refuse calls. Left out: Enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Enforcement {
    /// A call outside of the limits is refused.
    Enforce,
    /// A call outside of `arguments.schema`, `rate` or `when` runs, also one that another grant's
    /// limits refuse, and the record has `would_deny`. Pinned arguments and times are enforced.
    Audit,
}

/// A condition on a call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionRule {
    /// An expression in a part of CEL, such as `args.amount * args.price <= 1000.0`. Its variables
    /// are `args`, `agent.name`, `agent.namespace`, `tool.name`, `tool.surface`, `tool.tier` and
    /// `now`. A tool that does not declare an argument that it reads is not given.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// The words that the model reads if the expression does not hold, on one line, such as
    /// `an order is worth at most 1000`.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\x00-\x1f\x7f]+$"))]
    pub message: String,
}

/// At most this many calls of one tool in any period of this length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateRule {
    /// Most calls that run in a period. A call counts when it is sent, whatever its outcome; a
    /// refused call does not count.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub calls: u32,
    /// Length of the period, such as `1h`. It has no fixed beginning: the calls of the last hour count,
    /// each for up to a sixtieth of the period longer.
    pub per: DurationText,
}

/// Feeds of one surface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedRule {
    /// The surface whose feeds are named.
    pub surface: SurfaceName,
    /// Names of feeds as the descriptor spells them, or `["*"]` for all of them.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = Rule::new("!('*' in self) || size(self) == 1").message("\"*\" means all feeds: write it alone, or name the feeds without it"))]
    pub allow: Vec<String>,
}
