//! `suspend` and `resume`: stop agents at once, and start them again.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use toolcrib_bounds::count;
use toolcrib_compile::ObjectRef;

use crate::args::{AgentsArgs, ClusterArgs, OperatorArgs, SuspendArgs};
use crate::cluster::{AgentState, PodCounts, Session, SuspensionChange, WithoutCluster};
use crate::failure::Failure;
use crate::operator;
use crate::print;

/// Time for the operator to say in status what the pods have loaded.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(250);

pub fn suspend(args: &SuspendArgs) -> Result<ExitCode, Failure> {
    run(
        &args.agents,
        &SuspensionChange::Suspend(args.reason.clone()),
    )
}

pub fn resume(args: &AgentsArgs) -> Result<ExitCode, Failure> {
    run(args, &SuspensionChange::Resume)
}

fn run(args: &AgentsArgs, change: &SuspensionChange) -> Result<ExitCode, Failure> {
    let cluster = ClusterArgs {
        namespace: args.namespace.clone(),
        all_namespaces: false,
        connection: args.connection.clone(),
    };
    let session = Session::open(&cluster, &OperatorArgs::default(), WithoutCluster::Nothing)?;
    let namespace = session.default_namespace().to_owned();
    let agents = match &args.agent {
        Some(name) => vec![session.agent_state(&ObjectRef::new(&*namespace, &**name))?],
        None => session.agent_states(&namespace)?,
    };
    if agents.is_empty() {
        say(&format!("there is no agent in namespace {namespace}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    // All Agents are written before the command waits for the operator.
    let written: Vec<(AgentState, Outcome)> = agents
        .into_iter()
        .map(|agent| {
            let outcome = write(&session, &agent, change);
            (agent, outcome)
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    let mut code = ExitCode::SUCCESS;
    for (agent, outcome) in written {
        match outcome {
            Outcome::Unchanged => say(&unchanged(&agent, change))?,
            Outcome::Written => {
                let pods = pods(&session, &agent.key, deadline);
                say(&changed(&agent, change, pods))?;
            }
            Outcome::Failed(failure) => {
                eprintln!("{}", print::plain(&failure.to_string()));
                code = ExitCode::from(1);
            }
        }
    }
    Ok(code)
}

enum Outcome {
    /// The two fields are as they should be.
    Unchanged,
    Written,
    Failed(Failure),
}

fn write(session: &Session, agent: &AgentState, change: &SuspensionChange) -> Outcome {
    if !needs_patch(agent, change) {
        return Outcome::Unchanged;
    }
    match session.suspend(&agent.key, change) {
        Ok(()) => Outcome::Written,
        Err(failure) => Outcome::Failed(failure),
    }
}

/// An earlier reason stays unless a new one is given.
fn needs_patch(agent: &AgentState, change: &SuspensionChange) -> bool {
    match change {
        SuspensionChange::Suspend(None) => !agent.is_suspended,
        SuspensionChange::Suspend(Some(reason)) => {
            !agent.is_suspended || agent.reason.as_ref() != Some(reason)
        }
        SuspensionChange::Resume => agent.is_suspended,
    }
}

/// Returns how many pods have loaded the change, as soon as the Agent's status has it.
fn pods(session: &Session, agent: &ObjectRef, deadline: Instant) -> Option<PodCounts> {
    loop {
        let state = session.agent_state(agent).ok()?;
        if state.pods.is_some() || Instant::now() >= deadline {
            return state.pods;
        }
        std::thread::sleep(POLL);
    }
}

fn unchanged(agent: &AgentState, change: &SuspensionChange) -> String {
    match (change, &agent.reason) {
        (SuspensionChange::Resume, _) => {
            format!("agent {} is not suspended; nothing is written", agent.key)
        }
        (SuspensionChange::Suspend(_), Some(reason)) => format!(
            "agent {} is suspended already ({reason}); nothing is written",
            agent.key
        ),
        (SuspensionChange::Suspend(_), None) => {
            format!(
                "agent {} is suspended already; nothing is written",
                agent.key
            )
        }
    }
}

fn changed(agent: &AgentState, change: &SuspensionChange, pods: Option<PodCounts>) -> String {
    let AgentState { key, .. } = agent;
    let what = match change {
        SuspensionChange::Suspend(_) if agent.is_suspended => "has another reason now",
        SuspensionChange::Suspend(_) => "is suspended",
        SuspensionChange::Resume => "is resumed",
    };
    let loaded = match (pods, change) {
        (None, _) => format!(
            "the operator has not confirmed it in {} s; until it does, the agent's pods go on as \
             before: `kubectl get agent {} -n {}` shows IN-FORCE; if it does not change, see whether \
             the operator runs: `kubectl get pods -A -l {}`",
            PATIENCE.as_secs(),
            key.name,
            key.namespace,
            operator::CONTROLLER
        ),
        (Some(PodCounts { running: 0, .. }), _) => "no pod of it runs".to_owned(),
        (Some(PodCounts { running, in_force }), _) if in_force >= running => {
            format!("{}, all have loaded it", count_of(running))
        }
        (Some(PodCounts { running, in_force }), SuspensionChange::Suspend(_)) => format!(
            "{}, {in_force} of them loaded it; the others are refused over the operator's link, and serve on only if they are not linked",
            count_of(running)
        ),
        (Some(PodCounts { running, in_force }), SuspensionChange::Resume) => format!(
            "{}, {in_force} of them loaded it; the others follow within seconds, or when the kubelet next reads their files if the chart's hints.enabled is false",
            count_of(running)
        ),
    };
    format!("agent {key} {what}; {loaded}")
}

fn count_of(running: u64) -> String {
    count(usize::try_from(running).unwrap_or(usize::MAX), "pod")
}

fn say(line: &str) -> anyhow::Result<()> {
    print::to_stdout(&format!("{}\n", print::plain(line)))
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otter(is_suspended: bool, reason: Option<&str>) -> AgentState {
        AgentState {
            key: ObjectRef::new("pond", "otter"),
            is_suspended,
            reason: reason.map(str::to_owned),
            pods: None,
        }
    }

    #[test]
    fn only_a_difference_is_written() {
        let because = |text: &str| SuspensionChange::Suspend(Some(text.to_owned()));
        for (agent, change, expected) in [
            (otter(false, None), SuspensionChange::Suspend(None), true),
            (
                otter(true, Some("loop")),
                SuspensionChange::Suspend(None),
                false,
            ),
            (otter(true, Some("loop")), because("loop"), false),
            (otter(true, Some("loop")), because("leak"), true),
            (otter(false, Some("loop")), because("loop"), true),
            (otter(true, None), SuspensionChange::Resume, true),
            (otter(false, None), SuspensionChange::Resume, false),
        ] {
            assert_eq!(needs_patch(&agent, &change), expected, "{agent:?}");
        }
    }

    #[test]
    fn a_line_says_how_many_pods_have_loaded_the_change() {
        let pods = |running, in_force| Some(PodCounts { running, in_force });
        let suspend = SuspensionChange::Suspend(None);
        let line = |change, pods| changed(&otter(false, None), change, pods);
        assert_eq!(
            line(&suspend, pods(3, 3)),
            "agent pond/otter is suspended; 3 pods, all have loaded it"
        );
        assert_eq!(
            line(&suspend, pods(0, 0)),
            "agent pond/otter is suspended; no pod of it runs"
        );
        assert!(
            line(&suspend, pods(2, 1))
                .contains("2 pods, 1 of them loaded it; the others are refused")
        );
        assert!(
            line(&SuspensionChange::Resume, pods(1, 0))
                .contains("1 pod, 0 of them loaded it; the others follow within seconds")
        );
        assert_eq!(
            line(&suspend, None),
            "agent pond/otter is suspended; the operator has not confirmed it in 3 s; until it does, the agent's pods go on as before: `kubectl get agent otter -n pond` shows IN-FORCE; if it does not change, see whether the operator runs: `kubectl get pods -A -l app.kubernetes.io/name=toolcrib,app.kubernetes.io/component=controller`"
        );
    }
}
