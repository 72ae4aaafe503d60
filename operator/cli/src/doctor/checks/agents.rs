//! The agents: compiled and ready, or why not.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use toolcrib_bounds::count;
use toolcrib_compile::names;
use toolcrib_crds::{Agent, ConditionStatus, ConditionType, HasConditions as _, StateReason};

use crate::cluster::Scope;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// Time in which a controller that runs has looked at a new Agent.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Reasons of `Ready` that other checks explain, with the pods.
const ELSEWHERE: [StateReason; 2] = [StateReason::NoMediator, StateReason::Stale];

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Agents);
    let agents = match &facts.agents {
        Ok(agents) => agents,
        Err(gap) => {
            findings.gap(gap);
            return findings.finish("");
        }
    };
    for (key, why) in &facts.undecodable {
        findings.error(
            format!("Agent {key} cannot be decoded: {why}"),
            format!(
                "correct it: `kubectl edit agent {} -n {}`",
                key.name, key.namespace
            ),
        );
    }
    let ready = agents.iter().filter(|agent| is_ready(agent)).count();
    for agent in agents {
        one(facts, agent, &mut findings);
    }
    let place = match &facts.scope {
        Scope::All => "all namespaces".to_owned(),
        Scope::Namespaces(named) => {
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            format!("namespace {} (-A looks at all)", named.join(", "))
        }
    };
    findings.finish(match agents.len() {
        0 => format!("there is no agent in {place}"),
        many if many == ready => format!("{} in {place}, all ready", count(many, "agent")),
        many => format!(
            "{ready} of {} in {place} ready; the checks of pods and link have the others",
            count(many, "agent")
        ),
    })
}

fn condition(agent: &Agent, kind: ConditionType) -> Option<&Condition> {
    agent
        .conditions()
        .iter()
        .find(|it| it.type_ == kind.as_str())
}

fn is_ready(agent: &Agent) -> bool {
    condition(agent, ConditionType::Ready)
        .is_some_and(|it| it.status == ConditionStatus::True.as_str())
}

fn one(facts: &Facts, agent: &Agent, findings: &mut Findings) {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let describe = format!("`kubectl describe agent {name} -n {namespace}` has the details");
    if agent.spec.suspend == Some(true) {
        let reason = agent.annotations().get(names::SUSPEND_REASON_ANNOTATION);
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        findings.warning(
            format!("Agent {namespace}/{name} is suspended{reason}"),
            format!("kubectl toolcrib resume agent/{name} -n {namespace}"),
        );
        return;
    }
    let seen = agent
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    let Some(ready) = condition(agent, ConditionType::Ready) else {
        let born = agent.metadata.creation_timestamp.as_ref();
        let is_new = born.is_some_and(|born| facts.now.duration_since(born.0) < PATIENCE);
        if !is_new {
            findings.error(
                format!("Agent {namespace}/{name} has no condition Ready: no controller has looked at it"),
                format!(
                    "look at the controller: `kubectl logs -n {} deployment/{}`",
                    facts.release.namespace,
                    facts.controller()
                ),
            );
        }
        return;
    };
    let is_elsewhere = ELSEWHERE
        .iter()
        .any(|reason| reason.as_str() == ready.reason);
    if ready.status != ConditionStatus::True.as_str() && !is_elsewhere {
        findings.error(
            format!(
                "Agent {namespace}/{name} is not ready: {}: {}",
                ready.reason, ready.message
            ),
            describe,
        );
    } else if ready.reason != StateReason::Ready.as_str() && !is_elsewhere {
        findings.warning(
            format!(
                "Agent {namespace}/{name}: {}: {}",
                ready.reason, ready.message
            ),
            describe,
        );
    } else if seen < agent.metadata.generation {
        findings.warning(
            format!("Agent {namespace}/{name}: status.observedGeneration is behind the spec"),
            format!("wait some seconds, then look at the controller: `kubectl logs -n {} deployment/{}`", facts.release.namespace, facts.controller()),
        );
    }
}
