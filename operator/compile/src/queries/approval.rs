//! The calls of an agent that need an approval, and who may decide about them.
//!
//! The controller writes these requirements into ToolApprovals, and the command line shows them. The
//! mediator decides by the same compiled rules whether a call needs an approval.

use std::collections::BTreeMap;

use toolcrib_crds::{GrantKind, PolicyRequirement, RuleRequirement};
use toolcrib_manifest::{AskingRule, Tier};

use crate::approval::Requirements;
use crate::compilation::always_needs_approval;
use crate::{Compilation, Kind, RuleSummary, ToolSummary};

/// The approvals that calls of one tool need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequirements {
    pub entry_digest: String,
    pub tier: Tier,
    /// The rules that ask. A call needs the approval of those that it meets.
    pub rules: Vec<RuleRequirement>,
    /// The policies that ask for each call.
    pub policies: Vec<PolicyRequirement>,
}

/// What a ToolApproval says of the tool and of those who may decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRequirements {
    pub tier: Tier,
    pub rules: Vec<RuleRequirement>,
    pub policies: Vec<PolicyRequirement>,
}

/// The reason why nobody can approve a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotApprovable {
    /// The tool has another entry digest.
    OtherEntry,
    /// None of the rules that the call meets asks any more.
    NoRule,
    /// Neither tier nor policy asks, and the call meets no rule that does. Without this, anybody could
    /// approve it.
    NotNeeded,
}

/// Returns the tools whose calls may need an approval, by canonical name; none if the agent may call
/// nothing.
pub fn tool_requirements(compilation: &Compilation) -> BTreeMap<String, ToolRequirements> {
    if compilation.blocked.is_some() || compilation.suspension().is_some() {
        return BTreeMap::new();
    }
    let tools = compilation.tools.iter();
    let asking = tools.filter_map(|tool| Some((tool.name.clone(), ToolRequirements::of(tool)?)));
    asking.collect()
}

impl CallRequirements {
    pub fn requirements(&self) -> Requirements<'_> {
        Requirements {
            rules: &self.rules,
            policies: &self.policies,
        }
    }
}

impl ToolRequirements {
    /// `None`: no call of the tool needs an approval.
    pub fn of(tool: &ToolSummary) -> Option<Self> {
        let rules: Vec<RuleRequirement> = tool.rules.iter().filter_map(requirement).collect();
        (tool.always_needs_approval() || !rules.is_empty()).then(|| Self {
            entry_digest: tool.entry_digest.clone(),
            tier: tool.tier,
            rules,
            policies: tool.approval.clone(),
        })
    }

    /// Returns the requirements of a call that a mediator asks about. `met`: the rules that the call
    /// meets. Those that ask no more are left out, since each of them would be enough.
    pub fn for_question(
        &self,
        entry: &str,
        met: &[AskingRule],
    ) -> Result<CallRequirements, NotApprovable> {
        // The digest of a rule covers its approvers.
        let is_met = |rule: &RuleRequirement| met.iter().any(|it| it.rule == rule.rule);
        self.for_rules(entry, met.is_empty(), is_met)
    }

    /// Returns the requirements of a call as they are now. `met`: the rules that asked when its
    /// ToolApproval was made. One that asks other persons now is left out.
    pub fn for_approval(
        &self,
        entry: &str,
        met: &[RuleRequirement],
    ) -> Result<CallRequirements, NotApprovable> {
        self.for_rules(entry, met.is_empty(), |rule| met.contains(rule))
    }

    fn for_rules(
        &self,
        entry: &str,
        meets_none: bool,
        is_met: impl Fn(&RuleRequirement) -> bool,
    ) -> Result<CallRequirements, NotApprovable> {
        if self.entry_digest != entry {
            return Err(NotApprovable::OtherEntry);
        }
        let rules = self.rules.iter().filter(|rule| is_met(rule));
        let rules: Vec<RuleRequirement> = rules.cloned().collect();
        if rules.is_empty() && !meets_none {
            return Err(NotApprovable::NoRule);
        }
        if rules.is_empty() && !always_needs_approval(self.tier, &self.policies) {
            return Err(NotApprovable::NotNeeded);
        }
        Ok(CallRequirements {
            tier: self.tier,
            rules,
            policies: self.policies.clone(),
        })
    }
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

/// The requirement of a rule that asks for an approval.
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
        let tools = tool_requirements(&compilation);
        assert_eq!(Vec::from_iter(tools.keys()), ["reed.dive", "reed.raze"]);
        let (entry, dive) = (&dive.entry_digest, &tools["reed.dive"]);
        let by_policy = dive.for_question(entry, &[]).expect("the policy asks");
        assert_eq!(
            by_policy.requirements().to_string(),
            "1 of group keepers (ClusterToolPolicy deep-water)"
        );
        let mut gone = limited.clone();
        gone.rule.push('0');
        let met = [limited, gone.clone()];
        let by_both = dive.for_question(entry, &met).expect("both ask");
        assert_eq!(
            by_both.requirements().to_string(),
            "2 of users heron, newt and group wardens (ToolGrant deep); and 1 of group keepers (ClusterToolPolicy deep-water)"
        );
        assert_eq!(dive.for_approval(entry, &by_both.rules), Ok(by_both));
        for (entry, met, expected) in [
            (&**entry, free, NotApprovable::NoRule),
            (entry, gone, NotApprovable::NoRule),
            ("v1:other", met[0].clone(), NotApprovable::OtherEntry),
        ] {
            assert_eq!(dive.for_question(entry, &[met]), Err(expected));
        }
        let raze = &tools["reed.raze"];
        let by_tier = raze.for_question(&raze.entry_digest, &[]);
        let by_tier = by_tier.expect("the tier asks");
        assert_eq!((by_tier.tier, by_tier.policies.len()), (Tier::Elevated, 0));
    }

    #[test]
    fn a_rule_with_other_approvers_does_not_stand_for_an_approval() {
        let tools = tool_requirements(&compilation());
        let dive = ToolRequirements {
            policies: Vec::new(),
            ..tools["reed.dive"].clone()
        };
        let entry = &dive.entry_digest;
        let mut rules = dive.rules.clone();
        assert!(dive.for_approval(entry, &rules).is_ok());
        assert_eq!(dive.for_approval(entry, &[]), Err(NotApprovable::NotNeeded));
        // The same digest, so that it is the approvers that are compared.
        rules[0].approval.minimum = Some(3);
        assert_eq!(dive.for_approval(entry, &rules), Err(NotApprovable::NoRule));
    }

    #[test]
    fn an_agent_that_may_call_nothing_has_no_requirements() {
        let text = WORLD.replace(
            "surfaces: [{name: reed}],",
            "surfaces: [{name: reed}], suspend: true,",
        );
        let loaded = load([("world.yaml".to_owned(), text)], Settings::default());
        let compiled = compile(&loaded.inputs, &ObjectRef::new("pond", "otter"));
        assert_eq!(
            tool_requirements(&compiled.expect("the agent")),
            BTreeMap::new()
        );
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
