//! The Events of a status that changed for the better or by somebody's hand.
//!
//! Here: tools gained and lost, rotated credentials, and recovery, from two statuses of one
//! Agent. Not here: findings, which are Warning Events, and writing either.
//!
//! Invariant: equal statuses give no Event, so a restart gives none.

use std::collections::BTreeSet;

use toolcrib_crds::{AgentStatus, ConditionStatus, ConditionType};

/// Names in one Event; the number of the others stands behind them.
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
            note: format!("compiled for this agent now: {list}"),
        });
    }
    if let Some(list) = listed(had.difference(&has)) {
        notices.push(Notice {
            reason: "ToolsLost",
            note: format!("no longer compiled for this agent: {list}"),
        });
    }
    let rotated = before.credentials_revision.is_some()
        && before.credentials_revision != after.credentials_revision
        && before.manifest_digest == after.manifest_digest;
    if rotated {
        notices.push(Notice {
            reason: "CredentialsRotated",
            note: "a credential changed; pods use it once the kubelet has brought it, usually \
                   within 90 s"
                .to_owned(),
        });
    }
    if let Some(reason) = not_ready(before)
        && not_ready(after).is_none()
    {
        notices.push(Notice {
            reason: "Recovered",
            note: format!("Ready again; the reason was {reason}"),
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

/// The reason for which an Agent was not Ready. `None`: it was, or nothing is known.
fn not_ready(status: &AgentStatus) -> Option<&str> {
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::Ready.as_str())?;
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

    #[track_caller]
    fn check(before: Option<&AgentStatus>, after: &AgentStatus, expected: &[&str]) {
        let found: Vec<String> = notices(before, after)
            .iter()
            .map(|notice| format!("{}: {}", notice.reason, notice.note))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_event_for_each_change_and_none_for_the_same_status() {
        let first = status(&["reed.fish", "reed.look"], "c1", ("True", "Ready"));
        check(
            None,
            &first,
            &["ToolsGained: compiled for this agent now: reed.fish, reed.look"],
        );
        check(Some(&first), &first, &[]);
        let fewer = status(&["reed.look"], "c1", ("False", "Stale"));
        check(
            Some(&first),
            &fewer,
            &["ToolsLost: no longer compiled for this agent: reed.fish"],
        );
        let later = status(&["reed.look"], "c2", ("True", "Ready"));
        check(
            Some(&fewer),
            &later,
            &[
                "CredentialsRotated: a credential changed; pods use it once the kubelet has \
                 brought it, usually within 90 s",
                "Recovered: Ready again; the reason was Stale",
            ],
        );
    }

    #[test]
    fn a_long_list_of_tools_is_cut() {
        let many: Vec<String> = (10..30).map(|number| format!("reed.t{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let after = status(&many, "c1", ("True", "Ready"));
        let note = &notices(None, &after)[0].note;
        assert!(note.ends_with("reed.t17 and 12 more"), "{note}");
    }
}
