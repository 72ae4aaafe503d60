//! The state of an agent in the cluster, from its status and its pods, and the tools that the
//! operator withholds although compile gives them: only the operator reads Secrets and writes
//! objects.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use toolcrib_compile::Compilation;
use toolcrib_crds::{
    Agent, AgentStatus, BudgetStatus, ConditionType, NOTHING_WRITTEN, StateReason,
};

use crate::cluster::PodFacts;
use crate::print;
use crate::sources::{ObjectSource, Objects};

/// A requested item that the agent is not given.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WithheldItem {
    pub(super) name: String,
    pub(super) code: String,
    pub(super) message: String,
}

/// The state in the cluster, from the Agent's status and its pods.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterState {
    pub(super) compiled: ManifestState,
    pub(super) conditions: Vec<ConditionLine>,
    pub(super) pods: Vec<PodLine>,
    /// What the status says of budgets.
    #[serde(skip)]
    pub(super) budgets: Vec<BudgetStatus>,
    /// The items that the status lists as withheld, by name; none while its manifest is the one
    /// compiled here.
    #[serde(skip)]
    pub(super) withheld: BTreeMap<String, WithheldItem>,
}

impl ClusterState {
    /// Returns the condition that keeps the tools from the pods. It is left out if the tools
    /// themselves are withheld, since their lines hold the reasons.
    pub(super) fn failure(&self) -> Option<&ConditionLine> {
        let mut conditions = self.conditions.iter();
        conditions.find(|line| {
            line.kind == ConditionType::Ready.as_str()
                && line.status == "False"
                && line.reason != StateReason::AllWithheld.as_str()
        })
    }

    /// The reason for which the operator withholds an item that compile gives. `None`: it does not
    /// withhold it.
    pub(super) fn withheld(&self, name: &str) -> Option<WithheldItem> {
        if let Some(listed) = self.withheld.get(name) {
            return Some(listed.clone());
        }
        // The status lists a bounded number of items.
        let failure = self.not_compiled()?;
        (self.compiled == ManifestState::NotYet).then(|| WithheldItem {
            name: name.to_owned(),
            code: failure.reason.clone(),
            message: NOTHING_WRITTEN.to_owned(),
        })
    }

    /// Whether the operator could not write the agent's objects.
    fn is_not_written(&self) -> bool {
        self.not_compiled().is_some()
    }

    fn not_compiled(&self) -> Option<&ConditionLine> {
        let compiled = ConditionType::Compiled.as_str();
        let mut conditions = self.conditions.iter();
        conditions.find(|line| line.kind == compiled && line.status == "False")
    }
}

/// The comparison of the operator's manifest with the one compiled here.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum ManifestState {
    Same,
    /// The operator is behind, or it reads objects that this user may not read.
    Different,
    NotYet,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConditionLine {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodLine {
    name: String,
    phase: String,
    standing: String,
}

pub(super) fn in_cluster(objects: &Objects, compilation: &Compilation) -> Option<ClusterState> {
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
    let withheld = match compiled {
        ManifestState::Same => BTreeMap::new(),
        ManifestState::Different | ManifestState::NotYet => listed(&status),
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
        withheld,
        budgets: status.budgets,
    })
}

fn listed(status: &AgentStatus) -> BTreeMap<String, WithheldItem> {
    let items = status.withheld.iter().map(|item| {
        let item = WithheldItem {
            name: item.name.clone(),
            code: item.reason.clone(),
            message: item.message.clone().unwrap_or_default(),
        };
        (item.name.clone(), item)
    });
    items.collect()
}

fn pod_line(pod: &PodFacts, agent: &Agent) -> PodLine {
    PodLine {
        name: pod.pod.name.clone(),
        phase: pod.phase.clone(),
        standing: pod.load_state(Some(agent)),
    }
}

/// One line per reason: a surface's wrong port is the same reason for each of its tools.
pub(super) fn withheld_lines(what: &str, withheld: &[WithheldItem]) -> Vec<String> {
    let mut reasons: Vec<(&WithheldItem, Vec<&str>)> = Vec::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    for item in withheld {
        let place = *places
            .entry((&*item.code, &*item.message))
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

pub(super) fn cluster_text(cluster: &ClusterState) -> String {
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
