//! Who may approve the calls of one agent, by its compiled files.
//!
//! Here: what is kept of a compilation, and the words for people. Not here: which rules and policies ask
//! ([`ToolRequirements`]).
//!
//! Invariant: a call that is not in the compiled files cannot be approved.

use std::collections::BTreeMap;

use toolcrib_compile::{CallRequirements, NotApprovable, ToolRequirements};
use toolcrib_crds::RuleRequirement;
use toolcrib_manifest::Question;

use super::plan::CallAuthority;
use super::stored::ApprovalBody;

/// Limits the bytes of the rules of a question, as JSON: they are kept in memory while it is open.
/// Further rules that ask are left out; each by itself would be enough.
const RULE_BYTES: usize = 1024;

/// The approvals that the calls of an agent need now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRequirements {
    /// No call may be made, for this reason.
    NoCalls(&'static str),
    /// The requirements of the tools whose calls may need an approval, by canonical name.
    Tools(BTreeMap<String, ToolRequirements>),
}

impl AgentRequirements {
    /// Returns the requirements of the call of a question. `Err` continues a sentence that begins with the
    /// tool's name.
    pub fn for_question(&self, question: &Question) -> Result<CallRequirements, String> {
        let tools = match self {
            Self::NoCalls(why) => return Err(format!("cannot be approved: {why}")),
            Self::Tools(tools) => tools,
        };
        let Some(tool) = tools.get(&question.tool) else {
            return Err("is not given to the agent with an approval".to_owned());
        };
        let found = tool.for_question(&question.entry, &question.rules);
        let found = found.map_err(|why| match why {
            NotApprovable::OtherEntry => "has changed since the mediator's files were written",
            NotApprovable::NoRule => "is not given any more by the rules that the call meets",
            NotApprovable::NotNeeded => "needs no approval for a call that meets no rule",
        })?;
        Ok(CallRequirements {
            rules: bounded(found.rules),
            ..found
        })
    }

    /// Returns whether the call of an approval can still be approved, and by whom.
    pub fn authority(&self, body: &ApprovalBody) -> CallAuthority {
        let gone = |why: &str| CallAuthority::Revoked(why.to_owned());
        let tools = match self {
            Self::NoCalls(why) => return gone(why),
            Self::Tools(tools) => tools,
        };
        let Some(tool) = tools.get(&body.tool) else {
            return gone("the agent is not given the tool with an approval any more");
        };
        match tool.for_approval(&body.entry_digest, &body.rules) {
            Ok(requirements) => CallAuthority::Granted(requirements),
            Err(why) => gone(match why {
                NotApprovable::OtherEntry => "the tool has changed since the agent asked",
                NotApprovable::NoRule => "the rules that the call meets are gone, or have changed",
                NotApprovable::NotNeeded => "no rule and no policy asks for an approval any more",
            }),
        }
    }
}

/// The first rules within [`RULE_BYTES`], at least one.
fn bounded(mut rules: Vec<RuleRequirement>) -> Vec<RuleRequirement> {
    let mut bytes = 0;
    let within = rules.iter().take_while(|rule| {
        bytes += serde_json::to_string(rule).map_or(RULE_BYTES, |text| text.len());
        bytes <= RULE_BYTES
    });
    let within = within.count();
    rules.truncate(within.max(1));
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_crds::{GrantKind, PolicyRequirement};
    use toolcrib_manifest::{AskingRule, GrantRef, Tier};

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

    fn tool(entry: &str, rules: &[&str]) -> ToolRequirements {
        ToolRequirements {
            entry_digest: entry.into(),
            tier: Tier::System,
            rules: rules.iter().map(|it| rule(it)).collect(),
            policies: Vec::new(),
        }
    }

    fn agent(tool: ToolRequirements) -> AgentRequirements {
        AgentRequirements::Tools([("kelp.dive".to_owned(), tool)].into())
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
        let check = |agent: &AgentRequirements, asked: &[&str], expected: Result<&[&str], &str>| {
            let found = agent.for_question(&question(asked));
            let found = found.map(|it| it.rules.into_iter().map(|it| it.rule).collect::<Vec<_>>());
            let expected = expected.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        let given = agent(tool("v1:entry", &["r1:deep", "r1:other"]));
        check(&given, &["r1:deep", "r1:made-up"], Ok(&["r1:deep"]));
        check(
            &given,
            &[],
            Err("needs no approval for a call that meets no rule"),
        );
        check(
            &given,
            &["r1:made-up"],
            Err("is not given any more by the rules that the call meets"),
        );
        check(
            &agent(tool("v1:else", &["r1:deep"])),
            &["r1:deep"],
            Err("has changed since the mediator's files were written"),
        );
        check(
            &AgentRequirements::NoCalls("it is suspended"),
            &["r1:deep"],
            Err("cannot be approved: it is suspended"),
        );
        check(
            &AgentRequirements::Tools(BTreeMap::new()),
            &["r1:deep"],
            Err("is not given to the agent with an approval"),
        );
    }

    #[test]
    fn a_question_without_rules_needs_a_tier_or_a_policy_that_asks() {
        let body = read::<StoredApproval>(&approval("otter-1"));
        let body = ApprovalBody {
            rules: Vec::new(),
            ..*body.body.expect("a body")
        };
        let check = |change: fn(&mut ToolRequirements), expected: bool| {
            let mut tool = tool("v1:entry", &["r1:deep"]);
            change(&mut tool);
            let given = agent(tool);
            assert_eq!(given.for_question(&question(&[])).is_ok(), expected);
            let stands = matches!(given.authority(&body), CallAuthority::Granted(_));
            assert_eq!(stands, expected);
        };
        check(|_| {}, false);
        check(|tool| tool.tier = Tier::Elevated, true);
        let policy: fn(&mut ToolRequirements) = |tool| {
            tool.policies.push(PolicyRequirement {
                policy: "deep-water".into(),
                approval: toolcrib_crds::ApprovalRule::default(),
            });
        };
        check(policy, true);
    }

    #[test]
    fn many_rules_are_cut_and_one_is_always_kept() {
        let count = |tool: ToolRequirements, asked: &[&str]| {
            let found = agent(tool).for_question(&question(asked));
            found.expect("the rules ask").rules.len()
        };
        let names: Vec<String> = (0..100).map(|it| format!("r1:{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let kept = count(tool("v1:entry", &names), &names);
        assert!((2..20).contains(&kept), "{kept}");
        let mut long = tool("v1:entry", &["r1:a"]);
        let approvers = long.rules[0].approval.approvers.as_mut();
        approvers.expect("approvers").users = vec!["x".repeat(256); 32];
        assert_eq!(count(long, &["r1:a"]), 1);
        let mut policy = tool("v1:entry", &[]);
        policy.tier = Tier::Elevated;
        assert_eq!(count(policy, &[]), 0);
    }

    #[test]
    fn an_approval_stands_with_its_tool_and_one_of_its_rules() {
        let body = read::<StoredApproval>(&approval("otter-1"));
        let body = body.body.expect("a body");
        let stands =
            |given: &AgentRequirements| matches!(given.authority(&body), CallAuthority::Granted(_));
        assert!(stands(&agent(tool("v1:entry", &["r1:deep", "r1:new"]))));
        assert!(!stands(&agent(tool("v1:entry", &["r1:new"]))));
        assert!(!stands(&agent(tool("v1:else", &["r1:deep"]))));
        assert!(!stands(&AgentRequirements::NoCalls("it is suspended")));
        assert!(!stands(&AgentRequirements::Tools(BTreeMap::new())));
    }
}
