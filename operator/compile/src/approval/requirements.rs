//! Who may decide about a call.

use std::collections::BTreeSet;
use std::fmt;

use toolcrib_bounds::listed;
use toolcrib_crds::{
    ApprovalRule, Approvers, PolicyRequirement, RuleRequirement, StateReason, ToolApprovalSpec,
    ToolDecisionSpec,
};

/// Limits the groups of a ToolDecision.
pub const MOST_GROUPS: usize = 16;
/// Limits the names in a message.
const SHOWN: usize = 8;

/// The rules and policies that ask for an approval of one call. One of the rules must be satisfied, and
/// each policy besides. Without both, one person is enough who may create ToolDecisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements<'a> {
    pub rules: &'a [RuleRequirement],
    pub policies: &'a [PolicyRequirement],
}

impl<'a> Requirements<'a> {
    /// Returns those that a ToolApproval has.
    pub fn of(spec: &'a ToolApprovalSpec) -> Self {
        Self {
            rules: &spec.rules,
            policies: &spec.policies,
        }
    }

    /// Returns whether a decision of this user counts: by at least one rule or policy.
    pub fn admit(&self, username: &str, groups: &[impl AsRef<str>]) -> bool {
        self.asks_nobody_by_name() || self.all().any(|asked| admits(asked, username, groups))
    }

    /// Returns the groups by which a user counts, for `spec.decidedBy.groups`; at most
    /// [`MOST_GROUPS`].
    pub fn groups_of<'g>(&self, groups: &'g [String]) -> Vec<&'g str> {
        let asked: BTreeSet<&str> = self
            .all()
            .filter_map(|rule| rule.approvers.as_ref())
            .flat_map(|approvers| approvers.groups.iter().map(String::as_str))
            .collect();
        let mut found: Vec<&str> = groups.iter().map(String::as_str).collect();
        found.retain(|group| asked.contains(group));
        found.truncate(MOST_GROUPS);
        found
    }

    pub(super) fn asks_nobody_by_name(&self) -> bool {
        self.rules.is_empty() && self.policies.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &'a ApprovalRule> {
        let rules = self.rules.iter().map(|rule| &rule.approval);
        rules.chain(self.policies.iter().map(|policy| &policy.approval))
    }
}

/// For people: `2 of group wardens (ToolGrant deep) or 1 of anybody (ToolDefaults default); and 1 of group
/// keepers (ClusterToolPolicy deep-water)`.
impl fmt::Display for Requirements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asks_nobody_by_name() {
            return f.write_str("1 of anybody who may create ToolDecisions");
        }
        let rules = self.rules.iter().map(|rule| {
            let (kind, grant) = (rule.kind.name(), &rule.grant);
            format!("{} ({kind} {grant})", Need(&rule.approval))
        });
        // Rules of one grant may ask the same.
        let mut seen = BTreeSet::new();
        let rules: Vec<String> = rules.filter(|rule| seen.insert(rule.clone())).collect();
        let policies = self.policies.iter().map(|policy| {
            let name = &policy.policy;
            format!("{} (ClusterToolPolicy {name})", Need(&policy.approval))
        });
        let mut parts: Vec<String> = policies.collect();
        if !rules.is_empty() {
            parts.insert(0, rules.join(" or "));
        }
        f.write_str(&parts.join("; and "))
    }
}

/// Who may approve by one rule or policy: `2 of users heron, newt and group wardens`.
pub struct Need<'a>(pub &'a ApprovalRule);

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nobody = Approvers::default();
        let approvers = self.0.approvers.as_ref().unwrap_or(&nobody);
        let noun = |names: &[String], noun: &str| match names.len() {
            0 => None,
            1 => Some(format!("{noun} {}", names[0])),
            _ => Some(format!("{noun}s {}", listed(names, SHOWN))),
        };
        let named = [
            noun(&approvers.users, "user"),
            noun(&approvers.groups, "group"),
        ];
        let named: Vec<String> = named.into_iter().flatten().collect();
        let named = match named.is_empty() {
            true => "anybody who may create ToolDecisions".to_owned(),
            false => named.join(" and "),
        };
        write!(f, "{} of {named}", minimum(self.0))
    }
}

/// The number of different users whose approval is needed.
pub(super) fn minimum(asked: &ApprovalRule) -> usize {
    asked.minimum.map_or(1, |most| most.max(1) as usize)
}

/// Returns whether the user may approve for this rule or policy.
pub(super) fn admits(asked: &ApprovalRule, username: &str, groups: &[impl AsRef<str>]) -> bool {
    asked.approvers.as_ref().is_none_or(|approvers| {
        approvers.is_anybody()
            || approvers.users.iter().any(|user| user == username)
            || groups
                .iter()
                .any(|group| approvers.groups.iter().any(|it| it == group.as_ref()))
    })
}

/// Returns whether a decision is about this very ToolApproval. `Err`: the reason for `Counted: False`.
pub fn is_about(
    uid: &str,
    call_digest: &str,
    decision: &ToolDecisionSpec,
) -> Result<(), StateReason> {
    if decision.approval.uid != uid {
        return Err(StateReason::Gone);
    }
    if decision.call_digest != call_digest {
        return Err(StateReason::OtherDigest);
    }
    Ok(())
}
