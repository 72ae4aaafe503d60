//! Computes the Normal Events of a status change.
//!
//! Here: tools and feeds gained and lost, and rotated credentials, from two statuses of an Agent;
//! recovery, from the conditions of any kind.
//! Not here: findings, which become Warning Events, and writing Events.
//!
//! Invariants: equal statuses give no Event, so a restart gives none. A status lists the first tools
//! and feeds only, so an Event names one only if both lists reach as far as its name.

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
    for (had, has, what, gained, lost) in [
        (
            NameList::tools(before),
            NameList::tools(after),
            "tools",
            "ToolsGained",
            "ToolsLost",
        ),
        (
            NameList::feeds(before),
            NameList::feeds(after),
            "feeds",
            "FeedsGained",
            "FeedsLost",
        ),
    ] {
        let added = has.not_in(&had, "more");
        let removed = had.not_in(&has, "fewer");
        notices.extend(added.map(|list| Notice {
            reason: gained,
            note: format!("added {what}: {list}"),
        }));
        notices.extend(removed.map(|list| Notice {
            reason: lost,
            note: format!("removed {what}: {list}"),
        }));
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
    let outages = [
        (
            StateReason::ProviderUnreachable,
            "ProviderReachable",
            "a model provider",
        ),
        (
            StateReason::ServiceUnreachable,
            "ServiceReachable",
            "a service",
        ),
    ];
    for (outage, reason, server) in outages {
        if has_reason(before, outage) && has_reason(after, StateReason::Ready) && is_in_force(after)
        {
            notices.push(Notice {
                reason,
                note: format!("no pod reports {server} without an answer any more"),
            });
        }
    }
    notices.extend(recovered(&before.conditions, &after.conditions));
    notices
}

/// The Event of an object of any kind whose `Ready` goes from False to True. Without it, the last
/// Event of the object would be the Warning.
pub(super) fn recovered(before: &[Condition], after: &[Condition]) -> Option<Notice> {
    let is = |condition: &&Condition, status: ConditionStatus| condition.status == status.as_str();
    let ready = |conditions| condition(conditions, ConditionType::Ready);
    let earlier = ready(before).filter(|it| is(it, ConditionStatus::False))?;
    ready(after).filter(|it| is(it, ConditionStatus::True))?;
    Some(Notice {
        reason: "Recovered",
        note: format!("Ready again; the previous reason was {}", earlier.reason),
    })
}

/// The tools or feeds of a status: the first names in their order, and the number of all.
struct NameList<'a> {
    names: Vec<&'a str>,
    count: usize,
}

impl<'a> NameList<'a> {
    fn tools(status: &'a AgentStatus) -> Self {
        let names = status.tools.iter().map(|tool| &*tool.name);
        Self::new(names, status.tool_count)
    }

    fn feeds(status: &'a AgentStatus) -> Self {
        let names = status.feeds.iter().map(|feed| &*feed.name);
        Self::new(names, status.feed_count)
    }

    fn new(names: impl Iterator<Item = &'a str>, count: Option<u32>) -> Self {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable_by_key(|name| place(name));
        let count = usize::try_from(count.unwrap_or_default()).unwrap_or(usize::MAX);
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

/// The place of `surface.tool` or `surface/feed` in the order of a status: by the surface's name, then
/// by its own.
fn place(name: &str) -> (&str, &str) {
    name.split_once(['.', '/']).unwrap_or((name, ""))
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
    let ready = condition(&status.conditions, ConditionType::Ready);
    ready.is_some_and(|ready| ready.reason == reason.as_str())
}

/// Whether every pod has reported that it has the current files. A new leader knows no report yet.
fn is_in_force(status: &AgentStatus) -> bool {
    let in_force = condition(&status.conditions, ConditionType::InForce);
    in_force.is_some_and(|in_force| in_force.status == ConditionStatus::True.as_str())
}

pub(super) fn condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    let mut conditions = conditions.iter();
    conditions.find(|condition| condition.type_ == type_.as_str())
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
        check(
            Some(&reported("ProviderUnreachable")),
            &reported("Ready"),
            &["ProviderReachable: no pod reports a model provider without an answer any more"],
        );
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
    fn feeds_give_events_of_their_own() {
        let with = |names: &[&str]| {
            let grant = json!({"kind": "ToolGrant", "name": "g", "namespace": "pond"});
            let feed = |name| json!({"name": name, "grant": grant, "credential": "None"});
            AgentStatus {
                feeds: serde_json::from_value(names.iter().map(feed).collect()).expect("feeds"),
                ..status(&["reed.look"], "c1", ("True", "Ready"))
            }
        };
        let check = |before: &[&str], after: &[&str], expected: &[&str]| {
            super::tests::check(Some(&with(before)), &with(after), expected);
        };
        check(
            &[],
            &["reed/tide"],
            &["FeedsGained: added feeds: reed/tide"],
        );
        check(
            &["reed/news", "reed/tide"],
            &["reed/news"],
            &["FeedsLost: removed feeds: reed/tide"],
        );
    }

    #[test]
    fn only_ready_from_false_to_true_is_a_recovery() {
        let conditions = |status_of: &str| status(&[""; 0], "c1", (status_of, "Of")).conditions;
        let words = ["True", "False", "Unknown"];
        for (before, after) in words
            .iter()
            .flat_map(|before| words.map(|after| (*before, after)))
        {
            let found = recovered(&conditions(before), &conditions(after));
            let expected = (before, after) == ("False", "True");
            assert_eq!(found.is_some(), expected, "{before} {after}");
        }
        assert_eq!(recovered(&[], &conditions("True")), None);
        assert_eq!(recovered(&conditions("False"), &[]), None);
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
