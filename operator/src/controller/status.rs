//! What status says. Pure: from what was found and what it said before, to what it says now.
//!
//! A status that says the same is equal, so it is not written. Credentials never get here;
//! texts of mediators were cut where they came in.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use toolcrib_compile::{
    Code, CredentialKind, Diagnostic, GrantReport, ProviderReport, Severity, Subject,
    SurfaceReport, ToolSummary, Withheld, not_accepted, not_resolved,
};
use toolcrib_crds::{
    AgentStatus, ConditionStatus, ConditionType, GrantName, Mode, ModelProviderStatus, PodsStatus,
    ReasonName, StateReason, SurfaceStatus, Tier, ToolDefaultsStatus, ToolGrantStatus, ToolStatus,
    UsageStatus, WithheldStatus, condition, set,
};
use toolcrib_manifest::{Digests, Usage};

/// Entries of a capped list; a count stands beside each.
const LISTED: usize = 64;
const STALE_LISTED: usize = 10;

/// How writing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    Conflict(String),
    Failed(String),
}

/// A pod of the agent that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pub name: String,
    pub news: PodNews,
    /// It has been wanting for longer than the stale time.
    pub overdue: bool,
    /// Compiled tools that its mediator does not offer: `tool: reason`.
    pub withheld: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNews {
    None,
    Loaded,
    /// Something else than what is compiled now.
    Behind,
    Rejected(String),
}

/// All that an Agent's status is made of.
pub struct AgentFacts<'a> {
    pub generation: Option<i64>,
    pub mode: Mode,
    pub refusal: Option<&'a Diagnostic>,
    pub tools: &'a [ToolSummary],
    pub withheld: &'a [Withheld],
    pub diagnostics: &'a [Diagnostic],
    /// What was compiled; `None` when nothing could be.
    pub digests: Option<&'a Digests>,
    /// References whose last known value stands in.
    pub kept: Vec<String>,
    pub written: Written,
    pub pods: Vec<PodState>,
    /// `None`: not to be written this time.
    pub usage: Option<Usage>,
}

pub fn agent(before: Option<&AgentStatus>, facts: &AgentFacts<'_>, now: Timestamp) -> AgentStatus {
    let before = before.cloned().unwrap_or_default();
    let mut status = AgentStatus {
        observed_generation: facts.generation,
        mode: Some(facts.mode),
        tool_count: Some(count(facts.tools.len())),
        read_only_count: Some(count(
            facts.tools.iter().filter(|tool| tool.read_only).count(),
        )),
        tools: facts.tools.iter().take(LISTED).map(tool).collect(),
        withheld_count: Some(count(facts.withheld.len())),
        withheld: facts.withheld.iter().take(LISTED).map(withheld).collect(),
        manifest_digest: before.manifest_digest.clone(),
        credentials_revision: before.credentials_revision.clone(),
        pods: Some(pods(&facts.pods)),
        usage: usage(before.usage.as_ref(), facts.usage.as_ref(), now),
        conditions: before.conditions,
    };
    // Status names what is in place, not what failed to be put there.
    if let (Written::Done, Some(digests)) = (&facts.written, facts.digests) {
        status.manifest_digest = Some(digests.manifest.clone());
        status.credentials_revision = Some(digests.credentials.clone());
    }
    for (type_, verdict) in [
        (ConditionType::Accepted, accepted(facts.refusal)),
        (ConditionType::Compiled, compiled(facts)),
        (ConditionType::InForce, in_force(&facts.pods)),
        (ConditionType::Ready, ready(facts)),
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

/// Status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict(ConditionStatus, ReasonName, String);

fn verdict(
    status: ConditionStatus,
    reason: impl Into<ReasonName>,
    message: impl Into<String>,
) -> Verdict {
    Verdict(status, reason.into(), message.into())
}

fn code(code: Code) -> ReasonName {
    ReasonName(code.name())
}

fn put(
    conditions: &mut Vec<Condition>,
    type_: ConditionType,
    Verdict(status, reason, message): Verdict,
    generation: Option<i64>,
    now: Timestamp,
) {
    let now = Time(whole_second(now));
    set(
        conditions,
        condition(type_, status, reason, message, generation, now),
    );
}

/// The API server keeps whole seconds; more would make an unchanged status differ.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn accepted(refusal: Option<&Diagnostic>) -> Verdict {
    match refusal {
        Some(refusal) => verdict(
            ConditionStatus::False,
            code(refusal.code),
            sentence(refusal),
        ),
        None => verdict(ConditionStatus::True, StateReason::Accepted, ""),
    }
}

/// `Kind namespace/name: field: what is wrong`.
pub fn sentence(diagnostic: &Diagnostic) -> String {
    let Diagnostic {
        object,
        field,
        message,
        ..
    } = diagnostic;
    if field.is_empty() {
        format!("{object}: {message}")
    } else {
        format!("{object}: {field}: {message}")
    }
}

fn compiled(facts: &AgentFacts<'_>) -> Verdict {
    match &facts.written {
        Written::Done => {
            let mut notes: Vec<String> = facts
                .diagnostics
                .iter()
                .filter(|diagnostic| diagnostic.severity == Severity::Error)
                .map(sentence)
                .collect();
            if !facts.kept.is_empty() {
                notes.push(format!(
                    "could not be read now, the last known value stands: {}",
                    facts.kept.join(", ")
                ));
            }
            verdict(
                ConditionStatus::True,
                StateReason::Compiled,
                notes.join("; "),
            )
        }
        Written::Conflict(what) => {
            verdict(ConditionStatus::False, StateReason::Conflict, what.clone())
        }
        Written::Failed(why) => verdict(
            ConditionStatus::False,
            StateReason::ApplyFailed,
            why.clone(),
        ),
    }
}

fn in_force(pods: &[PodState]) -> Verdict {
    if pods.is_empty() {
        return verdict(
            ConditionStatus::Unknown,
            StateReason::NoPods,
            "no pod of the agent runs",
        );
    }
    let named = |pick: &dyn Fn(&PodState) -> Option<String>| {
        let names: Vec<String> = pods.iter().filter_map(pick).take(STALE_LISTED).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let rejected = |pod: &PodState| match &pod.news {
        PodNews::Rejected(why) => Some(format!("{}: {why}", pod.name)),
        PodNews::None | PodNews::Loaded | PodNews::Behind => None,
    };
    if let Some(pods) = named(&rejected) {
        return verdict(ConditionStatus::False, StateReason::ManifestRejected, pods);
    }
    let behind = |pod: &PodState| (pod.news == PodNews::Behind).then(|| pod.name.clone());
    if let Some(names) = named(&behind) {
        let overdue = pods
            .iter()
            .any(|pod| pod.news == PodNews::Behind && pod.overdue);
        let reason = if overdue {
            StateReason::Stale
        } else {
            StateReason::Pending
        };
        return verdict(
            ConditionStatus::False,
            reason,
            format!("not loaded yet by {names}"),
        );
    }
    let silent = |pod: &PodState| (pod.news == PodNews::None).then(|| pod.name.clone());
    if let Some(names) = named(&silent) {
        let text = format!("no report yet from {names}");
        return verdict(ConditionStatus::Unknown, StateReason::NoReport, text);
    }
    let withheld = |pod: &PodState| {
        (!pod.withheld.is_empty()).then(|| format!("{} ({})", pod.name, pod.withheld.join(", ")))
    };
    let note = named(&withheld).map(|pods| format!("not offered by {pods}"));
    verdict(
        ConditionStatus::True,
        StateReason::InForce,
        note.unwrap_or_default(),
    )
}

/// Ready: compiled, and no pod has been stale for long. A pod that says nothing has not
/// loaded anything as far as anybody knows.
fn ready(facts: &AgentFacts<'_>) -> Verdict {
    if let Some(refusal) = facts.refusal {
        return verdict(
            ConditionStatus::False,
            code(refusal.code),
            sentence(refusal),
        );
    }
    if facts.written != Written::Done {
        let Verdict(_, reason, message) = compiled(facts);
        return verdict(ConditionStatus::False, reason, message);
    }
    if facts.pods.is_empty() {
        return verdict(
            ConditionStatus::True,
            StateReason::NoPods,
            "no pod of the agent runs",
        );
    }
    let stale = stale(&facts.pods);
    if stale.is_empty() {
        verdict(ConditionStatus::True, StateReason::Ready, "")
    } else {
        let text = format!("what is compiled is not loaded by {}", stale.join(", "));
        verdict(ConditionStatus::False, StateReason::Stale, text)
    }
}

fn stale(pods: &[PodState]) -> Vec<String> {
    pods.iter()
        .filter(|pod| pod.overdue && pod.news != PodNews::Loaded)
        .map(|pod| pod.name.clone())
        .take(STALE_LISTED)
        .collect()
}

fn pods(pods: &[PodState]) -> PodsStatus {
    PodsStatus {
        running: count(pods.len()),
        in_force: count(
            pods.iter()
                .filter(|pod| pod.news == PodNews::Loaded)
                .count(),
        ),
        stale: stale(pods),
    }
}

fn usage(
    before: Option<&UsageStatus>,
    counted: Option<&Usage>,
    now: Timestamp,
) -> Option<UsageStatus> {
    let Some(counted) = counted.filter(|counted| **counted != Usage::default()) else {
        return before.cloned();
    };
    let since = before
        .and_then(|before| before.since.clone())
        .or(Some(Time(whole_second(now))));
    let last_call = counted
        .last_call
        .as_ref()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map(|at| Time(whole_second(at)))
        .or_else(|| before.and_then(|before| before.last_call.clone()));
    Some(UsageStatus {
        requests: counted.requests,
        rounds: counted.rounds,
        calls: counted.calls,
        failed: counted.failed,
        denied: counted.denied,
        prompt_tokens: counted.prompt_tokens,
        completion_tokens: counted.completion_tokens,
        last_call,
        since,
    })
}

/// What a status says was counted: where a new leader goes on from.
pub fn counted(status: Option<&UsageStatus>) -> Usage {
    status.map_or_else(Usage::default, |usage| Usage {
        requests: usage.requests,
        rounds: usage.rounds,
        calls: usage.calls,
        failed: usage.failed,
        denied: usage.denied,
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        last_call: usage.last_call.as_ref().map(|at| at.0.to_string()),
    })
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
        grant: GrantName {
            kind: tool.grant.kind.name().to_owned(),
            name: tool.grant.key.name.clone(),
            namespace: tool.grant.key.namespace.clone(),
        },
        credential: match tool.credential {
            CredentialKind::PerAgent => toolcrib_crds::CredentialKind::PerAgent,
            CredentialKind::Surface => toolcrib_crds::CredentialKind::Surface,
            CredentialKind::None => toolcrib_crds::CredentialKind::None,
        },
    }
}

fn withheld(withheld: &Withheld) -> WithheldStatus {
    WithheldStatus {
        name: cut(&withheld.what, 256),
        reason: withheld.code.name().to_owned(),
        message: (!withheld.message.is_empty()).then(|| cut(&withheld.message, 1024)),
    }
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// `Accepted` and `Resolved`, from what was found about the object itself.
fn own_conditions(
    conditions: &mut Vec<Condition>,
    subject: &Subject,
    diagnostics: &[Diagnostic],
    generation: Option<i64>,
    now: Timestamp,
) {
    let state = |found: Option<&Diagnostic>, good: StateReason| match found {
        Some(found) => verdict(ConditionStatus::False, code(found.code), sentence(found)),
        None => verdict(ConditionStatus::True, good, ""),
    };
    let accepted = state(not_accepted(diagnostics, subject), StateReason::Accepted);
    let resolved = state(not_resolved(diagnostics, subject), StateReason::Resolved);
    put(
        conditions,
        ConditionType::Accepted,
        accepted,
        generation,
        now,
    );
    put(
        conditions,
        ConditionType::Resolved,
        resolved,
        generation,
        now,
    );
}

/// The one condition that can be given for an object that cannot be read.
pub fn undecodable(why: &str, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let state = verdict(
        ConditionStatus::False,
        code(Code::Undecodable),
        format!("it cannot be read as its kind, so it gives nothing: {why}"),
    );
    put(
        &mut conditions,
        ConditionType::Accepted,
        state,
        generation,
        now,
    );
    conditions
}

/// Kinds other than Agent: a report becomes their status.
pub trait Reported {
    type Status: Clone + Default + PartialEq + serde::Serialize + serde::de::DeserializeOwned;
    fn status(
        &self,
        before: Option<&Self::Status>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self::Status;
    fn diagnostics(&self) -> &[Diagnostic];
}

impl Reported for SurfaceReport {
    type Status = SurfaceStatus;

    fn status(
        &self,
        before: Option<&SurfaceStatus>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> SurfaceStatus {
        let mut conditions = before
            .map(|before| before.conditions.clone())
            .unwrap_or_default();
        own_conditions(&mut conditions, subject, &self.diagnostics, generation, now);
        SurfaceStatus {
            observed_generation: generation,
            tool_count: Some(self.tools),
            descriptor_digest: self.descriptor_digest.clone(),
            consumer_count: Some(self.consumers),
            conditions,
        }
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl Reported for ProviderReport {
    type Status = ModelProviderStatus;

    fn status(
        &self,
        before: Option<&ModelProviderStatus>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> ModelProviderStatus {
        let mut conditions = before
            .map(|before| before.conditions.clone())
            .unwrap_or_default();
        own_conditions(&mut conditions, subject, &self.diagnostics, generation, now);
        ModelProviderStatus {
            observed_generation: generation,
            key_count: Some(self.keys),
            consumer_count: Some(self.consumers),
            conditions,
        }
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// A [`GrantReport`] of a ToolGrant.
pub struct OfGrant(pub GrantReport);
/// A [`GrantReport`] of a ToolDefaults.
pub struct OfDefaults(pub GrantReport);

impl Reported for OfGrant {
    type Status = ToolGrantStatus;

    fn status(
        &self,
        before: Option<&ToolGrantStatus>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> ToolGrantStatus {
        let mut conditions = before
            .map(|before| before.conditions.clone())
            .unwrap_or_default();
        own_conditions(
            &mut conditions,
            subject,
            &self.0.diagnostics,
            generation,
            now,
        );
        ToolGrantStatus {
            observed_generation: generation,
            matched_agents: Some(self.0.agents),
            tool_count: Some(self.0.tools),
            conditions,
        }
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }
}

impl Reported for OfDefaults {
    type Status = ToolDefaultsStatus;

    fn status(
        &self,
        before: Option<&ToolDefaultsStatus>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> ToolDefaultsStatus {
        let mut conditions = before
            .map(|before| before.conditions.clone())
            .unwrap_or_default();
        own_conditions(
            &mut conditions,
            subject,
            &self.0.diagnostics,
            generation,
            now,
        );
        ToolDefaultsStatus {
            observed_generation: generation,
            matched_agents: Some(self.0.agents),
            tool_count: Some(self.0.tools),
            conditions,
        }
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, news: PodNews, overdue: bool) -> PodState {
        PodState {
            name: name.into(),
            news,
            overdue,
            withheld: Vec::new(),
        }
    }

    /// `InForce` and `Ready` as `status/reason`, and `running inForce [stale]`.
    fn check(pods: Vec<PodState>) -> (String, String, String) {
        let digests = Digests {
            manifest: "m1".into(),
            credentials: "c1".into(),
        };
        let facts = AgentFacts {
            generation: Some(3),
            mode: Mode::Mediated,
            refusal: None,
            tools: &[],
            withheld: &[],
            diagnostics: &[],
            digests: Some(&digests),
            kept: Vec::new(),
            written: Written::Done,
            pods,
            usage: None,
        };
        let status = agent(None, &facts, Timestamp::UNIX_EPOCH);
        let condition = |type_: &str| {
            let found = status.conditions.iter().find(|c| c.type_ == type_).unwrap();
            format!("{}/{}", found.status, found.reason)
        };
        let pods = status.pods.as_ref().unwrap();
        let pods = format!("{} {} {:?}", pods.running, pods.in_force, pods.stale);
        (condition("InForce"), condition("Ready"), pods)
    }

    fn said(in_force: &str, ready: &str, pods: &str) -> (String, String, String) {
        (in_force.to_owned(), ready.to_owned(), pods.to_owned())
    }

    #[test]
    fn in_force_is_what_pods_say_and_never_assumed() {
        use PodNews::{Behind, Loaded, None, Rejected};
        let cases = [
            (vec![], said("Unknown/NoPods", "True/NoPods", "0 0 []")),
            (
                vec![pod("a", None, false)],
                said("Unknown/NoReport", "True/Ready", "1 0 []"),
            ),
            (
                vec![pod("a", None, true)],
                said("Unknown/NoReport", "False/Stale", r#"1 0 ["a"]"#),
            ),
            (
                vec![pod("a", Loaded, true)],
                said("True/InForce", "True/Ready", "1 1 []"),
            ),
            (
                vec![pod("a", Loaded, false), pod("b", Behind, false)],
                said("False/Pending", "True/Ready", "2 1 []"),
            ),
            (
                vec![pod("a", Loaded, true), pod("b", Behind, true)],
                said("False/Stale", "False/Stale", r#"2 1 ["b"]"#),
            ),
            (
                vec![pod("a", Rejected("hash mismatch".into()), false)],
                said("False/ManifestRejected", "True/Ready", "1 0 []"),
            ),
        ];
        for (pods, expected) in cases {
            assert_eq!(check(pods.clone()), expected, "{pods:?}");
        }
    }

    #[test]
    fn the_same_facts_later_are_the_same_status() {
        let facts = AgentFacts {
            generation: Some(3),
            mode: Mode::Mediated,
            refusal: None,
            tools: &[],
            withheld: &[],
            diagnostics: &[],
            digests: None,
            kept: Vec::new(),
            written: Written::Failed("why".into()),
            pods: Vec::new(),
            usage: Some(Usage {
                calls: 3,
                ..Usage::default()
            }),
        };
        let first = agent(None, &facts, Timestamp::from_second(10).unwrap());
        let second = agent(Some(&first), &facts, Timestamp::from_second(20).unwrap());
        assert_eq!(first, second);
        let since = first.usage.unwrap().since.unwrap();
        assert_eq!(since.0.as_second(), 10);
    }

    #[test]
    fn usage_of_nothing_is_not_shown_and_counting_goes_on_from_what_is_shown() {
        let now = Timestamp::from_second(10).unwrap();
        assert_eq!(usage(None, Some(&Usage::default()), now), None);
        let counted_usage = Usage {
            requests: 1,
            rounds: 2,
            calls: 3,
            failed: 4,
            denied: 5,
            prompt_tokens: 6,
            completion_tokens: 7,
            last_call: Some("2026-01-02T03:04:05Z".into()),
        };
        let shown = usage(None, Some(&counted_usage), now).unwrap();
        assert_eq!(counted(Some(&shown)), counted_usage);
        assert_eq!(usage(Some(&shown), None, now), Some(shown));
    }
}
