//! Who asks for an approval of a call.

use toolcrib_manifest::{AskingRule, MOST_ASKING_RULES, Tier};
use toolcrib_rules::Rule;

use crate::tools::catalog::CatalogTool;

/// The approval that a call needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalNeed {
    /// The rules that the call meets and that have room for it, all of which ask. Empty if one of them
    /// does not ask, or if the tool has no rules.
    pub rules: Vec<AskingRule>,
    /// Names of the policies that ask.
    pub policies: Vec<String>,
    /// The tool's tier asks.
    pub by_tier: bool,
}

/// What has become of the need of a call while it waits for an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingNeed {
    /// The call runs after the approval for which it waits.
    Asked,
    /// Other rules or policies ask now, and so perhaps other persons.
    Other,
    None,
}

impl PendingNeed {
    pub(crate) fn of(asked: &ApprovalNeed, need: Option<&ApprovalNeed>) -> Self {
        match need {
            None => Self::None,
            Some(need) if asked.covers(need) => Self::Asked,
            Some(_) => Self::Other,
        }
    }
}

impl ApprovalNeed {
    /// The need of a call that these rules allow; `None`: no approval is needed.
    pub(crate) fn of(tool: &CatalogTool, asking: &[&Rule]) -> Option<Self> {
        let rule = |rule: &&Rule| AskingRule {
            grant: rule.grant().clone(),
            rule: rule.digest().to_owned(),
        };
        let need = Self {
            rules: asking.iter().map(rule).collect(),
            policies: tool.tool.extension.approval.clone(),
            by_tier: tool.tier == Tier::Elevated,
        };
        (need != Self::default()).then_some(need)
    }

    /// The part that a question about the call names.
    #[must_use]
    pub fn for_question(&self) -> Self {
        Self {
            rules: self.rules.iter().take(MOST_ASKING_RULES).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns whether an approval of a call with this need is one for `other` too. Whichever rule's
    /// approvers have decided, that rule must still ask; and every policy that asks must have been
    /// asked.
    pub fn covers(&self, other: &Self) -> bool {
        let rules = match (other.rules.is_empty(), self.rules.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.rules.iter().all(|rule| other.rules.contains(rule)),
        };
        rules && other.policies.iter().all(|it| self.policies.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::GrantRef;

    use super::*;

    fn need(rules: &[&str], policies: &[&str]) -> ApprovalNeed {
        let rule = |rule: &&str| AskingRule {
            grant: GrantRef {
                namespace: "pond".to_owned(),
                name: "swim".to_owned(),
            },
            rule: (*rule).to_owned(),
        };
        ApprovalNeed {
            rules: rules.iter().map(rule).collect(),
            policies: policies.iter().map(|it| (*it).to_owned()).collect(),
            by_tier: true,
        }
    }

    #[track_caller]
    fn check(asked: (&[&str], &[&str]), now: (&[&str], &[&str]), covers: bool) {
        let (asked, now) = (need(asked.0, asked.1), need(now.0, now.1));
        assert_eq!(asked.covers(&now), covers, "{asked:?} {now:?}");
    }

    #[test]
    fn an_approval_is_for_what_was_asked() {
        check((&[], &[]), (&[], &[]), true);
        check((&["a", "b"], &["p"]), (&["a", "b"], &["p"]), true);
        // A rule that no longer asks may be the one whose approvers have decided.
        check((&["a", "b"], &[]), (&["a"], &[]), false);
        check((&["a"], &[]), (&["a", "b"], &[]), true);
        check((&["a"], &[]), (&["b"], &[]), false);
        // Nobody who approves for the tier alone was asked as an approver of the rule.
        check((&[], &[]), (&["a"], &[]), false);
        check((&["a"], &[]), (&[], &[]), true);
        check((&[], &["p"]), (&[], &["p", "q"]), false);
        check((&[], &["p", "q"]), (&[], &["p"]), true);
    }
}
