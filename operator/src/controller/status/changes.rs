//! Computes the Normal Events of a status change.
//!
//! Here: tools gained and lost, rotated credentials, and recovery, from two statuses of an Agent.
//! Not here: findings, which become Warning Events, and writing Events.
//!
//! Invariants: equal statuses give no Event, so a restart gives none. A status lists the first tools
//! only, so an Event names a tool only if both lists reach as far as its name.

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
    let (had, has) = (Listed::tools(before), Listed::tools(after));
    if let Some(list) = has.not_in(&had, "more") {
        notices.push(Notice {
            reason: "ToolsGained",
            note: format!("added tools: {list}"),
        });
    }
    if let Some(list) = had.not_in(&has, "fewer") {
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

/// The tools of a status: the first names in their order, and the number of all.
struct Listed<'a> {
    names: Vec<&'a str>,
    count: usize,
}

impl<'a> Listed<'a> {
    fn tools(status: &'a AgentStatus) -> Self {
        let mut names: Vec<&str> = status.tools.iter().map(|tool| &*tool.name).collect();
        names.sort_unstable_by_key(|name| place(name));
        let count = status.tool_count.unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            count: count.max(names.len()),
            names,
        }
    }

    /// The last name up to which all names are known; `None` if all names are known.
    fn end(&self) -> Option<&'a str> {
        let last = self.names.last().copied();
        last.filter(|_| self.names.len() < self.count)
    }

    /// The names up to `end`.
    fn up_to(&self, end: Option<&str>) -> &[&'a str] {
        let known = |end: &str| self.names.partition_point(|name| place(name) <= place(end));
        &self.names[..end.map_or(self.names.len(), known)]
    }

    /// Words for the names that `other` does not have. `compared`: the word for a number that is
    /// greater here than there.
    fn not_in(&self, other: &Self, compared: &str) -> Option<String> {
        let ends = [self.end(), other.end()].into_iter().flatten();
        let end = ends.min_by_key(|name| place(name));
        let (here, there) = (self.up_to(end), other.up_to(end));
        let has = |name: &&&str| {
            there
                .binary_search_by_key(&place(name), |it| place(it))
                .is_ok()
        };
        let named = named(here.iter().filter(|name| !has(name)).copied().collect());
        let unnamed = (self.count - here.len()).saturating_sub(other.count - there.len());
        let counted = end.filter(|_| unnamed > 0).map(|end| {
            format!("{unnamed} {compared} after {end}, where the status does not list all")
        });
        let parts: Vec<String> = named.into_iter().chain(counted).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The place of a tool in the order of a status: by the surface's name, then by its own.
fn place(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

fn named(names: Vec<&str>) -> Option<String> {
    let (named, others) = names.split_at(names.len().min(NAMED));
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

    fn status(tools: &[impl serde::Serialize], revision: &str, ready: (&str, &str)) -> AgentStatus {
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
        let after = status(&numbered(10..30), "c1", ("True", "Ready"));
        let note = &notices(None, &after)[0].note;
        assert!(note.ends_with("reed.t17 and 12 more"), "{note}");
    }

    fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
        numbers.map(|number| format!("reed.t{number}")).collect()
    }

    /// The status of an agent with these tools: it lists the first 64.
    fn first_listed(tools: &[String]) -> AgentStatus {
        let mut status = status(&tools[..tools.len().min(64)], "c1", ("True", "Ready"));
        status.tool_count = u32::try_from(tools.len()).ok();
        status
    }

    #[test]
    fn a_tool_that_a_longer_list_pushes_out_is_not_lost() {
        let check = |before: &[String], after: &[String], expected: &[&str]| {
            super::tests::check(Some(&first_listed(before)), &first_listed(after), expected);
        };
        let old = numbered(100..164);
        let new = [vec!["reed.a".to_owned()], old.clone()].concat();
        check(&old, &new, &["ToolsGained: added tools: reed.a"]);
        check(&new, &old, &["ToolsLost: removed tools: reed.a"]);

        // The first ten of seventy are lost, and then the last ten.
        let many = numbered(100..170);
        check(
            &many,
            &many[10..],
            &[
                "ToolsLost: removed tools: reed.t100, reed.t101, reed.t102, reed.t103, reed.t104, \
               reed.t105, reed.t106, reed.t107 and 2 more",
            ],
        );
        check(
            &many,
            &many[..60],
            &[
                "ToolsLost: removed tools: reed.t160, reed.t161, reed.t162, reed.t163; 6 fewer \
               after reed.t163, where the status does not list all",
            ],
        );
        check(
            &many[..60],
            &many,
            &[
                "ToolsGained: added tools: reed.t160, reed.t161, reed.t162, reed.t163; 6 more \
               after reed.t163, where the status does not list all",
            ],
        );
        check(
            &many[..66],
            &many,
            &[
                "ToolsGained: added tools: 4 more after reed.t163, where the status does not list all",
            ],
        );
    }

    /// A status has the tools of surface `reed` before those of `reed-bed`.
    #[test]
    fn a_shared_beginning_of_surface_names_keeps_the_order_of_the_status() {
        let before: Vec<String> = numbered(100..164);
        let mut after = before.clone();
        after.push("reed-bed.look".to_owned());
        super::tests::check(
            Some(&first_listed(&before)),
            &first_listed(&after),
            &[
                "ToolsGained: added tools: 1 more after reed.t163, where the status does not list all",
            ],
        );
    }
}
