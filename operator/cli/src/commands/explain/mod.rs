//! `explain`: the object that gives an agent a tool, or the reason for withholding it; in a
//! cluster, also the state of its pods.

mod budgets;
mod in_cluster;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use toolcrib_compile::approval::Need;
use toolcrib_compile::{
    Code, Compilation, GivenRule, GivenTool, Network, ObjectRef, ToolExplanation, WhyNot, compile,
    explain_tool, given_tools, suspended, would_deny_it,
};
use toolcrib_crds::ApprovalRule;
use toolcrib_manifest::{Mode, Tier};
use toolcrib_rules::{Window, WindowState};

use crate::print::Output;
use crate::{
    args::ExplainArgs,
    failure::Failure,
    print,
    sources::{self, ObjectScope, Objects},
};
use budgets::{BudgetLine, budgets};
use in_cluster::{
    ClusterState, ConditionLine, WithheldItem, cluster_text, in_cluster, withheld_lines,
};

/// The output of `explain` for one agent: its tools, and the withheld ones.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    agent: &'a ObjectRef,
    mode: Mode,
    /// Whether the runner may also call the tools itself, beside `mode: Mediated`.
    native: bool,
    manifest_digest: &'a str,
    /// The reason, if every request is refused because the agent is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    tools: Vec<GivenTool>,
    feeds: Vec<String>,
    providers: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budgets: Vec<BudgetLine>,
    /// The globs of policies that models must match, for an agent that lists no models.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    models_matching: &'a [Vec<String>],
    /// The policies that set `egress: Declared`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    egress_declared_by: &'a [String],
    withheld: Vec<WithheldItem>,
    /// Models that policies deny.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    denied_models: Vec<WithheldItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterState>,
}

pub fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let objects = sources::objects(&args.source, ObjectScope::Namespace)?;
    // Undecodable objects are missing in the answer below.
    print::findings(&objects.loaded, []);
    let agent = sources::find_agent(
        &objects.loaded,
        &args.agent,
        objects.namespace.as_deref(),
        &objects.from,
    )?;
    let compilation = compile(&objects.loaded.inputs, &agent)
        .with_context(|| format!("the agent {agent} cannot be compiled"))?;
    let (text, code) = match &args.tool {
        None => (
            explanation(args, &objects, &compilation)?,
            ExitCode::SUCCESS,
        ),
        Some(tool) => one(args, &objects, &compilation, tool)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(code)
}

fn explanation(
    args: &ExplainArgs,
    objects: &Objects,
    compilation: &Compilation,
) -> anyhow::Result<String> {
    let refusal = compilation.refusal.as_ref();
    let cluster = in_cluster(objects, compilation);
    let late = |name: &str| cluster.as_ref().and_then(|cluster| cluster.withheld(name));
    let by_compile = compilation.withheld.iter().map(|withheld| WithheldItem {
        name: withheld.what.clone(),
        code: withheld.code.name().to_owned(),
        message: withheld.message.clone(),
    });
    let mut withheld: Vec<WithheldItem> = by_compile.collect();
    let mut tools = Vec::new();
    for tool in given_tools(compilation) {
        match late(&tool.name) {
            None => tools.push(tool),
            Some(item) => withheld.push(item),
        }
    }
    let mut feeds = Vec::new();
    for feed in &compilation.files.feeds.0 {
        let name = format!("{}/{}", feed.source, feed.name);
        match late(&format!("feed {name}")) {
            None => feeds.push(name),
            Some(item) => withheld.push(item),
        }
    }
    let explanation = Explanation {
        agent: &compilation.agent,
        mode: compilation.files.agent.mode,
        native: compilation.files.agent.native,
        manifest_digest: &compilation.manifest_digest,
        suspended: suspended(compilation).map(|why| why.to_string()),
        refused: refusal.map(|found| format!("{}: {}", found.code.name(), found.message)),
        tools,
        feeds,
        providers: compilation
            .files
            .providers
            .providers
            .keys()
            .map(String::as_str)
            .collect(),
        budgets: budgets(
            &compilation.files.agent.budgets,
            cluster.as_ref().map_or(&[], |cluster| &cluster.budgets),
        ),
        models_matching: compilation
            .files
            .agent
            .models
            .as_ref()
            .map_or(&[], |models| &models.matching),
        egress_declared_by: match &compilation.network {
            Network::Declared(declared) => &declared.policies,
            Network::Unrestricted | Network::Undecided => &[],
        },
        withheld,
        denied_models: compilation
            .denied_models
            .iter()
            .map(|(reference, message)| WithheldItem {
                name: reference.clone(),
                code: Code::ModelDeniedByPolicy.name().to_owned(),
                message: message.clone(),
            })
            .collect(),
        cluster,
    };
    match args.output {
        Output::Table => {
            let now = args.now.unwrap_or_else(Timestamp::now);
            Ok(explanation_text(&explanation, now))
        }
        Output::Json | Output::Yaml => print::value(&explanation, args.output),
    }
}

fn explanation_text(explanation: &Explanation<'_>, now: Timestamp) -> String {
    let mut lines = vec![
        format!("agent {}", explanation.agent),
        format!("mode {}", caller(explanation.mode, explanation.native)),
        format!("manifest {}", explanation.manifest_digest),
    ];
    lines.extend(
        explanation
            .suspended
            .iter()
            .map(|why| print::plain(why).into_owned()),
    );
    lines.extend(
        explanation
            .refused
            .iter()
            .map(|why| format!("not accepted: {}", print::plain(why))),
    );
    let failure = explanation.cluster.as_ref().and_then(ClusterState::failure);
    let failure = failure.filter(|_| explanation.refused.is_none());
    lines.splice(1..1, failure.map(not_ready));
    let mut text = lines.join("\n") + "\n";
    if explanation.tools.is_empty() {
        text.push_str("no tools\n");
    } else {
        let limited = explanation.tools.iter().any(|tool| tool.limits.is_some());
        let row = |tool: &GivenTool| {
            let by = given_by(&tool.by, tool.selected_by.as_deref());
            let texts = [&*tool.name, tool.tier, tool.credential, &by];
            let limits = limits_at(tool, now);
            let texts = texts.into_iter().chain(limited.then_some(&*limits));
            texts.map(str::to_owned).collect()
        };
        let rows: Vec<Vec<String>> = explanation.tools.iter().map(row).collect();
        let header = ["TOOL", "TIER", "CREDENTIAL", "GIVEN BY", "LIMITS"];
        let shown = header.len() - usize::from(!limited);
        text.push_str(&print::table(&header[..shown], &rows));
    }
    let mut lines: Vec<String> = explanation
        .feeds
        .iter()
        .map(|feed| format!("feed {feed}"))
        .collect();
    lines.extend(explanation.tools.iter().filter_map(approval_line));
    lines.extend(tried_out_lines(&explanation.tools));
    lines.extend(explanation.budgets.iter().map(BudgetLine::text));
    if !explanation.models_matching.is_empty() {
        let lists = explanation.models_matching.iter();
        let lists: Vec<String> = lists.map(|globs| globs.join(", ")).collect();
        let lists = lists.join("; and ");
        lines.push(format!(
            "models that match {lists} (policies of the cluster)"
        ));
    }
    if !explanation.egress_declared_by.is_empty() {
        let policies = explanation.egress_declared_by.join(", ");
        lines.push(format!(
            "egress Declared (policies of the cluster: {policies})"
        ));
    }
    lines.extend(withheld_lines("withheld", &explanation.withheld));
    lines.extend(withheld_lines("denied model", &explanation.denied_models));
    for line in lines {
        text.push_str(&print::plain(&line));
        text.push('\n');
    }
    if let Some(cluster) = &explanation.cluster {
        text.push_str(&cluster_text(cluster));
    }
    text
}

/// Who may approve calls of a tool; `None`: no call needs an approval.
fn approval_line(tool: &GivenTool) -> Option<String> {
    let approvers = tool.approvers.as_ref()?;
    Some(format!("approval of {} needs {approvers}", tool.name))
}

/// One line for each policy that is tried out and would deny tools.
fn tried_out_lines(tools: &[GivenTool]) -> Vec<String> {
    let mut denied: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for tool in tools {
        for policy in &tool.would_deny {
            denied.entry(policy).or_default().push(&tool.name);
        }
    }
    let denied = denied.into_iter();
    let line = |(policy, tools): (&str, Vec<&str>)| {
        format!(
            "ClusterToolPolicy {policy}, which is tried out, would deny {}",
            tools.join(", ")
        )
    };
    denied.map(line).collect()
}

fn not_ready(condition: &ConditionLine) -> String {
    let ConditionLine {
        reason, message, ..
    } = condition;
    format!("not ready: {reason}: {}", print::plain(message))
}

/// Describes the caller of the tools.
fn caller(mode: Mode, native: bool) -> &'static str {
    match (mode, native) {
        (Mode::Mediated, false) => "Mediated",
        (Mode::Mediated, true) => "Mediated, and /mcp for the runner",
        (Mode::Native, _) => "Native: the runner calls tools at /mcp",
    }
}

/// The answer about one tool, and why the operator withholds it although compile gives it.
#[derive(Serialize)]
struct OneTool<'a> {
    #[serde(flatten)]
    answer: &'a ToolExplanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<WithheldItem>,
}

fn one(
    args: &ExplainArgs,
    objects: &Objects,
    compilation: &Compilation,
    name: &str,
) -> anyhow::Result<(String, ExitCode)> {
    let mut answer = explain_tool(&objects.loaded.inputs, compilation, name);
    let now = args.now.unwrap_or_else(Timestamp::now);
    let cluster = in_cluster(objects, compilation).filter(|_| answer.given);
    let withheld = cluster.and_then(|cluster| cluster.withheld(&answer.tool));
    answer.given &= withheld.is_none();
    let how = answer.how.as_ref();
    let is_usable = |how: &GivenTool| is_open(how, now) && withheld.is_none();
    let code = ExitCode::from(u8::from(!how.is_some_and(is_usable)));
    let text = match args.output {
        Output::Table => one_text(&answer, withheld.as_ref(), now),
        Output::Json | Output::Yaml => {
            let answer = OneTool {
                answer: &answer,
                withheld,
            };
            print::value(&answer, args.output)?
        }
    };
    Ok((text, code))
}

/// Returns the limits of the tool, with a note if no rule is in its window.
fn limits_at(tool: &GivenTool, now: Timestamp) -> String {
    let limits = tool.limits.as_deref().unwrap_or("-");
    let mut closed = tool.rules.iter().filter_map(|rule| closed(rule, now));
    match (is_open(tool, now), closed.next()) {
        (false, Some(why)) => format!("{limits} ({why})"),
        (_, _) => limits.to_owned(),
    }
}

/// True if a rule of the tool is in its window.
fn is_open(tool: &GivenTool, now: Timestamp) -> bool {
    tool.rules.is_empty() || tool.rules.iter().any(|rule| closed(rule, now).is_none())
}

fn closed(rule: &GivenRule, now: Timestamp) -> Option<&'static str> {
    outside(&rule.not_before, &rule.not_after, now)
}

/// Returns the reason if a grant or rule with this window gives nothing now.
pub(super) fn outside(
    not_before: &Option<String>,
    not_after: &Option<String>,
    now: Timestamp,
) -> Option<&'static str> {
    let window = Window::readable(not_before.as_deref(), not_after.as_deref());
    match window.state(now) {
        WindowState::NotYet(_) => Some("not yet"),
        WindowState::Over(_) => Some("over"),
        WindowState::Open => None,
    }
}

/// The grant, with the labels by which it selects the agent.
fn given_by(grant: &str, selector: Option<&str>) -> String {
    match selector {
        Some(selector) => format!("{grant}, selects {selector}"),
        None => grant.to_owned(),
    }
}

/// Who must approve each call: by the tool's tier, and by each policy.
fn approval_lines(how: &GivenTool) -> Vec<String> {
    let elevated = Tier::Elevated.name();
    let is_asked = !how.approval.is_empty() || how.rules.iter().any(|rule| rule.approval.is_some());
    let anybody = match is_asked {
        true => String::new(),
        false => format!(", by {}", Need(&ApprovalRule::default())),
    };
    let by_tier = (how.tier == elevated)
        .then(|| format!("approval    of each call{anybody}: its tier is {elevated}"));
    let by_policies = how.approval.iter().map(|asked| {
        let need = Need(&asked.approval);
        format!(
            "approval    of each call, by {need}: ClusterToolPolicy {}",
            asked.policy
        )
    });
    by_tier.into_iter().chain(by_policies).collect()
}

fn rule_line(rule: &GivenRule, now: Timestamp) -> String {
    let state = closed(rule, now);
    let state = state.map_or_else(String::new, |why| format!(" ({why})"));
    let by = given_by(&rule.by, rule.selected_by.as_deref());
    let approvers = rule
        .approval
        .as_ref()
        .map(|approval| format!(", by {}", Need(approval)));
    let approvers = approvers.unwrap_or_default();
    format!("rule        {by}: {}{approvers}{state}", rule.limits)
}

fn one_text(answer: &ToolExplanation, withheld: Option<&WithheldItem>, now: Timestamp) -> String {
    let ToolExplanation { agent, tool, .. } = answer;
    let lines: Vec<String> = match &answer.how {
        Some(how) => [match (withheld, is_open(how, now)) {
            (Some(WithheldItem { code, message, .. }), _) => {
                format!("{tool} is granted to {agent} and withheld: {code}: {message}")
            }
            (None, true) => format!("{tool} is given to {agent}"),
            (None, false) => format!("{tool} is given to {agent}, but not at {now}"),
        }]
        .into_iter()
        .chain([
            format!(
                "given by    {}",
                given_by(&how.by, how.selected_by.as_deref())
            ),
            format!("tier        {}", how.tier),
            format!("credential  {}", how.credential),
            format!("executed    {}", how.executed),
            format!("schema      {}", how.schema.get()),
            format!("undeclared  {}", how.other_arguments),
            format!("entry       {}", how.entry_digest),
        ])
        .chain(how.rules.iter().map(|rule| rule_line(rule, now)))
        .chain(approval_lines(how))
        .chain(
            how.would_deny
                .iter()
                .map(|policy| format!("tried out   {}", would_deny_it(policy))),
        )
        .collect(),
        None => std::iter::once(format!("{tool} is not given to {agent}"))
            .chain(answer.because.iter().map(|reason| match reason.withheld() {
                Some(_) => format!("withheld: {reason}"),
                None => reason.to_string(),
            }))
            .collect(),
    };
    let give = answer.because.iter().filter_map(|reason| match reason {
        WhyNot::NotGranted { tool, .. } => Some(format!(
            "to give it, add {tool} under allow in spec.tools of a ToolGrant for the agent"
        )),
        WhyNot::Withheld(_)
        | WhyNot::Suspended { .. }
        | WhyNot::NotAName(_)
        | WhyNot::NoAgent(_)
        | WhyNot::NotDeclared { .. }
        | WhyNot::NoSurface(_)
        | WhyNot::NoConsent { .. }
        | WhyNot::NotOffered { .. }
        | WhyNot::GrantSuspended { .. } => None,
    });
    let lines: Vec<_> = lines.into_iter().chain(give).collect();
    let lines: Vec<_> = lines.iter().map(|line| print::plain(line)).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::in_cluster::ManifestState;
    use super::*;

    fn cluster(compiled: ManifestState, conditions: &[[&str; 4]]) -> ClusterState {
        let conditions = conditions.iter().map(|texts| {
            let [kind, status, reason, message] = texts.map(str::to_owned);
            ConditionLine {
                kind,
                status,
                reason,
                message,
            }
        });
        ClusterState {
            budgets: Vec::new(),
            compiled,
            conditions: conditions.collect(),
            pods: Vec::new(),
            withheld: BTreeMap::new(),
        }
    }

    fn text_of(refused: Option<&str>, cluster: ClusterState) -> String {
        let agent = ObjectRef::new("pond", "otter");
        let explanation = Explanation {
            budgets: Vec::new(),
            agent: &agent,
            mode: Mode::Mediated,
            native: false,
            manifest_digest: "d1",
            suspended: None,
            refused: refused.map(str::to_owned),
            tools: Vec::new(),
            feeds: Vec::new(),
            providers: Vec::new(),
            models_matching: &[],
            egress_declared_by: &[],
            denied_models: Vec::new(),
            withheld: Vec::new(),
            cluster: Some(cluster),
        };
        explanation_text(&explanation, Timestamp::UNIX_EPOCH)
    }

    const WHY: &str = "no right to read in namespace pond";

    #[test]
    fn an_operator_that_reported_a_failure_is_not_asked_whether_it_runs() {
        for (status, asked) in [("False", false), ("Unknown", true)] {
            let ready = ["Ready", status, "ApplyFailed", WHY];
            let text = text_of(None, cluster(ManifestState::NotYet, &[ready]));
            assert_eq!(text.contains("is it running?"), asked, "{text}");
        }
        let text = text_of(None, cluster(ManifestState::NotYet, &[]));
        assert!(text.contains("is it running?"), "{text}");
    }

    #[test]
    fn a_failure_is_printed_once_and_before_the_tools() {
        let conditions = [
            ["Compiled", "False", "ApplyFailed", WHY],
            ["Ready", "False", "ApplyFailed", WHY],
        ];
        let text = text_of(None, cluster(ManifestState::Different, &conditions));
        let begin = format!("agent pond/otter\nnot ready: ApplyFailed: {WHY}\n");
        assert!(text.starts_with(&begin), "{text}");
        assert_eq!(text.matches(WHY).count(), 1, "{text}");
        assert!(text.contains("the pods keep an earlier manifest"), "{text}");
    }

    #[test]
    fn a_tool_that_the_operator_withholds_is_not_given() {
        let not_written = [["Compiled", "False", "ApplyFailed", WHY]];
        let reason = |cluster: &ClusterState, name: &str| {
            cluster
                .withheld(name)
                .map(|item| format!("{}: {}", item.code, item.message))
        };
        let nothing = "ApplyFailed: the operator could not write the agent's objects yet: the condition \
             Compiled says why";
        let never = cluster(ManifestState::NotYet, &not_written);
        assert_eq!(reason(&never, "reed.fish").as_deref(), Some(nothing));
        // An earlier version stays in force.
        let earlier = cluster(ManifestState::Different, &not_written);
        assert_eq!(reason(&earlier, "reed.fish"), None);
        // The status has not been written yet.
        let new = cluster(ManifestState::NotYet, &[]);
        assert_eq!(reason(&new, "reed.fish"), None);

        let item = WithheldItem {
            name: "reed.fish".to_owned(),
            code: "SecretUnknown".to_owned(),
            message: "its credential could not be read".to_owned(),
        };
        let mut unread = cluster(ManifestState::Different, &[]);
        unread.withheld.insert(item.name.clone(), item);
        let expected = "SecretUnknown: its credential could not be read";
        assert_eq!(reason(&unread, "reed.fish").as_deref(), Some(expected));
        assert_eq!(reason(&unread, "reed.look"), None);
    }

    #[test]
    fn a_refusal_is_not_repeated_as_a_failure() {
        let ready = ["Ready", "False", "NoModelProvider", "no model"];
        let text = text_of(
            Some("NoModelProvider: no model"),
            cluster(ManifestState::NotYet, &[ready]),
        );
        assert!(!text.contains("not ready:"), "{text}");
    }
}
