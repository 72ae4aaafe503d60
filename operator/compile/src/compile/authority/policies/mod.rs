//! The ClusterToolPolicies that restrict an agent.
//!
//! Here: which policies match an agent, and what they withhold from it: tools and feeds in
//! [`surfaces`], models in [`models`]. Not here: the tools that its grants give
//! ([`crate::compile::authority`]).
//!
//! Invariants: a policy only takes away; the `maxTier` and `deny` of a policy that is tried out
//! take nothing. All matching policies apply together, so their order does not matter. Missing
//! knowledge restricts: a namespace with unknown labels is matched, and tiers that its surfaces
//! declare are not trusted.

pub(crate) mod models;
pub(crate) mod surfaces;

use std::collections::BTreeMap;
use std::fmt;

use toolcrib_crds::{ClusterToolPolicy, ClusterToolPolicySpec};
use toolcrib_manifest::{Suspension, Tier};

use crate::compile::budgets::Budgets;
use crate::objects::List;
use crate::objects::selector::selects;
use crate::{Code, Diagnostic, Diagnostics, Kind, ObjectRef, Objects, Subject, suspend_reason};

/// Returns whether a policy matches an agent. `labels`: those of the agent's namespace, if known.
pub fn policy_matches(
    policy: &ClusterToolPolicySpec,
    agent: &ObjectRef,
    labels: impl FnOnce() -> Option<BTreeMap<String, String>>,
) -> bool {
    let mut named = policy.agents.iter();
    let is_named = policy.agents.is_empty()
        || named.any(|it| it.namespace == agent.namespace && it.name == agent.name);
    is_named
        && policy.namespace_selector.as_ref().is_none_or(|selector| {
            // Not known: it may match.
            selects(selector, &agent.namespace, labels()) != Some(false)
        })
}

/// The policies that match one agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    matching: List<ClusterToolPolicy>,
    /// The first policy that could never be read, with the reason. It may restrict any agent.
    unreadable: Option<(ObjectRef, String)>,
}

impl Policies {
    pub fn of(objects: &dyn Objects, agent: &ObjectRef) -> Self {
        let mut matching = objects.policies();
        matching.retain(|(_, policy)| {
            policy_matches(&policy.spec, agent, || {
                objects.namespace_labels(&agent.namespace)
            })
        });
        Self {
            matching,
            unreadable: objects.unreadable_policies().into_iter().next(),
        }
    }

    pub fn names(&self) -> Vec<String> {
        let keys = self.matching.iter();
        keys.map(|(key, _)| key.name.clone()).collect()
    }

    fn specs(&self) -> impl Iterator<Item = (PolicyName<'_>, &ClusterToolPolicySpec)> {
        let all = self.matching.iter();
        all.map(|(key, policy)| (PolicyName(&key.name), &policy.spec))
    }

    /// Returns the finding for an agent that a policy without a readable form may restrict.
    pub fn blocks(&self, agent: &ObjectRef) -> Option<Diagnostic> {
        let (policy, why) = self.unreadable.as_ref()?;
        let mut found = Diagnostics::default();
        found.add(
            &Subject::new(Kind::Agent, agent),
            "",
            Code::PolicyUnreadable,
            format!(
                "{} cannot be read ({why}), and may restrict this agent: what was compiled before stays in force, and nothing is added; ask an admin of the cluster to correct or delete it",
                PolicyName(&policy.name)
            ),
        );
        found.into_sorted().pop()
    }

    /// Returns the suspension by the first policy that suspends, and reports it.
    pub fn suspension(&self, agent: &ObjectRef, found: &mut Diagnostics) -> Option<Suspension> {
        let (key, policy) = self
            .matching
            .iter()
            .find(|(_, policy)| policy.spec.is_suspending())?;
        let annotations = policy.metadata.annotations.as_ref();
        let written = annotations.and_then(|all| all.get(crate::names::SUSPEND_REASON_ANNOTATION));
        let name = PolicyName(&key.name);
        let reason = match written.map(|written| suspend_reason(written)) {
            Some(reason) if !reason.is_empty() => format!("{name}: {reason}"),
            Some(_) | None => name.to_string(),
        };
        let reason = suspend_reason(&reason).into_owned();
        found.add(
            &Subject::new(Kind::Agent, agent),
            "spec.suspend",
            Code::SuspendedByPolicy,
            format!(
                "{name} suspends agent {agent}, so it serves nothing, whatever its own suspend says: ask an admin of the cluster, who may set spec.suspend of the policy to false"
            ),
        );
        Some(Suspension {
            reason: Some(reason),
        })
    }

    /// Lowers an agent's budgets to those of all policies.
    pub fn lower_budgets(&self, budgets: &mut Budgets) {
        for (_, spec) in self.specs() {
            budgets.lower(&spec.budgets);
        }
    }

    /// The names of the policies that set `egress: Declared`.
    pub fn declaring_egress(&self) -> impl Iterator<Item = &str> {
        let declaring = self.specs().filter(|(_, spec)| spec.egress.is_some());
        declaring.map(|(name, _)| name.0)
    }

    /// Returns the highest tier that any surface may have. `None`: no policy sets one.
    pub fn max_tier(&self) -> Option<Tier> {
        let enforced = self.specs().filter(|(_, spec)| !spec.is_tried_out());
        let tiers = enforced.filter_map(|(_, spec)| spec.max_tier);
        tiers.map(Tier::from).min()
    }
}

/// `ClusterToolPolicy NAME`.
#[derive(Clone, Copy)]
pub(crate) struct PolicyName<'a>(pub &'a str);

impl fmt::Display for PolicyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Kind::ClusterToolPolicy.name(), self.0)
    }
}
