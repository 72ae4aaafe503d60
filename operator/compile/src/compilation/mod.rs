//! The result of a compilation: the four files with references in place of secrets, the objects
//! that carry them, and the diagnostics.

pub(crate) mod bounds;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod link_allowlist;
pub(crate) mod materialize;
pub(crate) mod network;
pub(crate) mod secrets;

use self::files::{Files, published, render};
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use toolcrib_crds::{ApprovalRule, PolicyRequirement};
use toolcrib_manifest::{Suspension, Tier};

use crate::names;
use crate::{Code, Diagnostic, Network, ObjectRef, SecretKeyRef};

/// One agent, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Compilation {
    pub agent: ObjectRef,
    /// The four files. Every secret in them is a [`SecretKeyRef::placeholder`]; `tokens` is
    /// empty, `files` is missing and `digest` names the manifest only: `materialize` fills
    /// them.
    pub files: Files,
    /// Data of the context ConfigMap.
    pub context: BTreeMap<String, String>,
    /// What the agent's pods may reach.
    pub network: crate::Network,
    /// Digest of [`crate::comparable`] of the files.
    pub manifest_digest: String,
    /// Every reference in the files, and where its value may go.
    pub sources: BTreeMap<SecretKeyRef, Source>,
    /// Secrets and ConfigMaps among the agent's references that could not be read. A caller
    /// whose stores are still filling waits instead of writing this compilation.
    pub unknown: BTreeSet<(crate::Kind, ObjectRef)>,
    pub tools: Vec<ToolSummary>,
    pub feeds: Vec<FeedSummary>,
    pub withheld: Vec<WithheldItem>,
    /// The findings on this agent, its grants, and the surfaces and providers it uses; sorted.
    pub diagnostics: Vec<Diagnostic>,
    /// The policies that match the agent, in name order.
    pub policies: Vec<String>,
    /// The models that policies deny to the agent, as `provider/model`, or `provider/*` for all of a
    /// provider, with the reasons.
    pub denied_models: BTreeMap<String, String>,
    /// The grants that select the agent by its labels and do not name it, with words for their
    /// selectors.
    pub selectors: BTreeMap<ObjectRef, String>,
    /// The reason for which the agent is not compiled. The objects that were compiled before stay
    /// in force; the rest of this value must not be used.
    pub blocked: Option<Diagnostic>,
    /// The reason for which the Agent is not accepted.
    pub refusal: Option<Diagnostic>,
}

impl Compilation {
    /// Returns words for the selector by which a grant selects the agent. `None`: it names it.
    pub fn selected_by(&self, grant: &GrantSource) -> Option<&String> {
        let selector = self.selectors.get(&grant.key);
        selector.filter(|_| grant.kind == crate::Kind::ToolGrant)
    }
}

/// One Secret key that the files refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The destinations that may read the value, as `scheme://host[:port]`, and the private CA
    /// that vouches for them.
    pub route: BTreeSet<String>,
    pub state: SourceState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// The Secret exists, is labelled, and its annotations allow the whole `route`.
    Known {
        uid: String,
        resource_version: String,
    },
    /// The Secret could not be read. Only a value that was compiled before, for the same reference
    /// and the same route, may be used.
    Unknown,
}

/// One granted tool, for status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSummary {
    /// `<surface>.<tool>`.
    pub name: String,
    /// The surface that offers the tool, by its own name.
    pub surface: ObjectRef,
    pub tier: Tier,
    pub read_only: bool,
    /// The first object, in name order, that gives it.
    pub grant: GrantSource,
    pub credential: CredentialKind,
    pub entry_digest: String,
    /// The limits within which it may be called, at most 256 bytes. `None`: a rule without
    /// conditions gives it.
    pub limits: Option<String>,
    /// The rules of the files, in their order. Empty: it is given without conditions alone.
    pub rules: Vec<RuleSummary>,
    /// The policies that ask for an approval of each call, in name order.
    pub approval: Vec<PolicyRequirement>,
    /// The policies that are tried out and would deny it.
    pub would_deny: Vec<String>,
}

impl ToolSummary {
    /// Returns whether each call needs an approval, whatever the rules say.
    pub fn always_needs_approval(&self) -> bool {
        always_needs_approval(self.tier, &self.approval)
    }

    /// Words for `limits`, and for approvals that no rule asks for. `None`: any call runs.
    pub fn terms(&self) -> Option<String> {
        const APPROVAL: &str = "each call needs an approval";
        match (&self.limits, self.always_needs_approval()) {
            (Some(limits), true) => Some(format!("{limits}; {APPROVAL}")),
            (None, true) => Some(APPROVAL.to_owned()),
            (limits, false) => limits.clone(),
        }
    }
}

/// Returns whether each call of a tool needs an approval, by its tier and the policies that ask for it.
pub(crate) fn always_needs_approval(tier: Tier, policies: &[PolicyRequirement]) -> bool {
    tier == Tier::Elevated || !policies.is_empty()
}

/// One rule that gives a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSummary {
    pub grant: GrantSource,
    pub digest: String,
    /// Words for its conditions, at most 256 bytes.
    pub limits: String,
    /// RFC 3339, as written.
    pub not_before: Option<String>,
    pub not_after: Option<String>,
    /// Who may approve a call. `None`: no approval is needed.
    pub approval: Option<ApprovalRule>,
}

/// One granted feed, for status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedSummary {
    /// `<surface>/<feed>`.
    pub name: String,
    /// The first object, in name order, that gives it.
    pub grant: GrantSource,
    pub credential: CredentialKind,
}

/// An object that gives authority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GrantSource {
    pub kind: crate::Kind,
    pub key: ObjectRef,
}

/// The owner of the credential that a call carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialKind {
    /// The agent's own.
    PerAgent,
    /// The surface's.
    Surface,
    None,
}

impl CredentialKind {
    pub const ALL: [CredentialKind; 3] = [
        CredentialKind::PerAgent,
        CredentialKind::Surface,
        CredentialKind::None,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CredentialKind::PerAgent => "PerAgent",
            CredentialKind::Surface => "Surface",
            CredentialKind::None => "None",
        }
    }
}

/// An item that a grant or the agent requests and that the agent does not get.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WithheldItem {
    /// `<surface>.<tool>`, `<surface>.*` for a whole surface, `feed <surface>/<feed>`,
    /// `provider <name>`.
    pub what: String,
    pub code: Code,
    pub message: String,
}

/// An object to be written for the agent. Data is text; that of a Secret holds references.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub role: Role,
    pub key: ObjectRef,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Empty for [`Role::Identity`]: the controller creates its content once.
    pub data: BTreeMap<String, String>,
    /// Set for [`Role::Network`] only.
    pub spec: Option<NetworkPolicySpec>,
}

/// The purpose of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Secret with the four files.
    Mediator,
    /// Secret with the runner's token.
    Identity,
    /// ConfigMap with `tools.json` and, where there are feeds, `feeds.json`, without credentials.
    Manifest,
    /// ConfigMap that the runner mounts.
    Context,
    /// NetworkPolicy of the agent's pods.
    Network,
}

/// The kinds of the objects that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    Secret,
    ConfigMap,
    NetworkPolicy,
}

impl ObjectKind {
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Secret => "Secret",
            ObjectKind::ConfigMap => "ConfigMap",
            ObjectKind::NetworkPolicy => "NetworkPolicy",
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            ObjectKind::Secret | ObjectKind::ConfigMap => "v1",
            ObjectKind::NetworkPolicy => "networking.k8s.io/v1",
        }
    }
}

impl Role {
    pub const ALL: [Role; 5] = [
        Role::Mediator,
        Role::Identity,
        Role::Manifest,
        Role::Context,
        Role::Network,
    ];

    pub fn kind(self) -> ObjectKind {
        match self {
            Role::Mediator | Role::Identity => ObjectKind::Secret,
            Role::Manifest | Role::Context => ObjectKind::ConfigMap,
            Role::Network => ObjectKind::NetworkPolicy,
        }
    }

    pub fn object_name(self, agent: &str) -> String {
        match self {
            Role::Mediator => names::mediator_secret(agent),
            Role::Identity => names::identity_secret(agent),
            Role::Manifest => names::manifest_config_map(agent),
            Role::Context => names::context_config_map(agent),
            Role::Network => names::network_policy(agent),
        }
    }
}

impl Compilation {
    /// The agent's suspension, if it is suspended.
    pub fn suspension(&self) -> Option<&Suspension> {
        self.files.agent.suspension.as_ref()
    }

    /// Returns the keys to read before [`crate::materialize`], without the references that compile
    /// refused (not labelled, another host).
    pub fn references(&self) -> BTreeSet<SecretKeyRef> {
        self.sources.keys().cloned().collect()
    }

    /// Returns the objects with references in place of secrets, as the CLI prints them.
    pub fn objects(&self) -> Vec<Object> {
        Role::ALL
            .into_iter()
            .filter_map(|role| self.object(role))
            .collect()
    }

    /// Returns one object. `None`: the agent has no object of that role.
    pub fn object(&self, role: Role) -> Option<Object> {
        let envelope = self.envelope(role)?;
        Some(Object {
            data: self.data(role),
            ..envelope
        })
    }

    /// Returns one object without its data, for callers that fill the data in: that of the two
    /// Secrets is complete only with values.
    pub fn envelope(&self, role: Role) -> Option<Object> {
        let spec = match (role, &self.network) {
            (Role::Network, Network::Declared(declared)) => Some(declared.policy.clone()),
            (Role::Network, Network::Unrestricted | Network::Undecided) => return None,
            (Role::Mediator | Role::Identity | Role::Manifest | Role::Context, _) => None,
        };
        Some(Object {
            role,
            key: ObjectRef::new(
                self.agent.namespace.clone(),
                role.object_name(&self.agent.name),
            ),
            labels: self.labels(),
            annotations: self.annotations(role),
            data: BTreeMap::new(),
            spec,
        })
    }

    /// Returns the labels of every object. The Agent's own are never copied: GitOps tools would
    /// adopt our objects.
    fn labels(&self) -> BTreeMap<String, String> {
        [
            (names::MANAGED_BY_LABEL, names::FIELD_MANAGER),
            (names::COMPILED_FOR_LABEL, self.agent.name.as_str()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn annotations(&self, role: Role) -> BTreeMap<String, String> {
        match role {
            Role::Mediator | Role::Manifest => BTreeMap::from([(
                names::MANIFEST_DIGEST_ANNOTATION.to_owned(),
                self.manifest_digest.clone(),
            )]),
            Role::Identity | Role::Context | Role::Network => BTreeMap::new(),
        }
    }

    fn data(&self, role: Role) -> BTreeMap<String, String> {
        match role {
            Role::Mediator => render(&self.files),
            Role::Identity | Role::Network => BTreeMap::new(),
            Role::Manifest => published(&self.files),
            Role::Context => self.context.clone(),
        }
    }
}
