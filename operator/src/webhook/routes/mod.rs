//! The routes for admission reviews and for status.
//!
//! A request at a path that no configuration names gets 404, and its body is not read: it does not
//! come from the API server. The body of a review is read first, within a bound for all bodies
//! together; then the review waits for a permit. So a review that gets no permit is still answered
//! under its uid. The API server ignores an answer without a uid and admits the pod without its
//! mediator; the guard then denies the pod with a misleading message.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use toolcrib_compile::Settings;
use toolcrib_compile::inject::{InjectConfig, Injection, agent_of, inject};
use toolcrib_compile::{names, near};
use toolcrib_crds::Agent;

use super::agents::{Agents, Lookup};
use super::body::{Bodies, BodyRead};
use super::certificate::Certificate;
use super::meter::{Meter, Outcome};
use super::paths::{Paths, Question};
use super::review::{AdmissionResponse, Request, Review};
use super::serve::Phase;
use super::validate::validate;
use crate::listen::Visitor;

/// Limit of pod admissions that are decided at the same time.
const MAX_ADMISSIONS: usize = 64;
/// Limit of validations at the same time. Each reads other objects and compiles agents twice;
/// people apply such objects, not machines.
const MAX_VALIDATIONS: usize = 8;
/// Time that a review waits for a permit; less than the webhook's timeout.
const QUEUE_TIME: Duration = Duration::from_secs(2);
/// Time that the API server waits for an answer, if the query does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between the answer and the timeout of the API server.
const SPARE: Duration = Duration::from_millis(500);

/// The state shared by all admissions. Cheap to clone.
#[derive(Clone)]
pub struct App {
    client: Client,
    agents: Agents,
    paths: Paths,
    bodies: Arc<Bodies>,
    config: Arc<InjectConfig>,
    settings: Arc<Settings>,
    agent_wait: Duration,
    meter: Meter,
    turns: Arc<Semaphore>,
    validations: Arc<Semaphore>,
}

impl App {
    pub fn new(
        client: Client,
        agents: Agents,
        paths: Paths,
        config: InjectConfig,
        settings: Settings,
        agent_wait: Duration,
        meter: Meter,
    ) -> Self {
        Self {
            client,
            agents,
            paths,
            bodies: Arc::default(),
            config: Arc::new(config),
            settings: Arc::new(settings),
            agent_wait,
            meter,
            turns: Arc::new(Semaphore::new(MAX_ADMISSIONS)),
            validations: Arc::new(Semaphore::new(MAX_VALIDATIONS)),
        }
    }
}

/// The routes that the API server calls.
pub fn admission(app: App) -> Router {
    Router::new().fallback(admit).with_state(app)
}

#[derive(Clone)]
struct Status {
    app: App,
    certificate: Arc<Certificate>,
    phase: watch::Receiver<Phase>,
}

/// The routes for the kubelet and for a scraper.
pub fn status(app: App, certificate: Arc<Certificate>, phase: watch::Receiver<Phase>) -> Router {
    Router::new()
        // Alive as long as the runtime answers.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Status {
            app,
            certificate,
            phase,
        })
}

async fn ready(State(status): State<Status>) -> impl IntoResponse {
    let missing = if *status.phase.borrow() != Phase::Serving {
        "leaving"
    } else if !status.certificate.loaded() {
        "no certificate yet: the controller writes it"
    } else if !status.app.agents.synced() {
        "Agents are not listed yet"
    } else if !status.app.paths.known() {
        "the webhook configurations are not read yet"
    } else {
        return (StatusCode::OK, "ok");
    };
    (StatusCode::SERVICE_UNAVAILABLE, missing)
}

async fn metrics(State(status): State<Status>) -> Response {
    let meter = &status.app.meter;
    meter
        .agents
        .set(i64::try_from(status.app.agents.len()).unwrap_or(i64::MAX));
    match meter.text() {
        Ok(text) => (
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(error) => {
            tracing::error!(%error, "encoding metrics failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn admit(State(app): State<App>, request: HttpRequest) -> Response {
    let started = Instant::now();
    let visitor = Visitor::of(&request);
    let (parts, body) = request.into_parts();
    let questions = app.paths.questions(parts.uri.path()).await;
    let (true, [first, ..]) = (parts.method == Method::POST, &*questions) else {
        app.meter.admitted(Outcome::Stranger);
        return closed(StatusCode::NOT_FOUND);
    };
    if visitor.is_some_and(|visitor| !visitor.known()) {
        app.meter.admitted(Outcome::Busy);
        return closed(StatusCode::SERVICE_UNAVAILABLE);
    }
    let until = started + review_timeout(parts.uri.query()).saturating_sub(SPARE);
    let (uid, answer, outcome) = answer(&app, *first, questions.len() > 1, body, until).await;
    app.meter.admitted(outcome);
    app.meter.seconds.observe(started.elapsed().as_secs_f64());
    axum::Json(answer.into_review(&uid)).into_response()
}

/// Answers with a status and closes the connection, because the body was not read.
fn closed(status: StatusCode) -> Response {
    (status, [(header::CONNECTION, "close")]).into_response()
}

/// Returns how long the API server waits, from the query, as in `timeout=5s`.
fn review_timeout(query: Option<&str>) -> Duration {
    query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| {
            pair.strip_prefix("timeout=")?
                .strip_suffix('s')?
                .parse()
                .ok()
        })
        .map_or(DEFAULT_TIMEOUT, Duration::from_secs)
}

/// Answers a review. `either`: the path is that of both webhooks, so the object's kind decides.
async fn answer(
    app: &App,
    question: Question,
    either: bool,
    body: Body,
    until: Instant,
) -> (String, AdmissionResponse, Outcome) {
    let unread = |why: &str| {
        tracing::warn!(why, "not an AdmissionReview");
        (
            String::new(),
            AdmissionResponse::Denied(format!("not an AdmissionReview: {why}")),
            Outcome::Malformed,
        )
    };
    // The buffer space stays reserved until the answer: the decoded review is larger than its body.
    let (read, _room) = app.bodies.read(body).await;
    let body = match read {
        BodyRead::Whole(body) => body,
        BodyRead::TooLarge { uid } => {
            let (answer, outcome) = too_large(question);
            tracing::warn!(?question, "review over 3 MiB not read");
            return (uid.unwrap_or_default(), answer, outcome);
        }
        BodyRead::Busy { uid } => {
            let (answer, outcome) = busy(question);
            return (uid.unwrap_or_default(), answer, outcome);
        }
        BodyRead::Failed(why) => return unread(why),
    };
    let review = match Review::read(&body) {
        Ok(review) => review,
        // Only the position: serde's text may quote values of the request.
        Err(error) => {
            return unread(&format!("line {} column {}", error.line(), error.column()));
        }
    };
    drop(body);
    let question = match either && review.request.kind.kind != "Pod" {
        true => Question::Validate,
        false => question,
    };
    let decided = tokio::time::timeout_at(until, turn(app, question, &review.request));
    let (answer, outcome) = decided.await.unwrap_or_else(|_| busy(question));
    (review.request.uid, answer, outcome)
}

/// Waits for a permit, and decides the review.
async fn turn(app: &App, question: Question, request: &Request) -> (AdmissionResponse, Outcome) {
    // Separate semaphores, so that a flood of one kind of review does not delay the other.
    let turns = match question {
        Question::Inject => &app.turns,
        Question::Validate => &app.validations,
    };
    let Ok(Ok(_turn)) = tokio::time::timeout(QUEUE_TIME, turns.acquire()).await else {
        return busy(question);
    };
    match question {
        Question::Inject => decide(app, request).await,
        Question::Validate => validate(&app.client, &app.agents, &app.settings, request).await,
    }
}

/// The answer if there is no time to decide. A pod is denied with a retry, because the guard would
/// deny it without its mediator. An object of our kinds is admitted, because compile checks it.
fn busy(question: Question) -> (AdmissionResponse, Outcome) {
    tracing::warn!(?question, "review not decided in time");
    let answer = match question {
        Question::Inject => AdmissionResponse::Later(
            "toolcrib: too many pods are admitted at a time: try again in a moment".to_owned(),
        ),
        Question::Validate => AdmissionResponse::Warned(vec![
            "toolcrib: nothing was checked: too many objects are applied at a time; see its conditions"
                .to_owned(),
        ]),
    };
    (answer, Outcome::Busy)
}

/// The answer to a review over the limit. A pod is denied, because it would run without its
/// mediator. An object of our kinds is admitted: the change may make it smaller, and compile checks it.
fn too_large(question: Question) -> (AdmissionResponse, Outcome) {
    match question {
        Question::Inject => denied(
            Outcome::Malformed,
            "the pod is over 3 MiB as JSON, which no admission reads: make it smaller (large values belong into a ConfigMap or a volume)",
        ),
        Question::Validate => (
            AdmissionResponse::Warned(vec![
                "toolcrib: nothing was checked: over 3 MiB with its former version; see its conditions"
                    .to_owned(),
            ]),
            Outcome::Warned,
        ),
    }
}

/// Decodes the object of a request as a pod.
pub fn pod(request: &Request) -> serde_json::Result<Pod> {
    serde_json::from_str(request.object.as_ref().map_or("", |object| object.get()))
}

/// Answers with the patch that injects the mediator of this Agent.
pub fn injected(pod: &Pod, agent: &Agent, config: &InjectConfig) -> (AdmissionResponse, Outcome) {
    match inject(pod, agent, config) {
        Injection::Injected(patch) => (AdmissionResponse::Patched(patch), Outcome::Injected),
        Injection::AlreadyInjected => (AdmissionResponse::Allowed, Outcome::AlreadyInjected),
        Injection::Refused(refusal) => denied(Outcome::Refused, &refusal.to_string()),
    }
}

async fn decide(app: &App, request: &Request) -> (AdmissionResponse, Outcome) {
    if request.operation != "CREATE" {
        return (AdmissionResponse::Allowed, Outcome::Passed);
    }
    let pod = match pod(request) {
        Ok(pod) => pod,
        Err(error) => {
            tracing::warn!(
                namespace = request.namespace,
                line = error.line(),
                column = error.column(),
                "pod cannot be decoded"
            );
            return denied(
                Outcome::Malformed,
                "the object is not a pod that can be read",
            );
        }
    };
    let Some(name) = agent_of(&pod) else {
        return (AdmissionResponse::Allowed, Outcome::Passed);
    };
    let namespace = request.namespace.as_str();
    let (answer, outcome) = match app.agents.find(namespace, name, app.agent_wait).await {
        Lookup::Agent(agent) => injected(&pod, &agent, &app.config),
        Lookup::Undecodable => denied(
            Outcome::NoAgent,
            &format!(
                "Agent {name:?} of namespace {namespace:?} cannot be read as this release's kind, or takes too much memory; see its events"
            ),
        ),
        Lookup::Nothing => {
            let others = app.agents.of_namespace(namespace);
            let meant = near::other(name, others.iter().map(|agent| &*agent.name));
            denied(
                Outcome::NoAgent,
                &format!(
                    "there is no Agent {name:?} in namespace {namespace:?}{meant}: create it before the pod (`kubectl apply -f dir/` goes by file name, so number the files), correct the pod's label {label}, or take it off",
                    label = names::AGENT_LABEL
                ),
            )
        }
        Lookup::NotSynced => (
            AdmissionResponse::Later(
                "toolcrib: the webhook has just started and does not know the Agents yet: try again in a moment"
                    .to_owned(),
            ),
            Outcome::NotSynced,
        ),
    };
    tracing::info!(
        namespace,
        agent = name,
        pod = pod
            .metadata
            .name
            .as_deref()
            .or(pod.metadata.generate_name.as_deref())
            .unwrap_or_default(),
        outcome = ?outcome,
        why = match &answer {
            AdmissionResponse::Denied(why) | AdmissionResponse::Later(why) => Some(why.as_str()),
            AdmissionResponse::Allowed | AdmissionResponse::Warned(_) | AdmissionResponse::Patched(_) => None,
        },
        "pod reviewed"
    );
    (answer, outcome)
}

fn denied(outcome: Outcome, why: &str) -> (AdmissionResponse, Outcome) {
    (
        AdmissionResponse::Denied(format!("toolcrib: {why}")),
        outcome,
    )
}
