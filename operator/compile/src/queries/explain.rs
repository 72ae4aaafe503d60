//! The tools of an agent, and the reasons for and against one tool. `kubectl toolcrib explain`
//! prints them, and the operator gives them to agents that may ask.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use toolcrib_crds::{ApprovalRule, PolicyRequirement};
use toolcrib_manifest::{RawJson, Tool};

use super::approval::approvers;
use super::why::canonical;
use crate::surface::descriptor::OtherArguments;
use crate::{Compilation, ObjectRef, Objects, RuleSummary, ToolSummary, WhyNot, executed, why_not};

/// A tool that the agent has.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenTool {
    pub name: String,
    /// Kind, namespace and name of the object that grants it.
    pub by: String,
    /// The labels by which that grant selects the agent, if it does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_by: Option<String>,
    pub tier: &'static str,
    pub credential: &'static str,
    /// `GET http://fish.pond.svc:80/list`.
    pub executed: String,
    /// How arguments that the schema does not declare are treated: `refused`, …
    pub other_arguments: &'static str,
    pub schema: RawJson,
    pub entry_digest: String,
    /// The limits within which it may be called, and whether each call needs an approval; missing if any
    /// call runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// Missing if no rule of it has conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<GivenRule>,
    /// The ClusterToolPolicies that ask for an approval of each call, and who may approve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approval: Vec<PolicyRequirement>,
    /// Words for who may approve calls, by `rules` and `approval`; `None`: no call needs an approval.
    #[serde(skip)]
    pub approvers: Option<String>,
    /// The ClusterToolPolicies with `enforcement: Audit` that would deny it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_deny: Vec<String>,
}

/// A rule that gives the tool. A call may run if it meets one of them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenRule {
    /// Kind, namespace and name of the object that has it.
    pub by: String,
    /// The labels by which that grant selects the agent, if it does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_by: Option<String>,
    pub limits: String,
    /// Who may approve a call that meets the rule. Missing: it needs no approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    pub digest: String,
}

/// One tool of an agent: the grant that gives it, or the reasons why it is withheld.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExplanation {
    pub agent: ObjectRef,
    pub tool: String,
    pub given: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub how: Option<GivenTool>,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "sentences")]
    pub because: Vec<WhyNot>,
}

/// Returns every tool that the agent has.
pub fn given_tools(compilation: &Compilation) -> impl Iterator<Item = GivenTool> {
    let tools = compilation.files.tools.tools.iter();
    let by_name: BTreeMap<&str, &Tool> = tools.map(|tool| (&*tool.name, tool)).collect();
    compilation.tools.iter().filter_map(move |summary| {
        let tool = by_name.get(&*summary.name)?;
        Some(given(compilation, summary, tool))
    })
}

/// Explains the tool `name`. `compilation` is made of `objects`.
pub fn explain_tool(
    objects: &dyn Objects,
    compilation: &Compilation,
    name: &str,
) -> ToolExplanation {
    let name = &*canonical(name);
    let how = given_tools(compilation).find(|tool| tool.name == name);
    let because = match how {
        Some(_) => Vec::new(),
        None => why_not(objects, compilation, name),
    };
    ToolExplanation {
        agent: compilation.agent.clone(),
        tool: name.to_owned(),
        given: how.is_some(),
        how,
        because,
    }
}

fn given(compilation: &Compilation, summary: &ToolSummary, tool: &Tool) -> GivenTool {
    let rules = summary.rules.iter();
    GivenTool {
        name: summary.name.clone(),
        by: format!("{} {}", summary.grant.kind.name(), summary.grant.key),
        selected_by: compilation.selected_by(&summary.grant).cloned(),
        tier: summary.tier.name(),
        credential: summary.credential.name(),
        executed: executed(&tool.execution),
        other_arguments: OtherArguments::of_compiled(tool).name(),
        schema: tool.input_schema.clone(),
        entry_digest: summary.entry_digest.clone(),
        limits: summary.terms(),
        rules: rules.map(|rule| given_rule(compilation, rule)).collect(),
        approval: summary.approval.clone(),
        approvers: approvers(summary),
        would_deny: summary.would_deny.clone(),
    }
}

fn given_rule(compilation: &Compilation, rule: &RuleSummary) -> GivenRule {
    GivenRule {
        by: format!("{} {}", rule.grant.kind.name(), rule.grant.key),
        selected_by: compilation.selected_by(&rule.grant).cloned(),
        limits: rule.limits.clone(),
        approval: rule.approval.clone(),
        not_before: rule.not_before.clone(),
        not_after: rule.not_after.clone(),
        digest: rule.digest.clone(),
    }
}

fn sentences<S: Serializer>(because: &[WhyNot], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(because.iter().map(WhyNot::to_string))
}
