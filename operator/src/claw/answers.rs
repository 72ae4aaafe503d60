//! Builds claw-api's answers: a summary of the Agents' status and of the mediators' reports.
//!
//! Pure. Invariant: an answer has no Secret's name, no token and no digest of a credential.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use toolcrib_compile::{ObjectRef, ToolExplanation};
use toolcrib_crds::{Agent, AgentStatus, FeedStatus, Mode, PodsStatus, ToolStatus};
use toolcrib_manifest::{RecentCall, Usage};

use super::verbs::Page;
use crate::link::calls::KnownCall;

/// The data from which the answers about an agent are built.
#[derive(Clone, Debug)]
pub struct Facts {
    pub key: ObjectRef,
    /// `Err`: the reason for which it cannot be decoded as an Agent.
    pub agent: Result<Arc<Agent>, String>,
    pub status: AgentStatus,
    pub usage: Usage,
}

/// A page of a list.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPage<T> {
    /// Position of the next page; omitted on the last page. It is the first field, since a mediator
    /// truncates long results.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub agents: Vec<T>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentLine {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    tools: u32,
    read_only: u32,
    withheld: u32,
    /// Status of the condition `Ready`: `True`, `False` or `Unknown`. `reason` is its reason.
    ready: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Pods>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_call: Option<String>,
    /// Why the object cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pods {
    running: u32,
    in_force: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stale: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDetails {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    surfaces: Vec<DeclaredSurface>,
    tool_count: u32,
    tools: Vec<ToolStatus>,
    feed_count: u32,
    feeds: Vec<FeedStatus>,
    withheld_count: u32,
    withheld: Vec<WithheldTool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Pods>,
    usage: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_digest: Option<String>,
    conditions: Vec<ErrorStatus>,
}

/// A surface that the agent's spec declares.
#[derive(Debug, Serialize)]
struct DeclaredSurface {
    name: String,
    namespace: String,
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
}

#[derive(Debug, Serialize)]
struct WithheldTool {
    name: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct ErrorStatus {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    since: Time,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallsLine {
    namespace: String,
    name: String,
    #[serde(flatten)]
    usage: Counts,
    /// The latest calls, if one agent was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latest: Vec<CallLine>,
}

/// A call, as the agent's mediator reported it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallLine {
    pod: String,
    /// `ok`, or the error code that the model read.
    outcome: String,
    #[serde(flatten)]
    call: RecentCall,
}

impl CallLine {
    pub fn of(known: KnownCall) -> Self {
        let KnownCall { pod, mut call } = known;
        Self {
            pod,
            outcome: call.code.take().unwrap_or_else(|| "ok".to_owned()),
            call,
        }
    }

    pub fn tool(&self) -> &str {
        &self.call.tool
    }
}

/// A call, and whether the agent has its tool now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallDetails {
    call: CallLine,
    /// Whether a rule of the tool has the digest of the rule that allowed the call. Missing if the
    /// call met no conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_rule: Option<bool>,
    /// The tool as the agent has it now, or why it has not.
    now: ToolExplanation,
}

impl CallDetails {
    pub fn new(call: CallLine, now: ToolExplanation) -> Self {
        let mut rules = now.how.iter().flat_map(|how| &how.rules);
        let rule = call.call.rule.as_ref();
        let same_rule = rule.map(|rule| rules.any(|it| it.digest == *rule));
        Self {
            call,
            same_rule,
            now,
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    requests: u64,
    rounds: u64,
    calls: u64,
    failed: u64,
    denied: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_call: Option<String>,
    /// Time at which counting began.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
}

impl Facts {
    pub fn line(&self) -> AgentLine {
        let status = &self.status;
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        let (ready, reason) = match ready {
            Some(found) => (&*found.status, &*found.reason),
            None => ("Unknown", "NotCompiledYet"),
        };
        AgentLine {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            mode: status.mode,
            tools: status.tool_count.unwrap_or(0),
            read_only: status.read_only_count.unwrap_or(0),
            withheld: status.withheld_count.unwrap_or(0),
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            pods: status.pods.as_ref().map(pods),
            last_call: self.usage.last_call.clone(),
            problem: self.agent.as_ref().err().cloned(),
        }
    }

    pub fn whole(&self) -> AgentDetails {
        let status = self.status.clone();
        let declared = self.agent.iter().flat_map(|agent| &agent.spec.surfaces);
        AgentDetails {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            problem: self.agent.as_ref().err().cloned(),
            mode: status.mode,
            surfaces: declared
                .map(|entry| DeclaredSurface {
                    name: entry.name.clone(),
                    namespace: entry
                        .namespace
                        .clone()
                        .unwrap_or_else(|| self.key.namespace.clone()),
                    alias: entry.alias.clone(),
                })
                .collect(),
            tool_count: status.tool_count.unwrap_or(0),
            tools: status.tools,
            feed_count: status.feed_count.unwrap_or(0),
            feeds: status.feeds,
            withheld_count: status.withheld_count.unwrap_or(0),
            withheld: status
                .withheld
                .into_iter()
                .map(|withheld| WithheldTool {
                    name: withheld.name,
                    reason: withheld.reason,
                })
                .collect(),
            pods: status.pods.as_ref().map(pods),
            usage: self.counts(),
            manifest_digest: status.manifest_digest,
            conditions: status
                .conditions
                .into_iter()
                .map(|condition| ErrorStatus {
                    kind: condition.type_,
                    status: condition.status,
                    reason: condition.reason,
                    message: condition.message,
                    since: condition.last_transition_time,
                })
                .collect(),
        }
    }

    /// `latest`: the agent's calls, the latest first.
    pub fn calls(&self, latest: Vec<KnownCall>) -> CallsLine {
        CallsLine {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            usage: self.counts(),
            latest: latest.into_iter().map(CallLine::of).collect(),
        }
    }

    fn counts(&self) -> Counts {
        let usage = self.usage.clone();
        Counts {
            requests: usage.requests,
            rounds: usage.rounds,
            calls: usage.calls,
            failed: usage.failed,
            denied: usage.denied,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            last_call: usage.last_call,
            since: self
                .status
                .usage
                .as_ref()
                .and_then(|usage| usage.since.clone()),
        }
    }
}

fn pods(status: &PodsStatus) -> Pods {
    Pods {
        running: status.running,
        in_force: status.in_force,
        stale: status.stale.clone(),
    }
}

/// Returns a page of the agents, which must be sorted by name, and the position of the next page.
pub fn by_name(
    agents: impl IntoIterator<Item = ObjectRef>,
    page: &Page,
) -> (Vec<ObjectRef>, Option<String>) {
    let after = page.after.as_deref().and_then(reference);
    let rest = agents
        .into_iter()
        .filter(|agent| after.as_ref().is_none_or(|after| agent > after));
    part(rest, page, ToString::to_string)
}

/// Returns a page of the agents sorted by last call, latest first, and the position of the next
/// page. An agent that calls a tool between two pages moves to the front and is not listed again.
pub fn by_call(
    last_calls: impl IntoIterator<Item = (ObjectRef, String)>,
    page: &Page,
) -> (Vec<ObjectRef>, Option<String>) {
    // Times in RFC 3339 and UTC can be sorted as text.
    let order = |(agent, at): &(ObjectRef, String)| (std::cmp::Reverse(at.clone()), agent.clone());
    let mut calls: Vec<(ObjectRef, String)> = last_calls.into_iter().collect();
    calls.sort_by_cached_key(order);
    let after = page.after.as_deref().and_then(|text| {
        let (at, agent) = text.split_once(' ')?;
        Some(order(&(reference(agent)?, at.to_owned())))
    });
    let rest = calls
        .into_iter()
        .filter(|call| after.as_ref().is_none_or(|after| order(call) > *after));
    let (part, next) = part(rest, page, |(agent, at)| format!("{at} {agent}"));
    (part.into_iter().map(|(agent, _)| agent).collect(), next)
}

fn part<T>(
    rest: impl Iterator<Item = T>,
    page: &Page,
    position: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let mut part: Vec<T> = rest.take(page.limit + 1).collect();
    let more = part.len() > page.limit;
    part.truncate(page.limit);
    let next = part.last().filter(|_| more).map(position);
    (part, next)
}

/// Parses `NAMESPACE/NAME`.
fn reference(text: &str) -> Option<ObjectRef> {
    let (namespace, name) = text.split_once('/')?;
    Some(ObjectRef::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts() -> Facts {
        let agent = serde_json::from_value(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": "pond"},
            "spec": {"surfaces": [
                {"name": "fish", "secretKeyRef": {"name": "fish-creds", "key": "token"}},
                {"name": "news", "namespace": "lake", "as": "papers"},
            ]},
        }))
        .expect("an agent");
        let status = serde_json::from_value(json!({
            "mode": "Mediated", "toolCount": 1, "readOnlyCount": 1, "withheldCount": 1,
            "tools": [{
                "name": "fish.list", "tier": "ReadOnly", "credential": "PerAgent",
                "grant": {"kind": "ToolGrant", "name": "reads", "namespace": "pond"},
            }],
            "withheld": [{"name": "papers.*", "reason": "ConsentMissing", "message": "long"}],
            "manifestDigest": "m1", "credentialsRevision": "c1",
            "pods": {"running": 2, "inForce": 1, "stale": ["otter-2"]},
            "usage": {
                "requests": 0, "rounds": 0, "calls": 0, "failed": 0, "denied": 0,
                "promptTokens": 0, "completionTokens": 0, "since": "2026-01-01T00:00:00Z",
            },
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "PodsStale", "message": "one is",
                "lastTransitionTime": "2026-01-02T00:00:00Z",
            }],
        }))
        .expect("a status");
        Facts {
            key: ObjectRef::new("pond", "otter"),
            agent: Ok(Arc::new(agent)),
            status,
            usage: Usage {
                requests: 1,
                rounds: 2,
                calls: 3,
                failed: 4,
                denied: 5,
                prompt_tokens: 6,
                completion_tokens: 7,
                last_call: Some("2026-01-03T00:00:00Z".to_owned()),
            },
        }
    }

    #[track_caller]
    fn check(answer: &impl Serialize, expected: serde_json::Value) {
        let found = serde_json::to_value(answer).expect("JSON");
        assert_eq!(found, expected);
    }

    #[test]
    fn answers_contain_the_status_and_the_reported_usage() {
        let counts = json!({
            "requests": 1, "rounds": 2, "calls": 3, "failed": 4, "denied": 5,
            "promptTokens": 6, "completionTokens": 7,
            "lastCall": "2026-01-03T00:00:00Z", "since": "2026-01-01T00:00:00Z",
        });
        check(
            &facts().whole(),
            json!({
                "namespace": "pond", "name": "otter", "mode": "Mediated",
                "surfaces": [
                    {"name": "fish", "namespace": "pond"},
                    {"name": "news", "namespace": "lake", "as": "papers"},
                ],
                "toolCount": 1,
                "tools": [{
                    "name": "fish.list", "tier": "ReadOnly", "credential": "PerAgent",
                    "grant": {"kind": "ToolGrant", "name": "reads", "namespace": "pond"},
                }],
                "feedCount": 0, "feeds": [],
                "withheldCount": 1,
                "withheld": [{"name": "papers.*", "reason": "ConsentMissing"}],
                "pods": {"running": 2, "inForce": 1, "stale": ["otter-2"]},
                "usage": counts, "manifestDigest": "m1",
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "PodsStale",
                    "message": "one is", "since": "2026-01-02T00:00:00Z",
                }],
            }),
        );
        check(
            &facts().line(),
            json!({
                "namespace": "pond", "name": "otter", "mode": "Mediated", "tools": 1,
                "readOnly": 1, "withheld": 1, "ready": "False", "reason": "PodsStale",
                "pods": {"running": 2, "inForce": 1, "stale": ["otter-2"]},
                "lastCall": "2026-01-03T00:00:00Z",
            }),
        );
        let mut line = json!({"namespace": "pond", "name": "otter"});
        let line_fields = line.as_object_mut().expect("an object");
        line_fields.extend(counts.as_object().expect("an object").clone());
        check(&facts().calls(Vec::new()), line.clone());
        let call = json!({
            "callId": "r1-1-0", "at": "2026-01-03T00:00:00Z", "tool": "fish.list",
            "executed": false, "latencyMs": 3, "code": "permission_denied",
        });
        let known = KnownCall {
            pod: "otter-0".to_owned(),
            call: serde_json::from_value(call).expect("a call"),
        };
        line["latest"] = json!([{
            "pod": "otter-0", "outcome": "permission_denied", "callId": "r1-1-0",
            "at": "2026-01-03T00:00:00Z", "tool": "fish.list", "executed": false, "latencyMs": 3,
        }]);
        check(&facts().calls(vec![known]), line);
    }

    #[test]
    fn the_answer_about_an_undecodable_agent_states_the_problem() {
        let broken = Facts {
            agent: Err("line 1".to_owned()),
            status: AgentStatus::default(),
            usage: Usage::default(),
            ..facts()
        };
        check(
            &broken.line(),
            json!({
                "namespace": "pond", "name": "otter", "tools": 0, "readOnly": 0, "withheld": 0,
                "ready": "Unknown", "reason": "NotCompiledYet", "problem": "line 1",
            }),
        );
    }

    #[test]
    fn continue_is_the_first_field_of_a_list() {
        let listed = AgentPage {
            next: Some("pond/otter".to_owned()),
            agents: vec![facts().line()],
        };
        let text = serde_json::to_string(&listed).expect("JSON");
        assert!(text.starts_with(r#"{"continue":"pond/otter","#), "{text}");
    }

    /// Reads all pages in order.
    fn walk(
        limit: usize,
        list: impl Fn(&Page) -> (Vec<ObjectRef>, Option<String>),
    ) -> Vec<Vec<String>> {
        let mut parts = Vec::new();
        let mut after = None;
        loop {
            let (part, next) = list(&Page { limit, after });
            parts.push(part.iter().map(ToString::to_string).collect());
            match next {
                Some(next) => after = Some(next),
                None => return parts,
            }
        }
    }

    #[test]
    fn pages_have_no_gap_and_no_repetition() {
        let names = ["lake/heron", "pond/newt", "pond/otter"];
        let agents = || names.iter().filter_map(|name| reference(name));
        let walked = walk(2, |page| by_name(agents(), page));
        assert_eq!(walked, [&names[..2], &names[2..]]);
        assert_eq!(walk(3, |page| by_name(agents(), page)), [names]);

        let times = [
            "2026-01-02T00:00:00Z",
            "2026-01-03T00:00:00Z",
            "2026-01-02T00:00:00Z",
        ];
        let calls = || agents().zip(times.map(str::to_owned));
        let walked = walk(1, |page| by_call(calls(), page));
        assert_eq!(walked, [["pond/newt"], ["lake/heron"], ["pond/otter"]]);
        assert_eq!(
            walk(9, |page| by_call(calls(), page)).concat(),
            walked.concat()
        );
        // An invalid position counts as the beginning.
        let page = Page {
            limit: 1,
            after: Some("nonsense".to_owned()),
        };
        assert_eq!(
            by_name(agents(), &page).0,
            [ObjectRef::new("lake", "heron")]
        );
    }
}
