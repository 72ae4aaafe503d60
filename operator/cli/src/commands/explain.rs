//! `explain`: which object gives an agent a tool, or what withholds it; in a cluster, what
//! is in force in its pods.

use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use toolcrib_compile::{
    Compilation, GivenTool, ObjectRef, ToolExplained, WhyNot, compile, explain_tool, given_tools,
};
use toolcrib_crds::{Agent, ConditionType, StateReason};
use toolcrib_manifest::Mode;

use crate::print::Output;
use crate::{
    args::ExplainArgs,
    cluster::PodFacts,
    failure::Failure,
    print,
    sources::{self, From, ObjectScope, Objects},
};

/// What an agent has, and what it was denied.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    agent: &'a ObjectRef,
    mode: Mode,
    /// Whether the runner may call the tools itself, beside `mode: Mediated`.
    native: bool,
    manifest_digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    tools: Vec<GivenTool>,
    feeds: Vec<String>,
    providers: Vec<&'a str>,
    withheld: Vec<NotGiven>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<InCluster>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotGiven {
    name: String,
    code: &'static str,
    message: String,
}

/// What the operator and the pods say.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InCluster {
    compiled: Compiled,
    conditions: Vec<ConditionLine>,
    pods: Vec<PodLine>,
}

impl InCluster {
    /// The condition that keeps the tools from the pods, unless the tools themselves are withheld:
    /// the lines about those have the reason of each.
    fn failure(&self) -> Option<&ConditionLine> {
        let mut conditions = self.conditions.iter();
        conditions.find(|line| {
            line.kind == ConditionType::Ready.as_str()
                && line.status == "False"
                && line.reason != StateReason::AllWithheld.as_str()
        })
    }

    /// Whether the objects of the agent could not be written.
    fn is_not_written(&self) -> bool {
        let compiled = ConditionType::Compiled.as_str();
        let mut conditions = self.conditions.iter();
        conditions.any(|line| line.kind == compiled && line.status == "False")
    }
}

/// The operator's manifest, held against the one that was compiled here.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
enum Compiled {
    Same,
    /// The operator has not caught up, or it sees something that this user does not.
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
    standing: &'static str,
}

pub fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let objects = sources::objects(&args.source, ObjectScope::Namespace)?;
    // What is not read as it is written is missing below.
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
        None => (whole(args, &objects, &compilation)?, ExitCode::SUCCESS),
        Some(tool) => one(args, &objects, &compilation, tool)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(code)
}

fn whole(
    args: &ExplainArgs,
    objects: &Objects,
    compilation: &Compilation,
) -> anyhow::Result<String> {
    let refusal = compilation.refusal.as_ref();
    let feeds = &compilation.files.feeds.0;
    let whole = Whole {
        agent: &compilation.agent,
        mode: compilation.files.agent.mode,
        native: compilation.files.agent.native,
        manifest_digest: &compilation.manifest_digest,
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
        withheld: compilation
            .withheld
            .iter()
            .map(|withheld| NotGiven {
                name: withheld.what.clone(),
                code: withheld.code.name(),
                message: withheld.message.clone(),
            })
            .collect(),
        cluster: in_cluster(objects, compilation),
    };
    match args.output {
        Output::Table => Ok(whole_text(&whole)),
        Output::Json | Output::Yaml => print::value(&whole, args.output),
    }
}

fn in_cluster(objects: &Objects, compilation: &Compilation) -> Option<InCluster> {
    let From::Cluster(pods) = &objects.from else {
        return None;
    };
    let mut agents = objects.loaded.inputs.agents();
    let agent = agents.find(|(key, _)| **key == compilation.agent)?.1;
    let status = agent.status.clone().unwrap_or_default();
    let compiled = match &status.manifest_digest {
        None => Compiled::NotYet,
        Some(digest) if *digest == compilation.manifest_digest => Compiled::Same,
        Some(_) => Compiled::Different,
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
    Some(InCluster {
        compiled,
        conditions: conditions.collect(),
        pods: own.map(|pod| pod_line(pod, agent)).collect(),
    })
}

fn pod_line(pod: &PodFacts, agent: &Agent) -> PodLine {
    PodLine {
        name: pod.pod.name.clone(),
        phase: pod.phase.clone(),
        standing: pod.standing(Some(agent)),
    }
}

fn whole_text(whole: &Whole<'_>) -> String {
    let mut lines = vec![
        format!("agent {}", whole.agent),
        format!("mode {}", way(whole.mode, whole.native)),
        format!("manifest {}", whole.manifest_digest),
    ];
    lines.extend(
        whole
            .refused
            .iter()
            .map(|why| format!("not accepted: {}", print::plain(why))),
    );
    let failure = whole.cluster.as_ref().and_then(InCluster::failure);
    let failure = failure.filter(|_| whole.refused.is_none());
    lines.splice(1..1, failure.map(not_ready));
    let mut text = lines.join("\n") + "\n";
    if whole.tools.is_empty() {
        text.push_str("no tools\n");
    } else {
        let row = |tool: &GivenTool| {
            let texts = [&*tool.name, tool.tier, tool.credential, &tool.by];
            texts.map(str::to_owned).to_vec()
        };
        let rows: Vec<Vec<String>> = whole.tools.iter().map(row).collect();
        text.push_str(&print::table(
            &["TOOL", "TIER", "CREDENTIAL", "GIVEN BY"],
            &rows,
        ));
    }
    let mut lines: Vec<String> = whole
        .feeds
        .iter()
        .map(|feed| format!("feed {feed}"))
        .collect();
    lines.extend(whole.withheld.iter().map(|withheld| {
        format!(
            "withheld {}: {}: {}",
            withheld.name, withheld.code, withheld.message
        )
    }));
    for line in lines {
        text.push_str(&print::plain(&line));
        text.push('\n');
    }
    if let Some(cluster) = &whole.cluster {
        text.push_str(&cluster_text(cluster));
    }
    text
}

fn not_ready(condition: &ConditionLine) -> String {
    let ConditionLine {
        reason, message, ..
    } = condition;
    format!("not ready: {reason}: {}", print::plain(message))
}

/// Who calls the tools.
fn way(mode: Mode, native: bool) -> &'static str {
    match (mode, native) {
        (Mode::Mediated, false) => "Mediated",
        (Mode::Mediated, true) => "Mediated, and /mcp for the runner",
        (Mode::Native, _) => "Native: the runner calls tools at /mcp",
    }
}

fn cluster_text(cluster: &InCluster) -> String {
    let compiled = match cluster.compiled {
        Compiled::Same => "the operator has compiled this manifest",
        Compiled::Different if cluster.is_not_written() => {
            "the pods keep an earlier manifest: the operator could not write this one, as the first lines say"
        }
        Compiled::Different => {
            "the operator has compiled another manifest: it has not caught up yet, or it sees what you may not read"
        }
        Compiled::NotYet if cluster.failure().is_some() => {
            "the pods have no manifest: the first lines say why"
        }
        Compiled::NotYet => "the operator has not compiled this agent yet: is it running?",
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
        .map(|pod| vec![pod.name.clone(), pod.phase.clone(), pod.standing.to_owned()])
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
    let code = ExitCode::from(u8::from(!answer.given));
    let text = match args.output {
        Output::Table => one_text(&answer),
        Output::Json | Output::Yaml => print::value(&answer, args.output)?,
    };
    Ok((text, code))
}

fn one_text(answer: &ToolExplained) -> String {
    let ToolExplained { agent, tool, .. } = answer;
    let lines = match &answer.how {
        Some(how) => vec![
            format!("{tool} is given to {agent}"),
            format!("given by    {}", how.by),
            format!("tier        {}", how.tier),
            format!("credential  {}", how.credential),
            format!("executed    {}", how.executed),
            format!("schema      {}", how.schema.get()),
            format!("undeclared  {}", how.other_arguments),
            format!("entry       {}", how.entry_digest),
        ],
        None => std::iter::once(format!("{tool} is not given to {agent}"))
            .chain(answer.because.iter().map(|reason| match reason {
                WhyNot::Withheld(_) => format!("withheld: {reason}"),
                WhyNot::NotAName(_)
                | WhyNot::NoAgent(_)
                | WhyNot::NotDeclared { .. }
                | WhyNot::NoSurface(_)
                | WhyNot::NoConsent { .. }
                | WhyNot::NotOffered { .. }
                | WhyNot::NotGranted { .. } => reason.to_string(),
            }))
            .collect(),
    };
    let give = answer.because.iter().filter_map(|reason| match reason {
        WhyNot::NotGranted { tool, .. } => Some(format!(
            "to give it, add {tool} under allow in spec.tools of a ToolGrant that names the agent"
        )),
        WhyNot::Withheld(_)
        | WhyNot::NotAName(_)
        | WhyNot::NoAgent(_)
        | WhyNot::NotDeclared { .. }
        | WhyNot::NoSurface(_)
        | WhyNot::NoConsent { .. }
        | WhyNot::NotOffered { .. } => None,
    });
    let lines: Vec<_> = lines.into_iter().chain(give).collect();
    let lines: Vec<_> = lines.iter().map(|line| print::plain(line)).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(compiled: Compiled, conditions: &[[&str; 4]]) -> InCluster {
        let conditions = conditions.iter().map(|texts| {
            let [kind, status, reason, message] = texts.map(str::to_owned);
            ConditionLine {
                kind,
                status,
                reason,
                message,
            }
        });
        InCluster {
            compiled,
            conditions: conditions.collect(),
            pods: Vec::new(),
        }
    }

    fn said(refused: Option<&str>, cluster: InCluster) -> String {
        let agent = ObjectRef::new("pond", "otter");
        whole_text(&Whole {
            agent: &agent,
            mode: Mode::Mediated,
            native: false,
            manifest_digest: "d1",
            refused: refused.map(str::to_owned),
            tools: Vec::new(),
            feeds: Vec::new(),
            providers: Vec::new(),
            withheld: Vec::new(),
            cluster: Some(cluster),
        })
    }

    const WHY: &str = "no right to read in namespace pond";

    #[test]
    fn an_operator_that_said_why_it_failed_is_not_asked_whether_it_runs() {
        for (status, asked) in [("False", false), ("Unknown", true)] {
            let ready = ["Ready", status, "ApplyFailed", WHY];
            let text = said(None, cluster(Compiled::NotYet, &[ready]));
            assert_eq!(text.contains("is it running?"), asked, "{text}");
        }
        let text = said(None, cluster(Compiled::NotYet, &[]));
        assert!(text.contains("is it running?"), "{text}");
    }

    #[test]
    fn a_failure_comes_before_the_tools_and_is_said_once() {
        let conditions = [
            ["Compiled", "False", "ApplyFailed", WHY],
            ["Ready", "False", "ApplyFailed", WHY],
        ];
        let text = said(None, cluster(Compiled::Different, &conditions));
        let begin = format!("agent pond/otter\nnot ready: ApplyFailed: {WHY}\n");
        assert!(text.starts_with(&begin), "{text}");
        assert_eq!(text.matches(WHY).count(), 1, "{text}");
        assert!(text.contains("the pods keep an earlier manifest"), "{text}");
    }

    #[test]
    fn a_refusal_is_not_repeated_as_a_failure() {
        let ready = ["Ready", "False", "NoModelProvider", "no model"];
        let text = said(
            Some("NoModelProvider: no model"),
            cluster(Compiled::NotYet, &[ready]),
        );
        assert!(!text.contains("not ready:"), "{text}");
    }
}
