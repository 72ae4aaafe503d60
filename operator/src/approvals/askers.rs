//! Who may approve the calls of one agent, by its compiled files.
//!
//! Invariant: what is not in the compiled files cannot be approved.

use std::collections::BTreeMap;

use toolcrib_crds::{PolicyRequirement, RuleRequirement};
use toolcrib_manifest::{Question, Tier};

use super::plan::Standing;
use super::stored::ApprovalBody;

/// Limits the bytes of the requirements of a question, as JSON: they are kept in memory while it is open.
/// Further rules that ask are left out; each by itself would be enough.
const REQUIREMENTS: usize = 1024;

/// The tools of an agent whose calls persons may have to approve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Askers {
    /// By canonical name.
    pub tools: BTreeMap<String, AskingTool>,
    /// The reason why no call may be made now; `None`: `tools` says which.
    pub none: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AskingTool {
    pub entry_digest: String,
    pub tier: Tier,
    /// The rules that give the tool and ask.
    pub rules: Vec<RuleRequirement>,
    /// The policies that ask for each call of the tool.
    pub policies: Vec<PolicyRequirement>,
}

impl AskingTool {
    /// Returns whether a call that meets these rules needs an approval.
    fn asks(&self, rules: &[RuleRequirement]) -> bool {
        self.tier == Tier::Elevated || !rules.is_empty() || !self.policies.is_empty()
    }
}

impl Askers {
    /// Of an agent whose mediators may use nothing.
    pub fn none(why: &'static str) -> Self {
        Self {
            tools: BTreeMap::new(),
            none: Some(why),
        }
    }

    /// Returns the tool of a question, with the rules that it names and that stand. `Err` continues a
    /// sentence that begins with the tool's name.
    pub fn tool(&self, question: &Question) -> Result<AskingTool, String> {
        if let Some(why) = self.none {
            return Err(format!("cannot be approved: {why}"));
        }
        let Some(tool) = self.tools.get(&question.tool) else {
            return Err("is not given to the agent with an approval".to_owned());
        };
        if tool.entry_digest != question.entry {
            return Err("has changed since the mediator's files were written".to_owned());
        }
        let asks = |rule: &&RuleRequirement| question.rules.iter().any(|it| it.rule == rule.rule);
        let rules: Vec<RuleRequirement> = bounded(tool.rules.iter().filter(asks));
        if rules.is_empty() && !question.rules.is_empty() {
            return Err("is not given any more by the rules that the call meets".to_owned());
        }
        if !tool.asks(&rules) {
            return Err("needs no approval for a call that meets no rule".to_owned());
        }
        Ok(AskingTool {
            rules,
            ..tool.clone()
        })
    }

    /// Returns whether the call of an approval can still be approved, and by whom.
    pub fn standing(&self, body: &ApprovalBody) -> Standing {
        if let Some(why) = self.none {
            return Standing::Gone(format!("Revoked: {why}"));
        }
        let gone = |why: &str| Standing::Gone(format!("Revoked: {why}"));
        let Some(tool) = self.tools.get(&body.tool) else {
            return gone("the agent is not given the tool with an approval any more");
        };
        if tool.entry_digest != body.entry_digest {
            return gone("the tool has changed since the agent asked");
        }
        let stands = |rule: &&RuleRequirement| tool.rules.contains(rule);
        let rules: Vec<RuleRequirement> = body.rules.iter().filter(stands).cloned().collect();
        if rules.is_empty() && !body.rules.is_empty() {
            return gone("the rules that the call meets are gone, or have changed");
        }
        if !tool.asks(&rules) {
            // Without this, everybody could approve.
            return gone("no rule and no policy asks for an approval any more");
        }
        Standing::Stands {
            rules,
            policies: tool.policies.clone(),
        }
    }
}

/// The first requirements within [`REQUIREMENTS`], at least one.
fn bounded<'a>(rules: impl Iterator<Item = &'a RuleRequirement>) -> Vec<RuleRequirement> {
    let mut bytes = 0;
    let mut first = true;
    let within = rules.take_while(|rule| {
        bytes += serde_json::to_string(rule).map_or(REQUIREMENTS, |text| text.len());
        std::mem::take(&mut first) || bytes <= REQUIREMENTS
    });
    within.cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_crds::GrantKind;
    use toolcrib_manifest::{AskingRule, GrantRef};

    use super::super::stored::StoredApproval;
    use super::super::stored::tests::{approval, read};
    use super::*;

    fn rule(digest: &str) -> RuleRequirement {
        let approval = json!({"approvers": {"users": ["heron"]}});
        RuleRequirement {
            kind: GrantKind::ToolGrant,
            grant: "deep".into(),
            rule: digest.into(),
            approval: serde_json::from_value(approval).expect("a rule"),
        }
    }

    fn askers(entry: &str, rules: &[&str]) -> Askers {
        let tool = AskingTool {
            entry_digest: entry.into(),
            tier: Tier::System,
            rules: rules.iter().map(|it| rule(it)).collect(),
            policies: Vec::new(),
        };
        Askers {
            tools: [("kelp.dive".to_owned(), tool)].into(),
            none: None,
        }
    }

    fn question(rules: &[&str]) -> Question {
        Question {
            id: "q".into(),
            call_digest: "c1:call".into(),
            tool: "kelp.dive".into(),
            entry: "v1:entry".into(),
            arguments: "{}".into(),
            redacted: Vec::new(),
            rules: rules
                .iter()
                .map(|rule| AskingRule {
                    grant: GrantRef {
                        name: "deep".into(),
                        namespace: "pond".into(),
                    },
                    rule: (*rule).to_owned(),
                })
                .collect(),
            asked_at: String::new(),
            open_for_ms: 1,
        }
    }

    #[test]
    fn a_question_is_taken_with_the_rules_that_stand() {
        let given = askers("v1:entry", &["r1:deep", "r1:other"]);
        let rules = |asked: &[&str]| {
            let tool = given.tool(&question(asked))?;
            Ok::<_, String>(tool.rules.into_iter().map(|it| it.rule).collect::<Vec<_>>())
        };
        assert_eq!(
            rules(&["r1:deep", "r1:made-up"]),
            Ok(vec!["r1:deep".to_owned()])
        );
        assert!(rules(&[]).is_err(), "nothing asks");
        assert!(rules(&["r1:made-up"]).is_err());
        assert!(
            askers("v1:else", &["r1:deep"])
                .tool(&question(&[]))
                .is_err()
        );
        assert!(
            Askers::none("it is suspended")
                .tool(&question(&[]))
                .is_err()
        );
        assert!(Askers::default().tool(&question(&[])).is_err());
    }

    #[test]
    fn a_question_without_rules_needs_a_tier_or_a_policy_that_asks() {
        let body = read::<StoredApproval>(&approval("otter-1"))
            .body
            .expect("a body");
        let body = ApprovalBody {
            rules: Vec::new(),
            ..*body
        };
        let mut given = askers("v1:entry", &["r1:deep"]);
        let mut check = |change: fn(&mut AskingTool), expected: bool| {
            change(given.tools.get_mut("kelp.dive").expect("a tool"));
            assert_eq!(given.tool(&question(&[])).is_ok(), expected);
            let stands = matches!(given.standing(&body), Standing::Stands { .. });
            assert_eq!(stands, expected);
        };
        check(|_| {}, false);
        check(|tool| tool.tier = Tier::Elevated, true);
        check(|tool| tool.tier = Tier::System, false);
        let policy: fn(&mut AskingTool) = |tool| {
            tool.policies.push(PolicyRequirement {
                policy: "deep-water".into(),
                approval: toolcrib_crds::ApprovalRule::default(),
            });
        };
        check(policy, true);
    }

    #[test]
    fn many_rules_are_cut_and_one_is_always_kept() {
        let names: Vec<String> = (0..100).map(|it| format!("r1:{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let tool = askers("v1:entry", &names)
            .tool(&question(&names))
            .expect("a tool");
        assert!((2..20).contains(&tool.rules.len()), "{}", tool.rules.len());
        let mut long = askers("v1:entry", &["r1:a"]);
        let rule = &mut long.tools.get_mut("kelp.dive").expect("a tool").rules[0];
        let approvers = rule.approval.approvers.as_mut().expect("approvers");
        approvers.users = vec!["x".repeat(256); 32];
        assert_eq!(
            long.tool(&question(&["r1:a"])).expect("a tool").rules.len(),
            1
        );
    }

    #[test]
    fn an_approval_stands_with_its_tool_and_one_of_its_rules() {
        let body = read::<StoredApproval>(&approval("otter-1"))
            .body
            .expect("a body");
        let stands = |askers: &Askers| matches!(askers.standing(&body), Standing::Stands { .. });
        assert!(stands(&askers("v1:entry", &["r1:deep", "r1:new"])));
        assert!(!stands(&askers("v1:entry", &["r1:new"])));
        assert!(!stands(&askers("v1:else", &["r1:deep"])));
        assert!(!stands(&Askers::none("it is suspended")));
        assert!(!stands(&Askers::default()));
        // The same digest with other approvers is another rule.
        let mut other = askers("v1:entry", &["r1:deep"]);
        let rule = &mut other.tools.get_mut("kelp.dive").expect("a tool").rules[0];
        rule.approval.minimum = Some(2);
        assert!(!stands(&other));
    }
}
