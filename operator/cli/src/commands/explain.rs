//! `explain`: the object that gives an agent a tool, or the reason for withholding it; in a
//! cluster, also the state of its pods.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use toolcrib_compile::{
    Code, Compilation, GivenRule, GivenTool, ObjectRef, ToolExplanation, WhyNot, compile,
    explain_tool, given_tools, suspended,
};
use toolcrib_crds::{Agent, ConditionType, StateReason};
use toolcrib_manifest::{Mode, Tier};
use toolcrib_rules::{Window, WindowState};

use crate::print::Output;
use crate::{
    args::ExplainArgs,
    cluster::PodFacts,
    failure::Failure,
    print,
    sources::{self, ObjectScope, ObjectSource, Objects},
};

/// The explanation answer: the tools of an agent, and those that are withheld.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    agent: &'a ObjectRef,
    mode: Mode,
    /// Whether the runner may also call the tools itself, beside `mode: Mediated`.
    native: bool,
    manifest_digest: &'a str,
    /// That every request is refused, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    tools: Vec<GivenTool>,
    feeds: Vec<String>,
    providers: Vec<&'a str>,
    /// The globs of policies that models must match, for an agent that lists no models.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    models_matching: &'a [Vec<String>],
    withheld: Vec<WithheldItem>,
    /// Models that policies deny.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    denied_models: Vec<WithheldItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterState>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WithheldItem {
    name: String,
    code: &'static str,
    message: String,
}

/// The state in the cluster, from the Agent's status and its pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterState {
    compiled: ManifestState,
    conditions: Vec<ConditionLine>,
    pods: Vec<PodLine>,
}

impl ClusterState {
    /// Returns the condition that keeps the tools from the pods. It is left out if the tools
    /// themselves are withheld, since their lines hold the reasons.
    fn failure(&self) -> Option<&ConditionLine> {
        let mut conditions = self.conditions.iter();
        conditions.find(|line| {
            line.kind == ConditionType::Ready.as_str()
                && line.status == "False"
                && line.reason != StateReason::AllWithheld.as_str()
        })
    }

    /// Whether the operator could not write the agent's objects.
    fn is_not_written(&self) -> bool {
        let compiled = ConditionType::Compiled.as_str();
        let mut conditions = self.conditions.iter();
        conditions.any(|line| line.kind == compiled && line.status == "False")
    }
}

/// The comparison of the operator's manifest with the one compiled here.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
enum ManifestState {
    Same,
    /// The operator is behind, or it reads objects that this user may not read.
    Different,
    NotYet,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionLine {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodLine {
    name: String,
    phase: String,
    standing: String,
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
    let feeds = &compilation.files.feeds.0;
    let explanation = Explanation {
        agent: &compilation.agent,
        mode: compilation.files.agent.mode,
        native: compilation.files.agent.native,
        manifest_digest: &compilation.manifest_digest,
        suspended: suspended(compilation).map(|why| why.to_string()),
        refused: refusal.map(|found| format!("{}: {}", found.code.name(), found.message)),
        tools: given_tools(compilation).collect(),
        feeds: feeds
            .iter()
            .map(|feed| format!("{}/{}", feed.source, feed.name))
            .collect(),
        providers: compilation
            .files
            .providers
            .providers
            .keys()
            .map(String::as_str)
            .collect(),
        models_matching: compilation
            .files
            .agent
            .models
            .as_ref()
            .map_or(&[], |models| &models.matching),
        withheld: compilation
            .withheld
            .iter()
            .map(|withheld| WithheldItem {
                name: withheld.what.clone(),
                code: withheld.code.name(),
                message: withheld.message.clone(),
            })
            .collect(),
        denied_models: compilation
            .denied_models
            .iter()
            .map(|(reference, message)| WithheldItem {
                name: reference.clone(),
                code: Code::ModelDeniedByPolicy.name(),
                message: message.clone(),
            })
            .collect(),
        cluster: in_cluster(objects, compilation),
    };
    match args.output {
        Output::Table => {
            let now = args.now.unwrap_or_else(Timestamp::now);
            Ok(explanation_text(&explanation, now))
        }
        Output::Json | Output::Yaml => print::value(&explanation, args.output),
    }
}

fn in_cluster(objects: &Objects, compilation: &Compilation) -> Option<ClusterState> {
    let ObjectSource::Cluster(pods) = &objects.from else {
        return None;
    };
    let mut agents = objects.loaded.inputs.agents();
    let agent = agents.find(|(key, _)| **key == compilation.agent)?.1;
    let status = agent.status.clone().unwrap_or_default();
    let compiled = match &status.manifest_digest {
        None => ManifestState::NotYet,
        Some(digest) if *digest == compilation.manifest_digest => ManifestState::Same,
        Some(_) => ManifestState::Different,
    };
    let conditions = status
        .conditions
        .into_iter()
        .map(|condition| ConditionLine {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
        });
    let pods = pods.iter().flatten();
    let own = pods.filter(|pod| pod.agent == compilation.agent);
    Some(ClusterState {
        compiled,
        conditions: conditions.collect(),
        pods: own.map(|pod| pod_line(pod, agent)).collect(),
    })
}

fn pod_line(pod: &PodFacts, agent: &Agent) -> PodLine {
    PodLine {
        name: pod.pod.name.clone(),
        phase: pod.phase.clone(),
        standing: pod.load_state(Some(agent)),
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
        let is_limited = |tool: &GivenTool| tool.limits.is_some() || is_denied(tool);
        let limited = explanation.tools.iter().any(is_limited);
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
    if !explanation.models_matching.is_empty() {
        let lists = explanation.models_matching.iter();
        let lists: Vec<String> = lists.map(|globs| globs.join(", ")).collect();
        let lists = lists.join("; and ");
        lines.push(format!(
            "models that match {lists} (policies of the cluster)"
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

/// One line per reason: a wrong port of a surface withholds each of its tools for the same one.
fn withheld_lines(what: &str, withheld: &[WithheldItem]) -> Vec<String> {
    let mut reasons: Vec<(&WithheldItem, Vec<&str>)> = Vec::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    for item in withheld {
        let place = *places
            .entry((item.code, &item.message))
            .or_insert(reasons.len());
        match reasons.get_mut(place) {
            Some((_, names)) => names.push(&item.name),
            None => reasons.push((item, vec![&item.name])),
        }
    }
    let line = |(item, names): &(&WithheldItem, Vec<&str>)| {
        format!(
            "{what} {}: {}: {}",
            names.join(", "),
            item.code,
            item.message
        )
    };
    reasons.iter().map(line).collect()
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

fn cluster_text(cluster: &ClusterState) -> String {
    let compiled = match cluster.compiled {
        ManifestState::Same => "the operator has compiled this manifest",
        ManifestState::Different if cluster.is_not_written() => {
            "the pods keep an earlier manifest: the operator could not write this one, as the first lines say"
        }
        ManifestState::Different => {
            "the operator has compiled another manifest: it has not caught up yet, or it sees what you may not read"
        }
        ManifestState::NotYet if cluster.failure().is_some() => {
            "the pods have no manifest: the first lines say why"
        }
        ManifestState::NotYet => "the operator has not compiled this agent yet: is it running?",
    };
    let mut text = format!("\n{compiled}\n");
    if !cluster.conditions.is_empty() {
        let rows: Vec<Vec<String>> = cluster
            .conditions
            .iter()
            .map(|line| {
                let message = match cluster.failure() {
                    Some(failure) if failure.message == line.message => "as above",
                    Some(_) | None => &line.message,
                };
                [&*line.kind, &*line.status, &*line.reason, message]
                    .map(str::to_owned)
                    .to_vec()
            })
            .collect();
        text.push_str(&print::table(
            &["CONDITION", "STATUS", "REASON", "MESSAGE"],
            &rows,
        ));
    }
    if cluster.pods.is_empty() {
        text.push_str("no pods\n");
        return text;
    }
    let rows: Vec<Vec<String>> = cluster
        .pods
        .iter()
        .map(|pod| vec![pod.name.clone(), pod.phase.clone(), pod.standing.clone()])
        .collect();
    text.push_str(&print::table(&["POD", "PHASE", "MANIFEST"], &rows));
    text
}

fn one(
    args: &ExplainArgs,
    objects: &Objects,
    compilation: &Compilation,
    name: &str,
) -> anyhow::Result<(String, ExitCode)> {
    let answer = explain_tool(&objects.loaded.inputs, compilation, name);
    let now = args.now.unwrap_or_else(Timestamp::now);
    let is_usable = |how: &GivenTool| is_open(how, now) && !is_denied(how);
    let is_usable = answer.how.as_ref().is_some_and(is_usable);
    let code = ExitCode::from(u8::from(!is_usable));
    let text = match args.output {
        Output::Table => one_text(&answer, now),
        Output::Json | Output::Yaml => print::value(&answer, args.output)?,
    };
    Ok((text, code))
}

/// Whether every call of the tool is denied, since its tier needs an approval.
fn is_denied(tool: &GivenTool) -> bool {
    tool.tier == Tier::Elevated.name()
}

/// Returns the limits of the tool, and that no rule of it is in its time.
fn limits_at(tool: &GivenTool, now: Timestamp) -> String {
    if is_denied(tool) {
        return "every call is denied: needs an approval".to_owned();
    }
    let limits = tool.limits.as_deref().unwrap_or("-");
    let mut closed = tool.rules.iter().filter_map(|rule| closed(rule, now));
    match (is_open(tool, now), closed.next()) {
        (false, Some(why)) => format!("{limits} ({why})"),
        (_, _) => limits.to_owned(),
    }
}

/// Returns whether a rule of the tool is in its time.
fn is_open(tool: &GivenTool, now: Timestamp) -> bool {
    tool.rules.is_empty() || tool.rules.iter().any(|rule| closed(rule, now).is_none())
}

fn closed(rule: &GivenRule, now: Timestamp) -> Option<&'static str> {
    outside(&rule.not_before, &rule.not_after, now)
}

/// Returns why a grant or rule with this window gives nothing now, if so.
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

fn rule_line(rule: &GivenRule, now: Timestamp) -> String {
    let state = closed(rule, now);
    let state = state.map_or_else(String::new, |why| format!(" ({why})"));
    let by = given_by(&rule.by, rule.selected_by.as_deref());
    format!("rule        {by}: {}{state}", rule.limits)
}

fn one_text(answer: &ToolExplanation, now: Timestamp) -> String {
    let ToolExplanation { agent, tool, .. } = answer;
    let lines: Vec<String> = match &answer.how {
        Some(how) => [match is_open(how, now) {
            _ if is_denied(how) => format!(
                "{tool} is offered to {agent}, and every call is denied: its tier needs an approval, and this release has none"
            ),
            true => format!("{tool} is given to {agent}"),
            false => format!("{tool} is given to {agent}, but not at {now}"),
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
        .collect(),
        None => std::iter::once(format!("{tool} is not given to {agent}"))
            .chain(answer.because.iter().map(|reason| match reason {
                WhyNot::Withheld(_) => format!("withheld: {reason}"),
                WhyNot::Suspended { .. }
                | WhyNot::NotAName(_)
                | WhyNot::NoAgent(_)
                | WhyNot::NotDeclared { .. }
                | WhyNot::NoSurface(_)
                | WhyNot::NoConsent { .. }
                | WhyNot::NotOffered { .. }
                | WhyNot::GrantSuspended { .. }
                | WhyNot::NotGranted { .. } => reason.to_string(),
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
            compiled,
            conditions: conditions.collect(),
            pods: Vec::new(),
        }
    }

    fn text_of(refused: Option<&str>, cluster: ClusterState) -> String {
        let agent = ObjectRef::new("pond", "otter");
        let explanation = Explanation {
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
    fn a_refusal_is_not_repeated_as_a_failure() {
        let ready = ["Ready", "False", "NoModelProvider", "no model"];
        let text = text_of(
            Some("NoModelProvider: no model"),
            cluster(ManifestState::NotYet, &[ready]),
        );
        assert!(!text.contains("not ready:"), "{text}");
    }
}
