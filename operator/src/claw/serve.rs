//! Serves claw-api's requests: authenticates the caller, checks its grant, answers.
//!
//! Not here: TLS and the bounds of connections (the crate's `listen`). No request has a body, so no
//! body is read. Invariant: without a valid token, every request gets the same answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use toolcrib_bounds::headers::bearer;
use toolcrib_compile::{ObjectRef, ToolExplanation};

use super::ClawScope;
use super::answers::{
    AgentDetails, AgentLine, AgentPage, CallDetails, CallLine, CallsLine, Facts, by_call, by_name,
};
use super::tokens::{Caller, SHORTEST_TOKEN, TokenOwner, Tokens};
use super::verbs::{Question, ResourcePath, Verb};
use crate::leadership::Leadership;
use crate::link::state as link;
use crate::listen::{Bounds, Visitor};
use crate::metrics::{Metrics, RequestLabels};
use crate::objects::store::StoreObject;
use crate::objects::stores::Stores;

/// Bounds of claw-api's listener: a mediator keeps one connection, and few agents audit others.
pub const BOUNDS: Bounds = Bounds {
    known: 256,
    known_of_one_address: 64,
    strangers: 256,
    strangers_of_one_address: 32,
    introduction: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    // No request may have a body. A body up to this size is discarded, so that its sender can read
    // the error.
    head: 64 * 1024,
    lifetime: Some(Duration::from_secs(300)),
};
/// Limit of answers that are built at the same time: each takes milliseconds of CPU time from the
/// reconcilers.
const AT_ONCE: usize = 4;
/// Timeout of waiting for one of the [`AT_ONCE`] permits.
const QUEUE: Duration = Duration::from_secs(2);
/// Timeout of building an answer, which may have to read a ConfigMap.
const ANSWER: Duration = Duration::from_secs(10);

/// claw-api, and the parts of the leader that it reads.
pub struct ClawApi {
    pub leadership: Arc<Leadership>,
    pub stores: Stores,
    pub tokens: Arc<Tokens>,
    pub link: Arc<link::State>,
    pub metrics: Metrics,
    pub scope: ClawScope,
    pub explain: Box<Explain>,
}

/// Explains why an agent has a tool or lacks it; `None` if the agent does not exist or cannot be
/// decoded.
pub type Explain =
    dyn Fn(ObjectRef, String) -> BoxFuture<'static, Option<ToolExplanation>> + Send + Sync;

/// State of the listener.
struct Listener {
    api: ClawApi,
    turns: Semaphore,
}

impl ClawApi {
    pub fn router(self) -> Router {
        let listener = Listener {
            api: self,
            turns: Semaphore::new(AT_ONCE),
        };
        Router::new()
            .fallback(request)
            .with_state(Arc::new(listener))
    }
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// This replica does not lead, or its caches are not synced yet.
    NotReady,
    NoToken,
    NotGranted(Verb),
    NoSuchPath,
    NotGet,
    Body,
    Argument(String),
    NoSuchAgent(ObjectRef),
    NoSuchCall(ObjectRef),
    Unreadable(ObjectRef, String),
    Busy,
    TooSlow,
}

impl Refusal {
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            Self::NoToken => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::NotGranted(_) => (StatusCode::FORBIDDEN, "not_granted"),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, "no_such_verb"),
            Self::NotGet => (StatusCode::METHOD_NOT_ALLOWED, "not_get"),
            Self::Body => (StatusCode::PAYLOAD_TOO_LARGE, "body_not_read"),
            Self::Argument(_) => (StatusCode::BAD_REQUEST, "invalid_argument"),
            Self::NoSuchAgent(_) => (StatusCode::NOT_FOUND, "no_such_agent"),
            Self::NoSuchCall(_) => (StatusCode::NOT_FOUND, "no_such_call"),
            Self::Unreadable(..) => (StatusCode::CONFLICT, "agent_unreadable"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::TooSlow => (StatusCode::SERVICE_UNAVAILABLE, "too_slow"),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::NotReady => {
                "this replica is not the leader, or has just become it: retry in a few seconds"
                    .to_owned()
            }
            Self::NoToken => format!(
                "the token belongs to no Agent: give the Agent a Secret of its own for claw-api, with a token of at least {SHORTEST_TOKEN} characters that no other Agent uses"
            ),
            Self::NotGranted(verb) => format!(
                "{} is not granted to this agent: allow it in a ToolGrant of the agent's namespace",
                verb.name()
            ),
            Self::NoSuchPath => format!(
                "unknown path: use one of the verbs {}",
                Verb::ALL.map(Verb::name).join(", ")
            ),
            Self::NotGet => "method not allowed: use GET".to_owned(),
            Self::Body => {
                "no verb takes a body: put the arguments into the path and the query".to_owned()
            }
            Self::Argument(why) => why.clone(),
            Self::NoSuchAgent(agent) => format!(
                "agent {agent} not found, or not visible to you: {} lists the agents that you may ask about",
                Verb::ListAgents.name()
            ),
            Self::NoSuchCall(agent) => format!(
                "the call is not among the last ones of agent {agent} that its pods have reported: {} lists them",
                Verb::RecentCalls.name()
            ),
            Self::Unreadable(agent, why) => {
                format!("the operator cannot decode agent {agent}: {why}")
            }
            Self::Busy | Self::TooSlow => {
                "the operator is overloaded: retry in a few seconds".to_owned()
            }
        }
    }
}

/// The body of a response.
#[derive(Serialize)]
#[serde(untagged)]
enum ResponseBody {
    Agents(AgentPage<AgentLine>),
    Agent(Box<AgentDetails>),
    Tool(Box<ToolExplanation>),
    Calls(AgentPage<CallsLine>),
    Call(Box<CallDetails>),
}

async fn request(State(listener): State<Arc<Listener>>, request: Request) -> Response {
    let api = &listener.api;
    let visitor = Visitor::of(&request);
    let (parts, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    drop(body);
    let place = ResourcePath::of(parts.uri.path());
    let result = api
        .answer(&parts, place, has_body, visitor.as_ref(), &listener.turns)
        .await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(refusal) => refusal.code().1,
    };
    let verb = place.map_or("none", |place| place.verb().name());
    api.metrics
        .claw_requests
        .get_or_create(&RequestLabels { verb, outcome })
        .inc();
    match result {
        Ok(answer) => ([(header::CACHE_CONTROL, "no-store")], axum::Json(answer)).into_response(),
        Err(refusal) => {
            let (status, code) = refusal.code();
            let body = json!({"error": {"code": code, "message": refusal.message()}});
            // Closes the connection: the Service may lead to another replica by now, and a body
            // that was sent is not read.
            let close = [(header::CONNECTION, "close")];
            (status, close, axum::Json(body)).into_response()
        }
    }
}

impl ClawApi {
    async fn answer(
        &self,
        parts: &Parts,
        place: Option<ResourcePath<'_>>,
        has_body: bool,
        visitor: Option<&Visitor>,
        turns: &Semaphore,
    ) -> Result<ResponseBody, Refusal> {
        // Only the leader knows the current grants.
        if !self.leadership.holds() || self.stores.synced().is_none() {
            return Err(Refusal::NotReady);
        }
        let values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let token = bearer(values.map(HeaderValue::as_bytes)).ok_or(Refusal::NoToken)?;
        let caller = match self.tokens.owner(token) {
            TokenOwner::Agent(caller) => caller,
            TokenOwner::None => return Err(Refusal::NoToken),
            TokenOwner::NotKnownYet => return Err(Refusal::NotReady),
        };
        if visitor.is_some_and(|visitor| !visitor.known()) {
            return Err(Refusal::Busy);
        }
        if has_body {
            return Err(Refusal::Body);
        }
        let place = place.ok_or(Refusal::NoSuchPath)?;
        if parts.method != Method::GET {
            return Err(Refusal::NotGet);
        }
        if !caller.verbs.contains(&place.verb()) {
            return Err(Refusal::NotGranted(place.verb()));
        }
        let question = Question::read(place, parts.uri.query()).map_err(Refusal::Argument)?;
        let turn = tokio::time::timeout(QUEUE, turns.acquire());
        let Ok(Ok(_turn)) = turn.await else {
            return Err(Refusal::Busy);
        };
        let answer = tokio::time::timeout(ANSWER, self.look_up(&caller, question));
        answer.await.unwrap_or(Err(Refusal::TooSlow))
    }

    async fn look_up(&self, caller: &Caller, question: Question) -> Result<ResponseBody, Refusal> {
        match question {
            Question::ListAgents { namespace, page } => {
                let seen = self.seen(caller, namespace);
                let (agents, next) = by_name(self.agents(&seen), &page);
                let agents = self.facts(&agents).iter().map(Facts::line).collect();
                Ok(ResponseBody::Agents(AgentPage { agents, next }))
            }
            Question::GetAgent { namespace, agent } => {
                let key = self.one(caller, namespace, agent)?;
                let facts = self.facts(std::slice::from_ref(&key)).pop();
                let facts = facts.ok_or(Refusal::NoSuchAgent(key))?;
                Ok(ResponseBody::Agent(Box::new(facts.whole())))
            }
            Question::ExplainTool {
                namespace,
                agent,
                tool,
            } => {
                let key = self.one(caller, namespace, agent)?;
                match (self.explain)(key.clone(), tool).await {
                    Some(explained) => Ok(ResponseBody::Tool(Box::new(explained))),
                    None => Err(self.unreadable(key)),
                }
            }
            Question::ExplainCall {
                namespace,
                agent,
                call,
            } => {
                let key = self.one(caller, namespace, agent)?;
                let mut known = self.link.calls().of(&key).into_iter();
                let known = known.find(|it| it.call.call_id == call);
                let line = known.map(CallLine::of);
                let line = line.ok_or_else(|| Refusal::NoSuchCall(key.clone()))?;
                match (self.explain)(key.clone(), line.tool().to_owned()).await {
                    Some(now) => Ok(ResponseBody::Call(Box::new(CallDetails::new(line, now)))),
                    None => Err(self.unreadable(key)),
                }
            }
            Question::RecentCalls {
                namespace,
                agent,
                page,
            } => {
                let seen = self.seen(caller, namespace);
                let agents: BTreeSet<ObjectRef> = self
                    .agents(&seen)
                    .into_iter()
                    .filter(|key| agent.as_ref().is_none_or(|agent| *agent == key.name))
                    .collect();
                let mut last_calls = self.link.reports().last_calls();
                last_calls.retain(|(agent, _)| agents.contains(agent));
                let (agents, next) = by_call(last_calls, &page);
                // The calls of all agents would make long answers.
                let latest = |facts: &Facts| match agent {
                    Some(_) => self.link.calls().of(&facts.key),
                    None => Vec::new(),
                };
                let facts = self.facts(&agents);
                let agents = facts.iter().map(|it| it.calls(latest(it))).collect();
                Ok(ResponseBody::Calls(AgentPage { agents, next }))
            }
        }
    }

    /// The agents that the caller asks for, limited to those it may see.
    fn seen(&self, caller: &Caller, namespace: Option<String>) -> AgentScope {
        let own = &caller.agent.namespace;
        match (self.scope, namespace) {
            (ClawScope::Cluster, None) => AgentScope::All,
            (ClawScope::Cluster, Some(namespace)) => AgentScope::Namespace(namespace),
            (ClawScope::Namespace, None) => AgentScope::Namespace(own.clone()),
            (ClawScope::Namespace, Some(namespace)) if namespace == *own => {
                AgentScope::Namespace(namespace)
            }
            (ClawScope::Namespace, Some(_)) => AgentScope::Nobody,
        }
    }

    /// The agents in `seen`, sorted by name.
    fn agents(&self, seen: &AgentScope) -> Vec<ObjectRef> {
        let agents = &self.stores.agents;
        let stored = match seen {
            AgentScope::All => agents.all(),
            AgentScope::Namespace(namespace) => agents.namespace(namespace),
            AgentScope::Nobody => Vec::new(),
        };
        stored.iter().map(|agent| named(&**agent)).collect()
    }

    /// The key of the named agent, if the caller may see it. The namespace defaults to the caller's.
    fn one(
        &self,
        caller: &Caller,
        namespace: Option<String>,
        agent: String,
    ) -> Result<ObjectRef, Refusal> {
        let namespace = namespace.unwrap_or_else(|| caller.agent.namespace.clone());
        let key = ObjectRef::new(namespace.clone(), agent);
        match self.seen(caller, Some(namespace)) {
            AgentScope::All | AgentScope::Namespace(_) if self.stored(&key) => Ok(key),
            AgentScope::All | AgentScope::Namespace(_) | AgentScope::Nobody => {
                Err(Refusal::NoSuchAgent(key))
            }
        }
    }

    fn stored(&self, key: &ObjectRef) -> bool {
        let agents = &self.stores.agents;
        agents.get(&key.namespace, &key.name).is_some()
    }

    /// The facts of those `agents` that still exist.
    fn facts(&self, agents: &[ObjectRef]) -> Vec<Facts> {
        let mut usages = self.link.reports().usages(agents);
        agents
            .iter()
            .filter_map(|key| {
                let stored = self.stores.agents.get(&key.namespace, &key.name)?;
                let agent = stored.object.as_ref().map(Arc::clone);
                Some(Facts {
                    key: key.clone(),
                    agent: agent.map_err(|why| why.reason.clone()),
                    status: stored.status().unwrap_or_default(),
                    usage: usages.remove(key).unwrap_or_default(),
                })
            })
            .collect()
    }

    fn unreadable(&self, key: ObjectRef) -> Refusal {
        let stored = self.stores.agents.get(&key.namespace, &key.name);
        match stored.as_deref().map(|stored| &stored.object) {
            Some(Err(why)) => Refusal::Unreadable(key, why.reason.clone()),
            // The agent was deleted meanwhile, or a store that it needs is being listed again.
            Some(Ok(_)) | None => Refusal::NoSuchAgent(key),
        }
    }
}

fn named(object: &impl StoreObject) -> ObjectRef {
    let id = object.id();
    ObjectRef::new(id.namespace, id.name)
}

/// The agents that a request reads.
#[derive(Debug, PartialEq, Eq)]
enum AgentScope {
    All,
    Namespace(String),
    Nobody,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metrics::{CLAW_OUTCOMES, CLAW_VERBS};

    /// Returns each refusal once. The match makes a missing refusal a compile error.
    fn refusals() -> [Refusal; 12] {
        let next = |refusal: &Refusal| match refusal {
            Refusal::NotReady => Refusal::NoToken,
            Refusal::NoToken => Refusal::NotGranted(Verb::GetAgent),
            Refusal::NotGranted(_) => Refusal::NoSuchPath,
            Refusal::NoSuchPath => Refusal::NotGet,
            Refusal::NotGet => Refusal::Body,
            Refusal::Body => Refusal::Argument("why".to_owned()),
            Refusal::Argument(_) => Refusal::NoSuchAgent(ObjectRef::new("pond", "otter")),
            Refusal::NoSuchAgent(agent) => Refusal::NoSuchCall(agent.clone()),
            Refusal::NoSuchCall(agent) => Refusal::Unreadable(agent.clone(), "why".to_owned()),
            Refusal::Unreadable(..) => Refusal::Busy,
            Refusal::Busy => Refusal::TooSlow,
            Refusal::TooSlow => Refusal::NotReady,
        };
        let mut refusal = Refusal::NotReady;
        std::array::from_fn(|_| {
            let following = next(&refusal);
            std::mem::replace(&mut refusal, following)
        })
    }

    #[test]
    fn answers_metrics_and_docs_use_the_same_codes() {
        let codes = refusals().map(|refusal| refusal.code().1);
        assert_eq!(["ok"], CLAW_OUTCOMES[..1]);
        assert_eq!(codes, CLAW_OUTCOMES[1..]);
        let verbs = Verb::ALL.map(Verb::name);
        assert_eq!([&verbs[..], &["none"]].concat(), CLAW_VERBS);

        let page = include_str!("../../../docs/claw-api.md");
        let table = page
            .split_once("| code | status | |\n|---|---|---|\n")
            .and_then(|(_, rest)| rest.split_once("\n\n"))
            .map(|(rows, _)| rows)
            .expect("the table of errors");
        let mut documented = BTreeSet::new();
        for row in table.lines() {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let codes: Vec<&str> = cells[0]
                .split(", ")
                .map(|it| it.trim_matches('`'))
                .collect();
            let statuses: Vec<&str> = cells[1].split(", ").collect();
            // The row has one status for all its codes, or one for each code.
            for (at, code) in codes.into_iter().enumerate() {
                let status = statuses.get(at).unwrap_or(&statuses[0]);
                documented.insert((code.to_owned(), (*status).to_owned()));
            }
        }
        let served: BTreeSet<_> = refusals()
            .iter()
            .map(|refusal| {
                let (status, code) = refusal.code();
                (code.to_owned(), status.as_str().to_owned())
            })
            .collect();
        assert_eq!(served, documented);
    }
}
