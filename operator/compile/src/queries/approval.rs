//! Who may decide about a call, as the agent's grants and policies say.

use toolcrib_crds::{GrantKind, PolicyRequirement, RuleRequirement};
use toolcrib_manifest::{AskingRule, Tier};

use crate::approval::Requirements;
use crate::{Compilation, Kind, RuleSummary, ToolSummary};

/// What a ToolApproval says of the tool and of those who may decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRequirements {
    pub tier: Tier,
    pub rules: Vec<RuleRequirement>,
    pub policies: Vec<PolicyRequirement>,
}

impl CallRequirements {
    pub fn requirements(&self) -> Requirements<'_> {
        Requirements {
            rules: &self.rules,
            policies: &self.policies,
        }
    }
}

/// Returns the requirements of a call that a mediator asks about. `entry`: the tool's entry digest;
/// `rules`: the rules that the call meets. `None`: the agent does not have this tool with these rules, or
/// the call needs no approval.
pub fn call_requirements(
    compilation: &Compilation,
    tool: &str,
    entry: &str,
    rules: &[AskingRule],
) -> Option<CallRequirements> {
    if compilation.blocked.is_some() || compilation.suspension().is_some() {
        return None;
    }
    let mut tools = compilation.tools.iter();
    let summary = tools.find(|summary| summary.name == tool && summary.entry_digest == entry)?;
    let asked: Option<Vec<RuleRequirement>> = rules
        .iter()
        .map(|rule| asked_requirement(summary, rule))
        .collect();
    let found = CallRequirements {
        tier: summary.tier,
        rules: asked?,
        policies: summary.approval.clone(),
    };
    let is_asked =
        found.tier == Tier::Elevated || !found.rules.is_empty() || !found.policies.is_empty();
    is_asked.then_some(found)
}

/// Words for who may approve calls of a tool, by its rules and by policies. `None`: no call needs an
/// approval.
pub(crate) fn approvers(summary: &ToolSummary) -> Option<String> {
    // Without limits, a rule that does not ask lets any call run.
    let rules = summary.rules.iter().filter(|_| summary.limits.is_some());
    let rules: Vec<RuleRequirement> = rules.filter_map(requirement).collect();
    let requirements = Requirements {
        rules: &rules,
        policies: &summary.approval,
    };
    let is_asked = !rules.is_empty() || summary.always_needs_approval();
    is_asked.then(|| requirements.to_string())
}

fn asked_requirement(summary: &ToolSummary, asked: &AskingRule) -> Option<RuleRequirement> {
    let is_it = |rule: &&RuleSummary| {
        let key = &rule.grant.key;
        (&key.namespace, &key.name, &rule.digest)
            == (&asked.grant.namespace, &asked.grant.name, &asked.rule)
    };
    summary.rules.iter().find(is_it).and_then(requirement)
}

/// `None`: the rule does not ask.
fn requirement(rule: &RuleSummary) -> Option<RuleRequirement> {
    let kind = match rule.grant.kind {
        Kind::ToolGrant => GrantKind::ToolGrant,
        Kind::ToolDefaults => GrantKind::ToolDefaults,
        Kind::Surface
        | Kind::Agent
        | Kind::ModelProvider
        | Kind::ClusterToolPolicy
        | Kind::Service
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::Namespace => return None,
    };
    Some(RuleRequirement {
        kind,
        grant: rule.grant.key.name.clone(),
        rule: rule.digest.clone(),
        approval: rule.approval.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::GrantRef;

    use super::*;
    use crate::{Inputs, ObjectRef, Settings, compile, load};

    const WORLD: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: reed, namespace: pond}
spec:
  url: https://reed.example
  tiers: {raze: Elevated}
  descriptor:
    version: 2
    tools:
    - {name: dive, inputSchema: {type: object, properties: {depth: {type: number}}}, http: {method: POST, path: /dive}}
    - {name: look, inputSchema: {type: object}, http: {method: GET, path: /look}}
    - {name: raze, inputSchema: {type: object}, http: {method: POST, path: /raze}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: reed}], policy: {maxTier: Elevated}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: deep, namespace: pond}
spec:
  agents: [otter]
  tools:
  - {surface: {name: reed}, allow: [dive, look, raze]}
  - surface: {name: reed}
    allow: [dive]
    when: [{expression: "args.depth < 40.0", message: less than 40 m}]
    approval: {approvers: {groups: [wardens], users: [newt, heron]}, minimum: 2}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ClusterToolPolicy
metadata: {name: deep-water}
spec: {requireApproval: {tools: [{surface: {namespace: pond, name: reed}, tools: [d*]}], approvers: {groups: [keepers]}}}
"#;

    fn world() -> Inputs {
        load(
            [("world.yaml".to_owned(), WORLD.to_owned())],
            Settings::default(),
        )
        .inputs
    }

    fn compilation() -> Compilation {
        compile(&world(), &ObjectRef::new("pond", "otter")).expect("the agent")
    }

    fn asked(rule: &RuleSummary) -> AskingRule {
        let key = &rule.grant.key;
        AskingRule {
            grant: GrantRef {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
            },
            rule: rule.digest.clone(),
        }
    }

    #[test]
    fn requirements_are_those_of_the_rules_that_a_call_meets_and_of_the_policies() {
        let compilation = compilation();
        let tool = |name: &str| {
            let mut tools = compilation.tools.iter();
            tools.find(|tool| tool.name == name).expect("the tool")
        };
        let dive = tool("reed.dive");
        let [free, limited] = {
            let (mut free, mut limited) = (None, None);
            for rule in &dive.rules {
                match rule.approval {
                    None => free = Some(asked(rule)),
                    Some(_) => limited = Some(asked(rule)),
                }
            }
            [free, limited].map(|rule| rule.expect("both rules"))
        };
        let entry = &dive.entry_digest;
        let by_policy = call_requirements(&compilation, "reed.dive", entry, &[]);
        let by_policy = by_policy.expect("the policy asks");
        assert_eq!(
            by_policy.requirements().to_string(),
            "1 of group keepers (ClusterToolPolicy deep-water)"
        );
        let by_both = call_requirements(
            &compilation,
            "reed.dive",
            entry,
            std::slice::from_ref(&limited),
        );
        assert_eq!(
            by_both.expect("both ask").requirements().to_string(),
            "2 of users heron, newt and group wardens (ToolGrant deep); and 1 of group keepers (ClusterToolPolicy deep-water)"
        );
        // A rule that does not ask, one that does not exist, another entry, and a tool of which nobody asks.
        let mut gone = limited.clone();
        gone.rule.push('0');
        for (tool, entry, rules) in [
            ("reed.dive", entry, vec![free]),
            ("reed.dive", entry, vec![limited, gone]),
            ("reed.dive", &tool("reed.look").entry_digest, Vec::new()),
            ("reed.look", &tool("reed.look").entry_digest, Vec::new()),
            ("reed.gone", entry, Vec::new()),
        ] {
            assert_eq!(
                call_requirements(&compilation, tool, entry, &rules),
                None,
                "{tool} {rules:?}"
            );
        }
        let raze = tool("reed.raze");
        let by_tier = call_requirements(&compilation, "reed.raze", &raze.entry_digest, &[]);
        let by_tier = by_tier.expect("the tier asks");
        assert_eq!((by_tier.tier, by_tier.policies.len()), (Tier::Elevated, 0));
    }

    #[test]
    fn other_approvers_make_another_rule() {
        let digests = |text: &str| -> Vec<String> {
            let text = WORLD.replace("users: [newt, heron]", text);
            let loaded = load([("world.yaml".to_owned(), text)], Settings::default());
            let compiled = compile(&loaded.inputs, &ObjectRef::new("pond", "otter"));
            let compiled = compiled.expect("the agent");
            let mut tools = compiled.tools.iter();
            let dive = tools
                .find(|tool| tool.name == "reed.dive")
                .expect("the tool");
            dive.rules.iter().map(|rule| rule.digest.clone()).collect()
        };
        let written = digests("users: [newt, heron]");
        assert_eq!(written, digests("users: [heron, newt]"));
        assert_ne!(written, digests("users: [heron]"));
    }
}
