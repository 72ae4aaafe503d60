//! The status of an Agent: mode, tools, withheld tools, and four conditions.
//!
//! Here: `Accepted`, `Compiled`, `Ready`, and the lists. Not here: pods with `InForce`, usage, and
//! gathering the facts.
//!
//! Invariant: the digests are those of the last objects that were written completely.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_compile::{
    Code, Compilation, CredentialKind, Diagnostic, FeedSummary, GrantSource, Kind, Network,
    ObjectRef, Severity, Subject, ToolSummary, WithheldItem, all_not_accepted,
};
use toolcrib_crds::{
    AgentStatus, BudgetStatus, ConditionStatus, ConditionType, Egress, FeedStatus, GrantName, Mode,
    NetworkStatus, RecordHeadStatus, StateReason, Tier, ToolStatus, WithheldStatus,
};
use toolcrib_manifest::{Digests, Suspension, Usage};

use super::budgets;
use super::condition::{Verdict, code, put, sentence, verdict};
use super::count;
use super::pods::{PodState, earlier_verdict, faults, in_force, outages, pods};
use super::usage::usage;
use super::written::{MAX_NAME, WriteOutcome};

/// Most entries of a list in the status. A count beside each list has the full number.
const LISTED: usize = 64;

/// The facts from which an Agent's status is computed.
pub struct AgentFacts<'a> {
    pub agent: &'a ObjectRef,
    pub generation: Option<i64>,
    pub mode: Mode,
    /// The policies that match the agent.
    pub policies: &'a [String],
    pub refusal: Option<&'a Diagnostic>,
    pub suspension: Option<&'a Suspension>,
    pub tools: &'a [ToolSummary],
    pub feeds: &'a [FeedSummary],
    pub withheld: &'a [WithheldItem],
    pub diagnostics: &'a [Diagnostic],
    pub network: &'a Network,
    /// Digests of the compiled files; `None` if nothing could be compiled.
    pub digests: Option<&'a Digests>,
    /// References whose last known value is used.
    pub kept: Vec<String>,
    pub written: WriteOutcome,
    pub pods: Vec<PodState>,
    /// `None` if usage is not to be written this time.
    pub usage: Option<Usage>,
    /// The budgets, as old as what is written of them.
    pub budgets: Vec<BudgetStatus>,
    /// The heads of records, as old as what is written of them.
    pub record: Vec<RecordHeadStatus>,
    /// Creation time of the Agent, at which counting began.
    pub created: Option<Timestamp>,
}

impl AgentFacts<'_> {
    /// Whether everything that is granted to the agent is withheld.
    fn all_withheld(&self) -> bool {
        self.tools.is_empty() && self.feeds.is_empty() && !self.withheld.is_empty()
    }

    /// Returns the finding that the agent has neither tools nor a model. Its mediators refuse every
    /// request for one.
    fn no_model(&self) -> Option<&Diagnostic> {
        let subject = Subject::new(Kind::Agent, self.agent);
        let mut found = self.diagnostics.iter();
        found.find(|found| found.code == Code::NoModel && found.object == subject)
    }
}

/// Computes the status of an Agent; `before` is its previous status.
pub fn agent(before: Option<&AgentStatus>, facts: &AgentFacts<'_>, now: Timestamp) -> AgentStatus {
    let before = before.cloned().unwrap_or_default();
    // Until the compiled objects are first written, the agent has none of the tools.
    let is_in_place = facts.written == WriteOutcome::Done || was_written(&before);
    let tools = if is_in_place { facts.tools } else { &[] };
    let feeds = if is_in_place { facts.feeds } else { &[] };
    let mut all_withheld: Vec<WithheldStatus> = facts.withheld.iter().map(withheld).collect();
    if !is_in_place {
        all_withheld.extend(facts.written.withheld(facts.tools, facts.feeds));
        all_withheld.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let withheld_count = count(all_withheld.len());
    all_withheld.truncate(LISTED);
    let mut status = AgentStatus {
        observed_generation: facts.generation,
        mode: Some(facts.mode),
        tool_count: Some(count(tools.len())),
        read_only_count: Some(count(tools.iter().filter(|tool| tool.read_only).count())),
        tools: tools.iter().take(LISTED).map(tool).collect(),
        feed_count: Some(count(feeds.len())),
        feeds: feeds.iter().take(LISTED).map(feed).collect(),
        withheld_count: Some(withheld_count),
        withheld: all_withheld,
        manifest_digest: before.manifest_digest.clone(),
        credentials_revision: before.credentials_revision.clone(),
        policies: facts.policies.iter().take(LISTED).cloned().collect(),
        network: network(facts.network),
        pods: Some(pods(&facts.written, &facts.pods)),
        usage: usage(
            before.usage.as_ref(),
            facts.usage.as_ref(),
            facts.created.unwrap_or(now),
        ),
        budgets: facts.budgets.clone(),
        record: facts.record.clone(),
        conditions: before.conditions,
    };
    // After a failed write, the digests stay those of the last complete write.
    if let (WriteOutcome::Done, Some(digests)) = (&facts.written, facts.digests) {
        status.manifest_digest = Some(digests.manifest.clone());
        status.credentials_revision = Some(digests.credentials.clone());
    }
    let ready = ready(facts, &status.conditions);
    for (type_, verdict) in [
        (ConditionType::Accepted, accepted(facts)),
        (ConditionType::Compiled, compiled(facts)),
        (
            ConditionType::InForce,
            in_force(&facts.written, &facts.pods),
        ),
        (ConditionType::Ready, ready),
    ] {
        put(
            &mut status.conditions,
            type_,
            verdict,
            facts.generation,
            now,
        );
    }
    status
}

/// Computes the status of an Agent that is not compiled: what was compiled before stays in force.
pub fn blocked(
    before: Option<&AgentStatus>,
    compiled: &Compilation,
    why: &Diagnostic,
    generation: Option<i64>,
    now: Timestamp,
) -> AgentStatus {
    let mut status = before.cloned().unwrap_or_default();
    status.observed_generation = generation;
    status.policies = compiled.policies.iter().take(LISTED).cloned().collect();
    for type_ in [ConditionType::Compiled, ConditionType::Ready] {
        let verdict = verdict(ConditionStatus::False, code(why.code), sentence(why));
        put(&mut status.conditions, type_, verdict, generation, now);
    }
    status
}

/// Whether the status reports that the agent's objects, with its token, were once written completely.
pub fn was_written(status: &AgentStatus) -> bool {
    status.manifest_digest.is_some()
}

/// `Accepted`: reports every mistake in the Agent's own spec. A mistake that costs the agent all of
/// its tools comes first.
fn accepted(facts: &AgentFacts<'_>) -> Verdict {
    let subject = Subject::new(Kind::Agent, facts.agent);
    let mut against: Vec<&Diagnostic> = facts.refusal.into_iter().collect();
    for found in all_not_accepted(facts.diagnostics, &subject) {
        // Findings are distinct.
        if facts.refusal != Some(found) {
            against.push(found);
        }
    }
    let Some(first) = against.first() else {
        // The agent may be as its author wants it: only the author knows.
        let message = facts.no_model().map(sentence).unwrap_or_default();
        return verdict(ConditionStatus::True, StateReason::Accepted, message);
    };
    let sentences: Vec<String> = against.iter().map(|found| sentence(found)).collect();
    verdict(
        ConditionStatus::False,
        code(first.code),
        sentences.join("; "),
    )
}

fn compiled(facts: &AgentFacts<'_>) -> Verdict {
    match &facts.written {
        WriteOutcome::Done => {
            let mut notes: Vec<String> = findings(facts).into_iter().collect();
            if !facts.kept.is_empty() {
                notes.push(format!(
                    "references could not be read, their last known values are used: {}",
                    facts.kept.join(", ")
                ));
            }
            verdict(
                ConditionStatus::True,
                StateReason::Compiled,
                notes.join("; "),
            )
        }
        WriteOutcome::Conflict(what) => {
            verdict(ConditionStatus::False, StateReason::Conflict, what.clone())
        }
        WriteOutcome::Failed(why) => verdict(
            ConditionStatus::False,
            StateReason::ApplyFailed,
            why.clone(),
        ),
    }
}

/// The number of errors and the first of them. `status.withheld` and the Events have the rest.
fn findings(facts: &AgentFacts<'_>) -> Option<String> {
    let mut errors = facts
        .diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error);
    let first = sentence(errors.next()?);
    let more = errors.count();
    let withheld = facts.withheld.len();
    Some(match (withheld, more) {
        (0, 0) => first,
        (0, more) => format!("{} errors; first: {first}", more + 1),
        (withheld, 0) => format!("{withheld} withheld; {first}"),
        (withheld, more) => format!("{withheld} withheld, {} errors; first: {first}", more + 1),
    })
}

/// `Ready`: the agent is compiled, it has something to serve, and no pod has a fault that does not
/// resolve itself. A suspended agent is `Ready` too, with the reason `Suspended`. `before`: the
/// conditions of the previous status.
fn ready(facts: &AgentFacts<'_>, before: &[Condition]) -> Verdict {
    if let Some(refusal) = facts.refusal {
        return verdict(
            ConditionStatus::False,
            code(refusal.code),
            sentence(refusal),
        );
    }
    if facts.written != WriteOutcome::Done {
        let Verdict(_, reason, message) = compiled(facts);
        return verdict(ConditionStatus::False, reason, message);
    }
    if facts.all_withheld() {
        let first = &facts.withheld[0];
        let text = format!(
            "everything that is granted is withheld ({} in status.withheld); first: {}: {}",
            facts.withheld.len(),
            first.what,
            first.message,
        );
        return verdict(ConditionStatus::False, StateReason::AllWithheld, text);
    }
    if let Some(no_model) = facts.no_model() {
        return verdict(
            ConditionStatus::False,
            code(no_model.code),
            sentence(no_model),
        );
    }
    if let Some(fault) = faults(&facts.pods).into_iter().next() {
        return fault;
    }
    let earlier = earlier_verdict(before, &facts.pods);
    if let Some(fault) = earlier.clone().filter(Verdict::is_false) {
        return fault;
    }
    // True: the agent is as its spec says, and tools that wait for Ready go on.
    if let Some(suspension) = facts.suspension {
        let why = suspension.reason.as_deref().unwrap_or("no reason is given");
        let text = format!("the agent serves nothing while it is suspended: {why}");
        return verdict(ConditionStatus::True, StateReason::Suspended, text);
    }
    if let Some(used_up) = budgets::used_up(&facts.budgets) {
        return used_up;
    }
    if let Some(outages) = outages(&facts.pods).into_iter().next().or(earlier) {
        return outages;
    }
    if facts.pods.is_empty() {
        return verdict(
            ConditionStatus::True,
            StateReason::NoPods,
            "the agent has no running pod",
        );
    }
    verdict(ConditionStatus::True, StateReason::Ready, "")
}

fn tool(tool: &ToolSummary) -> ToolStatus {
    ToolStatus {
        name: tool.name.clone(),
        tier: match tool.tier {
            toolcrib_manifest::Tier::ReadOnly => Tier::ReadOnly,
            toolcrib_manifest::Tier::Workspace => Tier::Workspace,
            toolcrib_manifest::Tier::System => Tier::System,
            toolcrib_manifest::Tier::Elevated => Tier::Elevated,
        },
        grant: grant(&tool.grant),
        credential: credential(tool.credential),
        limits: tool.limits.clone(),
        would_deny: tool.would_deny.first().cloned(),
    }
}

fn feed(feed: &FeedSummary) -> FeedStatus {
    FeedStatus {
        name: feed.name.clone(),
        grant: grant(&feed.grant),
        credential: credential(feed.credential),
    }
}

fn grant(source: &GrantSource) -> GrantName {
    GrantName {
        kind: source.kind.name().to_owned(),
        name: source.key.name.clone(),
        namespace: source.key.namespace.clone(),
    }
}

fn credential(kind: CredentialKind) -> toolcrib_crds::CredentialKind {
    match kind {
        CredentialKind::PerAgent => toolcrib_crds::CredentialKind::PerAgent,
        CredentialKind::Surface => toolcrib_crds::CredentialKind::Surface,
        CredentialKind::None => toolcrib_crds::CredentialKind::None,
    }
}

/// The network part of the status; `None` if not decided.
fn network(network: &Network) -> Option<NetworkStatus> {
    let (egress, declared) = match network {
        Network::Undecided => return None,
        Network::Unrestricted => (Egress::Unrestricted, None),
        Network::Declared(declared) => (Egress::Declared, Some(declared)),
    };
    let wide = declared.map(|declared| &declared.not_narrowed);
    let policies = declared.into_iter().flat_map(|declared| &declared.policies);
    Some(NetworkStatus {
        egress,
        not_narrowed_count: wide.map(|wide| count(wide.len())),
        not_narrowed: wide
            .into_iter()
            .flatten()
            .take(LISTED)
            .map(|destination| cut(destination, 2304))
            .collect(),
        policies: policies.take(LISTED).cloned().collect(),
    })
}

fn withheld(withheld: &WithheldItem) -> WithheldStatus {
    WithheldStatus {
        name: cut(&withheld.what, MAX_NAME),
        reason: withheld.code.name().to_owned(),
        message: (!withheld.message.is_empty()).then(|| cut(&withheld.message, 1024)),
    }
}

/// Truncates a text to the bound of its field. The definition counts characters, so a bound in bytes
/// is within it.
fn cut(text: &str, bytes: usize) -> String {
    toolcrib_bounds::cut(text, bytes).into_owned()
}

#[cfg(test)]
mod tests;
