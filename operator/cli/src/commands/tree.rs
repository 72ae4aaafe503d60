//! `tree`: surfaces → grants → agents → pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use toolcrib_compile::{
    AgentNode, GrantNode, ObjectRef, SurfaceNode, agents_without_grant, topology,
};

use super::explain::outside;
use crate::print::Output;
use crate::{
    args::TreeArgs,
    cluster::PodFacts,
    failure::Failure,
    print,
    sources::{self, ObjectScope, Objects},
};

pub fn tree(args: &TreeArgs) -> Result<ExitCode, Failure> {
    let objects = sources::objects(&args.source, ObjectScope::Everybody)?;
    // Undecodable objects are missing below.
    print::findings(&objects.loaded, []);
    let mut surfaces = topology(&objects.loaded.inputs);
    let mut others = agents_without_grant(&objects.loaded.inputs, &surfaces);
    if let Some(namespace) = &objects.namespace {
        let mut subjects = objects.loaded.inputs.subjects();
        if !subjects.any(|subject| subject.key.namespace == *namespace) {
            return Err(Failure::usage(format_args!(
                "no object of Toolcrib {} in namespace {namespace}: is it spelt right?",
                objects.from.place()
            )));
        }
        surfaces.retain(|surface| concerns(surface, namespace));
        others.retain(|agent| agent.agent.namespace == *namespace);
    }
    let text = match args.output {
        Output::Table if surfaces.is_empty() && others.is_empty() => match &objects.namespace {
            Some(namespace) => format!("no surfaces in namespace {namespace}\n"),
            None => "no surfaces\n".to_owned(),
        },
        Output::Table => {
            let now = args.now.unwrap_or_else(Timestamp::now);
            text(&surfaces, &others, &Pods::of(&objects), now)
        }
        Output::Json | Output::Yaml => {
            let pods = pods_of(&surfaces, objects.namespace.as_deref(), objects.from.pods());
            let value = json!({"surfaces": surfaces, "agentsWithoutGrant": others, "pods": pods});
            print::value(&value, args.output)?
        }
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the pods of the agents that are shown, and those of the requested namespace.
fn pods_of<'a>(
    surfaces: &[SurfaceNode],
    namespace: Option<&str>,
    pods: &'a [PodFacts],
) -> Vec<&'a PodFacts> {
    let agents: BTreeSet<&ObjectRef> = surfaces
        .iter()
        .flat_map(|surface| &surface.grants)
        .flat_map(|grant| &grant.agents)
        .map(|agent| &agent.agent)
        .collect();
    let is_asked = |pod: &&PodFacts| match namespace {
        None => true,
        Some(namespace) => pod.pod.namespace == namespace || agents.contains(&pod.agent),
    };
    pods.iter().filter(is_asked).collect()
}

fn concerns(surface: &SurfaceNode, namespace: &str) -> bool {
    surface.surface.namespace == namespace
        || surface
            .grants
            .iter()
            .any(|grant| grant.grant.namespace == namespace)
}

/// One line per pod, by agent.
struct Pods(BTreeMap<ObjectRef, Vec<String>>);

impl Pods {
    fn of(objects: &Objects) -> Self {
        let agents: BTreeMap<_, _> = objects.loaded.inputs.agents().collect();
        let mut pods: BTreeMap<ObjectRef, Vec<String>> = BTreeMap::new();
        for pod in objects.from.pods() {
            let PodFacts {
                pod: key,
                agent,
                phase,
                ..
            } = pod;
            let standing = pod.load_state(agents.get(agent).copied());
            let line = format!("Pod {}: {phase}, {standing}", key.name);
            pods.entry(agent.clone()).or_default().push(line);
        }
        Self(pods)
    }
}

/// A line of the tree, and the branches below it.
struct Branch {
    line: String,
    below: Vec<Branch>,
}

fn text(surfaces: &[SurfaceNode], others: &[AgentNode], pods: &Pods, now: Timestamp) -> String {
    let mut lines = Vec::new();
    let surfaces = surfaces
        .iter()
        .map(|surface| surface_branch(surface, pods, now));
    let others = others.iter().map(|agent| {
        let has = match agent.suspended {
            true => "suspended, has nothing",
            false => "no grant is for it",
        };
        agent_branch(agent, has.to_owned(), pods)
    });
    for branch in surfaces.chain(others) {
        lines.push(print::plain(&branch.line).into_owned());
        draw(&branch.below, "", &mut lines);
    }
    lines.join("\n") + "\n"
}

fn surface_branch(node: &SurfaceNode, pods: &Pods, now: Timestamp) -> Branch {
    let tools = match (node.exists, node.tools) {
        (false, _) => "not found".to_owned(),
        (true, 1) => "1 tool".to_owned(),
        (true, tools) => format!("{tools} tools"),
    };
    let mut below: Vec<Branch> = node
        .grants
        .iter()
        .map(|grant| grant_branch(grant, pods, now))
        .collect();
    if below.is_empty() {
        below.push(Branch {
            line: "nothing is granted".to_owned(),
            below: Vec::new(),
        });
    }
    Branch {
        line: format!("Surface {}: {tools}", node.surface),
        below,
    }
}

fn grant_branch(node: &GrantNode, pods: &Pods, now: Timestamp) -> Branch {
    let allow: Vec<&str> = node.allow.iter().map(String::as_str).collect();
    let limits = node.limits.iter().map(String::as_str);
    let selector = node.selector.as_ref().map(|it| format!("selects {it}"));
    let limits: Vec<&str> = limits
        .chain(selector.as_deref())
        .chain(node.suspended.then_some("suspended"))
        .chain(outside(&node.not_before, &node.not_after, now))
        .collect();
    let limits = match limits.is_empty() {
        true => String::new(),
        false => format!(" ({})", limits.join(" | ")),
    };
    Branch {
        line: format!("{} {}: {}{limits}", node.kind, node.grant, allow.join(", ")),
        below: node
            .agents
            .iter()
            .map(|agent| agent_branch(agent, has(agent), pods))
            .collect(),
    }
}

/// Describes the items of a grant that the agent has.
fn has(node: &AgentNode) -> String {
    let list = |names: &BTreeSet<String>| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.join(", ")
    };
    let has = match (node.exists, node.tools.is_empty()) {
        (false, _) => return "not found".to_owned(),
        (true, _) if node.suspended => "suspended, has nothing".to_owned(),
        (true, true) => "has nothing of it".to_owned(),
        (true, false) => format!("has {}", list(&node.tools)),
    };
    match node.withheld.is_empty() {
        true => has,
        false => format!("{has}; withheld: {}", list(&node.withheld)),
    }
}

fn agent_branch(node: &AgentNode, has: String, pods: &Pods) -> Branch {
    let model = match node.no_model {
        true => "; no ModelProvider serves it",
        false => "",
    };
    let own = pods.0.get(&node.agent).into_iter().flatten();
    Branch {
        line: format!("Agent {}: {has}{model}", node.agent),
        below: own
            .map(|line| Branch {
                line: line.clone(),
                below: Vec::new(),
            })
            .collect(),
    }
}

fn draw(branches: &[Branch], indent: &str, lines: &mut Vec<String>) {
    for (index, branch) in branches.iter().enumerate() {
        let last = index + 1 == branches.len();
        let (tick, deeper) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        lines.push(format!("{indent}{tick}{}", print::plain(&branch.line)));
        draw(&branch.below, &format!("{indent}{deeper}"), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> PodFacts {
        PodFacts {
            pod: ObjectRef::new(namespace, format!("{name}-0")),
            agent: ObjectRef::new(namespace, name),
            phase: "Running".to_owned(),
            mediated: true,
        }
    }

    /// A surface of `pond` that an agent of `lake` uses too.
    fn surface() -> SurfaceNode {
        SurfaceNode {
            surface: ObjectRef::new("pond", "kelp"),
            exists: true,
            tools: 1,
            grants: vec![GrantNode {
                kind: "ToolGrant",
                grant: ObjectRef::new("lake", "reads"),
                allow: BTreeSet::new(),
                limits: BTreeSet::new(),
                selector: None,
                suspended: false,
                not_before: None,
                not_after: None,
                agents: vec![AgentNode {
                    agent: ObjectRef::new("lake", "heron"),
                    exists: true,
                    suspended: false,
                    tools: BTreeSet::new(),
                    withheld: BTreeSet::new(),
                    no_model: false,
                }],
            }],
        }
    }

    #[track_caller]
    fn check(namespace: Option<&str>, expected: &[&str]) {
        let pods = [
            pod("pond", "otter"),
            pod("lake", "heron"),
            pod("reef", "crab"),
        ];
        let shown = pods_of(&[surface()], namespace, &pods);
        let names: Vec<&str> = shown.iter().map(|pod| &*pod.pod.name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn pods_of_other_namespaces_are_listed_for_shown_agents_alone() {
        check(Some("pond"), &["otter-0", "heron-0"]);
        check(None, &["otter-0", "heron-0", "crab-0"]);
    }
}
