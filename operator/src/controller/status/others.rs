//! The status of a Surface, ToolGrant, ToolDefaults or ModelProvider: the counts of its report, and
//! the conditions `Accepted` and `Resolved`.
//!
//! Here: the fields of each kind. Not here: the construction of conditions, and Agents.
//!
//! Invariant: conditions of other controllers stay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_compile::{
    Diagnostic, GrantReport, ObjectRef, ProviderReport, Subject, SurfaceReport,
};
use toolcrib_crds::{ModelProviderStatus, SurfaceStatus, ToolDefaultsStatus, ToolGrantStatus};

use super::changes::Notice;
use super::condition::own_conditions;

/// A report that becomes a status of its kind.
pub trait StatusReport {
    type Status: Clone + Default + PartialEq + serde::Serialize + serde::de::DeserializeOwned;

    fn diagnostics(&self) -> &[Diagnostic];

    /// Secrets that the object references and that could not be read, with the reason.
    fn unread(&self) -> Option<&BTreeMap<ObjectRef, String>> {
        None
    }

    /// The conditions of a status.
    fn conditions(status: &Self::Status) -> &[Condition];

    /// The status of the report, with these conditions.
    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> Self::Status;

    /// The Normal Events of a change.
    fn notices(_before: Option<&Self::Status>, _after: &Self::Status) -> Vec<Notice> {
        Vec::new()
    }

    fn status(
        &self,
        before: Option<&Self::Status>,
        subject: &Subject,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self::Status {
        let before = before.map_or_else(Vec::new, |status| Self::conditions(status).to_vec());
        let conditions = own_conditions(
            before,
            subject,
            self.diagnostics(),
            self.unread(),
            generation,
            now,
        );
        self.with(generation, conditions)
    }
}

/// The report of a ToolGrant, and the agents that its spec names.
pub struct ToolGrantReport {
    pub report: GrantReport,
    pub agents: Vec<String>,
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

    fn notices(before: Option<&SurfaceStatus>, after: &SurfaceStatus) -> Vec<Notice> {
        let earlier = before.and_then(|before| before.descriptor_digest.as_deref());
        match (earlier, after.descriptor_digest.as_deref()) {
            (Some(earlier), Some(now)) if earlier != now => vec![Notice {
                reason: "DescriptorChanged",
                note: format!(
                    "the descriptor is now {now}, and was {earlier}: review the change; grants \
                     that pin no descriptorDigest give its tools as they are now"
                ),
            }],
            (_, _) => Vec::new(),
        }
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

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.report.diagnostics
    }

    fn conditions(status: &ToolGrantStatus) -> &[Condition] {
        &status.conditions
    }

    fn with(&self, generation: Option<i64>, conditions: Vec<Condition>) -> ToolGrantStatus {
        ToolGrantStatus {
            observed_generation: generation,
            agent_names: Some(first_names(&self.agents)),
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
    fn a_column_names_the_first_agents_and_counts_the_rest() {
        let agents: Vec<String> = ["otter", "heron", "newt", "frog", "carp"]
            .map(str::to_owned)
            .into();
        assert_eq!(first_names(&agents[..1]), "otter");
        assert_eq!(first_names(&agents[..4]), "otter,heron,newt,frog");
        assert_eq!(first_names(&agents), "otter,heron,newt,frog +1");
    }
}
