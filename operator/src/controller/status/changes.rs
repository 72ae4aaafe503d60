//! Computes the Normal Events of a status change.
//!
//! Here: tools gained and lost, rotated credentials, and recovery, from two statuses of an Agent.
//! Not here: findings, which become Warning Events, and writing Events.
//!
//! Invariant: equal statuses give no Event, so a restart gives none.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_crds::{AgentStatus, ConditionStatus, ConditionType, StateReason};

/// Most names in an Event; the number of further names follows them.
const NAMED: usize = 8;

/// A Normal Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub reason: &'static str,
    pub note: String,
}

/// Compares an Agent's status before and after it was written.
pub fn notices(before: Option<&AgentStatus>, after: &AgentStatus) -> Vec<Notice> {
    let nothing = AgentStatus::default();
    let before = before.unwrap_or(&nothing);
    let mut notices = Vec::new();
    let (had, has) = (names(before), names(after));
    if let Some(list) = listed(has.difference(&had)) {
        notices.push(Notice {
            reason: "ToolsGained",
            note: format!("added tools: {list}"),
        });
    }
    if let Some(list) = listed(had.difference(&has)) {
        notices.push(Notice {
            reason: "ToolsLost",
            note: format!("removed tools: {list}"),
        });
    }
    let rotated = before.credentials_revision.is_some()
        && before.credentials_revision != after.credentials_revision
        && before.manifest_digest == after.manifest_digest;
    if rotated {
        notices.push(Notice {
            reason: "CredentialsRotated",
            note: "a credential changed; pods use the new one after the kubelet has refreshed \
                   their volume, usually within 90 s"
                .to_owned(),
        });
    }
    if has_reason(before, StateReason::ServiceUnreachable)
        && has_reason(after, StateReason::Ready)
        && is_in_force(after)
    {
        notices.push(Notice {
            reason: "ServiceReachable",
            note: "no pod reports a service without an answer any more".to_owned(),
        });
    }
    if let Some(reason) = not_ready(before)
        && not_ready(after).is_none()
    {
        notices.push(Notice {
            reason: "Recovered",
            note: format!("Ready again; the previous reason was {reason}"),
        });
    }
    notices
}

fn names(status: &AgentStatus) -> BTreeSet<&str> {
    status.tools.iter().map(|tool| &*tool.name).collect()
}

fn listed<'a>(names: impl Iterator<Item = &'a &'a str>) -> Option<String> {
    let all: Vec<&str> = names.copied().collect();
    let (named, others) = all.split_at(all.len().min(NAMED));
    match (named, others) {
        ([], _) => None,
        (named, []) => Some(named.join(", ")),
        (named, others) => Some(format!("{} and {} more", named.join(", "), others.len())),
    }
}

/// Whether the condition Ready has this reason.
fn has_reason(status: &AgentStatus, reason: StateReason) -> bool {
    let ready = condition(status, ConditionType::Ready);
    ready.is_some_and(|ready| ready.reason == reason.as_str())
}

/// Whether every pod has reported that it has the current files. A new leader knows no report yet.
fn is_in_force(status: &AgentStatus) -> bool {
    let in_force = condition(status, ConditionType::InForce);
    in_force.is_some_and(|in_force| in_force.status == ConditionStatus::True.as_str())
}

fn condition(status: &AgentStatus, type_: ConditionType) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == type_.as_str())
}

/// The reason why an Agent is not Ready; `None` if it is Ready, or nothing is known.
fn not_ready(status: &AgentStatus) -> Option<&str> {
    let ready = condition(status, ConditionType::Ready)?;
    (ready.status == ConditionStatus::False.as_str()).then_some(&*ready.reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(tools: &[&str], revision: &str, ready: (&str, &str)) -> AgentStatus {
        let tools: Vec<_> = tools
            .iter()
            .map(|name| {
                json!({"name": name, "tier": "ReadOnly", "credential": "None",
                    "grant": {"kind": "ToolGrant", "name": "g", "namespace": "pond"}})
            })
            .collect();
        serde_json::from_value(json!({
            "tools": tools, "manifestDigest": "m", "credentialsRevision": revision,
            "conditions": [{"type": "Ready", "status": ready.0, "reason": ready.1, "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        }))
        .expect("a status")
    }

    /// The same status, with the condition InForce.
    fn in_force(mut of: AgentStatus, status: &str, reason: &str) -> AgentStatus {
        let mut in_force = of.conditions[0].clone();
        in_force.type_ = "InForce".to_owned();
        in_force.status = status.to_owned();
        in_force.reason = reason.to_owned();
        of.conditions.push(in_force);
        of
    }

    #[track_caller]
    fn check(before: Option<&AgentStatus>, after: &AgentStatus, expected: &[&str]) {
        let found: Vec<String> = notices(before, after)
            .iter()
            .map(|notice| format!("{}: {}", notice.reason, notice.note))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_change_gives_an_event_and_an_equal_status_gives_none() {
        let first = status(&["reed.fish", "reed.look"], "c1", ("True", "Ready"));
        check(
            None,
            &first,
            &["ToolsGained: added tools: reed.fish, reed.look"],
        );
        check(Some(&first), &first, &[]);
        let fewer = status(&["reed.look"], "c1", ("False", "Stale"));
        check(
            Some(&first),
            &fewer,
            &["ToolsLost: removed tools: reed.fish"],
        );
        let later = status(&["reed.look"], "c2", ("True", "Ready"));
        check(
            Some(&fewer),
            &later,
            &[
                "CredentialsRotated: a credential changed; pods use the new one after the kubelet \
                 has refreshed their volume, usually within 90 s",
                "Recovered: Ready again; the previous reason was Stale",
            ],
        );
    }

    /// A new leader knows no report of the pods, so it does not know that an outage is over.
    #[test]
    fn the_end_of_an_outage_is_an_event_if_every_pod_has_reported() {
        let ready = |reason: &str| status(&["reed.fish"], "c1", ("True", reason));
        let reported = |reason: &str| in_force(ready(reason), "True", "InForce");
        let down = reported("ServiceUnreachable");
        check(Some(&reported("Ready")), &down, &[]);
        check(
            Some(&down),
            &reported("Ready"),
            &["ServiceReachable: no pod reports a service without an answer any more"],
        );
        check(
            Some(&down),
            &in_force(ready("Ready"), "Unknown", "NoReport"),
            &[],
        );
        check(Some(&down), &reported("NoPods"), &[]);
    }

    #[test]
    fn a_long_list_of_tools_is_truncated() {
        let many: Vec<String> = (10..30).map(|number| format!("reed.t{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let after = status(&many, "c1", ("True", "Ready"));
        let note = &notices(None, &after)[0].note;
        assert!(note.ends_with("reed.t17 and 12 more"), "{note}");
    }
}
