//! The status of each kind but Agent: the counts of its report, and the conditions `Accepted`,
//! `Resolved` and `Ready`; of a ToolGrant also `Active`.
//!
//! Here: the fields of each kind. Not here: the construction of conditions, and Agents.
//!
//! Invariant: conditions of other controllers stay.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_compile::{
    Diagnostic, GrantReport, ObjectRef, PolicyReport, ProviderReport, Subject, SurfaceReport,
};
use toolcrib_crds::{
    ClusterToolPolicyStatus, ConditionStatus, ConditionType, ModelProviderStatus, StateReason,
    SurfaceStatus, ToolDefaultsStatus, ToolGrantSpec, ToolGrantStatus,
};
use toolcrib_rules::{Window, WindowState};

use super::changes::{Notice, recovered};
use super::condition::{Verdict, own_conditions, put, verdict};

/// A report that becomes a status of its kind.
pub trait StatusReport {
    type Status: Clone + Default + PartialEq + serde::Serialize + serde::de::DeserializeOwned;

    fn diagnostics(&self) -> &[Diagnostic];

    /// Secrets that the object references and that could not be read, with the reason.
    fn unread(&self) -> Option<&BTreeMap<ObjectRef, String>> {
        None
    }

    /// A condition besides `Accepted` and `Resolved`.
    fn further(&self, _now: Timestamp) -> Option<(ConditionType, Verdict)> {
        None
    }

    /// The conditions of a status.
    fn conditions(status: &Self::Status) -> &[Condition];

    /// The status of the report, with these conditions.
    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> Self::Status;

    /// The Normal Event of a change, besides a recovery.
    fn change(_before: Option<&Self::Status>, _after: &Self::Status) -> Option<Notice> {
        None
    }

    /// The Normal Events of a change.
    fn notices(before: Option<&Self::Status>, after: &Self::Status) -> Vec<Notice> {
        let conditions = before.map_or(&[][..], |before| Self::conditions(before));
        let recovered = recovered(conditions, Self::conditions(after));
        let change = Self::change(before, after);
        change.into_iter().chain(recovered).collect()
    }

    fn status(
        &self,
        before: Option<&Self::Status>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self::Status {
        let before = before.map_or_else(Vec::new, |status| Self::conditions(status).to_vec());
        let mut conditions = own_conditions(
            before,
            subject,
            self.diagnostics(),
            self.unread(),
            generation,
            now,
        );
        if let Some((type_, verdict)) = self.further(now) {
            put(&mut conditions, type_, verdict, generation, now);
        }
        self.with(generation, conditions)
    }
}

/// The report of a ToolGrant, and the parts of its spec that its status shows.
pub struct ToolGrantReport {
    pub report: GrantReport,
    pub activity: Activity,
}

/// The parts of a grant's spec that decide whether it gives something now.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    is_suspended: bool,
    window: Window,
}

impl Activity {
    pub fn of(grant: &ToolGrantSpec) -> Self {
        let ToolGrantSpec {
            not_before,
            not_after,
            ..
        } = grant;
        Self {
            is_suspended: grant.is_suspended(),
            window: Window::readable(not_before.as_deref(), not_after.as_deref()),
        }
    }

    fn verdict(&self, now: Timestamp) -> Verdict {
        let no = ConditionStatus::False;
        match self.window.state(now) {
            _ if self.is_suspended => verdict(
                no,
                StateReason::Suspended,
                "spec.suspend is true: the grant gives nothing",
            ),
            WindowState::NotYet(begin) => verdict(
                no,
                StateReason::NotYet,
                format!("the grant gives nothing before {begin}"),
            ),
            WindowState::Over(end) => verdict(
                no,
                StateReason::Expired,
                format!("the grant gives nothing since {end}"),
            ),
            WindowState::Open => verdict(ConditionStatus::True, StateReason::Active, ""),
        }
    }

    /// Returns the time until the verdict changes by itself.
    pub fn next_change(&self, now: Timestamp) -> Option<Duration> {
        let next = self.window.next_change(now)?;
        // The verdict is of whole nanoseconds, and the queue may be early by less.
        let wait = Duration::try_from(next.duration_since(now)).ok()?;
        (!self.is_suspended).then_some(wait)
    }
}
/// The report of a ToolDefaults.
pub struct ToolDefaultsReport(pub GrantReport);

impl StatusReport for SurfaceReport {
    type Status = SurfaceStatus;

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    fn unread(&self) -> Option<&BTreeMap<ObjectRef, String>> {
        Some(&self.unread)
    }

    fn conditions(status: &SurfaceStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> SurfaceStatus {
        SurfaceStatus {
            observed_generation: generation,
            tool_count: Some(self.tools),
            descriptor_digest: self.descriptor_digest.clone(),
            consumer_count: Some(self.consumers),
            conditions,
        }
    }

    fn change(before: Option<&SurfaceStatus>, after: &SurfaceStatus) -> Option<Notice> {
        let earlier = before?.descriptor_digest.as_deref()?;
        let now = after.descriptor_digest.as_deref()?;
        (earlier != now).then(|| Notice {
            reason: "DescriptorChanged",
            note: format!(
                "the descriptor is now {now}, and was {earlier}: review the change; grants that \
                 pin no descriptorDigest give its tools as they are now"
            ),
        })
    }
}

impl StatusReport for ProviderReport {
    type Status = ModelProviderStatus;

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    fn unread(&self) -> Option<&BTreeMap<ObjectRef, String>> {
        Some(&self.unread)
    }

    fn conditions(status: &ModelProviderStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> ModelProviderStatus {
        ModelProviderStatus {
            observed_generation: generation,
            key_count: Some(self.keys),
            consumer_count: Some(self.consumers),
            conditions,
        }
    }
}

impl StatusReport for ToolGrantReport {
    type Status = ToolGrantStatus;

    fn further(&self, now: Timestamp) -> Option<(ConditionType, Verdict)> {
        Some((ConditionType::Active, self.activity.verdict(now)))
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.report.diagnostics
    }

    fn conditions(status: &ToolGrantStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> ToolGrantStatus {
        ToolGrantStatus {
            observed_generation: generation,
            agent_names: Some(first_names(&self.report.agent_names)),
            matched_agents: Some(self.report.agents),
            tool_count: Some(self.report.tools),
            conditions,
        }
    }
}

impl StatusReport for ToolDefaultsReport {
    type Status = ToolDefaultsStatus;

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }

    fn conditions(status: &ToolDefaultsStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> ToolDefaultsStatus {
        ToolDefaultsStatus {
            observed_generation: generation,
            matched_agents: Some(self.0.agents),
            tool_count: Some(self.0.tools),
            conditions,
        }
    }
}

impl StatusReport for PolicyReport {
    type Status = ClusterToolPolicyStatus;

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    fn conditions(status: &ClusterToolPolicyStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> ClusterToolPolicyStatus {
        ClusterToolPolicyStatus {
            observed_generation: generation,
            matched_agents: Some(self.agents),
            would_deny_tools: self.would_deny,
            conditions,
        }
    }
}

/// Most agents named in a column; the number of further agents follows them.
const NAMED: usize = 4;

fn first_names(agents: &[String]) -> String {
    let named = agents[..agents.len().min(NAMED)].join(",");
    match agents.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} +{more}"),
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Code, Kind};

    use super::*;

    #[test]
    fn a_changed_descriptor_gives_an_event() {
        let status = |digest: Option<&str>| SurfaceStatus {
            descriptor_digest: digest.map(str::to_owned),
            ..SurfaceStatus::default()
        };
        let check = |before: Option<&SurfaceStatus>, after: Option<&str>| -> Vec<String> {
            let notices = SurfaceReport::notices(before, &status(after));
            notices.into_iter().map(|notice| notice.note).collect()
        };
        let first = status(Some("sha256:1"));
        let none: Vec<String> = Vec::new();
        assert_eq!(check(None, Some("sha256:1")), none);
        assert_eq!(check(Some(&first), Some("sha256:1")), none);
        // The Warning Events say why there is no descriptor.
        assert_eq!(check(Some(&first), None), none);
        assert_eq!(
            check(Some(&first), Some("sha256:2")),
            [
                "the descriptor is now sha256:2, and was sha256:1: review the change; grants that \
                 pin no descriptorDigest give its tools as they are now"
            ]
        );
    }

    #[test]
    fn every_kind_has_an_event_of_its_recovery() {
        /// The notices of an object that has `found`, and then has it no more.
        fn check<R: StatusReport>(kind: Kind, report: impl Fn(Vec<Diagnostic>) -> R) {
            let now = Timestamp::UNIX_EPOCH;
            let subject = Subject::new(kind, &ObjectRef::new("pond", "reed"));
            let mut found = toolcrib_compile::Diagnostics::default();
            found.add(&subject, "spec", Code::InvalidValue, "is wrong");
            let status = |before: Option<&R::Status>, found: Vec<Diagnostic>| {
                report(found).status(before, &subject, Some(1), now)
            };
            let wrong = status(None, found.into_sorted());
            let right = status(Some(&wrong), Vec::new());
            let notices = |before, after| -> Vec<String> {
                let notices = R::notices(before, after).into_iter();
                notices
                    .map(|it| format!("{}: {}", it.reason, it.note))
                    .collect()
            };
            let none: Vec<String> = Vec::new();
            assert_eq!(notices(None, &wrong), none, "{kind:?}");
            let again = ["Recovered: Ready again; the previous reason was InvalidValue"];
            assert_eq!(notices(Some(&wrong), &right), again, "{kind:?}");
            assert_eq!(notices(Some(&right), &right), none, "{kind:?}");
        }
        let grant = |diagnostics| GrantReport {
            agents: 0,
            agent_names: Vec::new(),
            tools: 0,
            diagnostics,
        };
        check(Kind::ToolDefaults, |found| ToolDefaultsReport(grant(found)));
        check(Kind::ToolGrant, |found| ToolGrantReport {
            report: grant(found),
            activity: Activity::default(),
        });
        check(Kind::Surface, |diagnostics| SurfaceReport {
            tools: 0,
            descriptor_digest: None,
            consumers: 0,
            diagnostics,
            unread: BTreeMap::new(),
        });
        check(Kind::ModelProvider, |diagnostics| ProviderReport {
            keys: 0,
            consumers: 0,
            diagnostics,
            unread: BTreeMap::new(),
        });
        check(Kind::ClusterToolPolicy, |diagnostics| PolicyReport {
            agents: 0,
            is_tried_out: false,
            would_deny: None,
            diagnostics,
        });
    }

    #[test]
    fn a_grant_is_active_in_its_time_unless_it_is_suspended() {
        let spec = |suspend: bool, not_before: Option<&str>, not_after: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            Activity::of(&ToolGrantSpec {
                suspend: Some(suspend),
                not_before: owned(not_before),
                not_after: owned(not_after),
                ..ToolGrantSpec::default()
            })
        };
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().expect("a time");
        let check = |activity: Activity, reason: &str, seconds: Option<u64>| {
            let Verdict(status, found, _) = activity.verdict(now);
            assert_eq!(found.0, reason, "{activity:?}");
            assert_eq!(status == ConditionStatus::True, reason == "Active");
            let wait = activity.next_change(now).map(|wait| wait.as_secs());
            assert_eq!(wait, seconds, "{activity:?}");
        };
        let (before, at, after) = (
            Some("2026-06-01T11:59:00Z"),
            Some("2026-06-01T14:00:00+02:00"),
            Some("2026-06-01T12:01:00Z"),
        );
        check(spec(false, None, None), "Active", None);
        check(spec(false, at, after), "Active", Some(60));
        check(spec(false, before, at), "Expired", None);
        check(spec(false, after, None), "NotYet", Some(60));
        check(spec(true, before, after), "Suspended", None);
    }

    #[test]
    fn a_column_names_the_first_agents_and_counts_the_rest() {
        let agents: Vec<String> = ["otter", "heron", "newt", "frog", "carp"]
            .map(str::to_owned)
            .into();
        assert_eq!(first_names(&agents[..1]), "otter");
        assert_eq!(first_names(&agents[..4]), "otter,heron,newt,frog");
        assert_eq!(first_names(&agents), "otter,heron,newt,frog +1");
    }
}
