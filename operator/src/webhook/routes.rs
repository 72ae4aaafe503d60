//! One admission, and the status routes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use toolcrib_compile::inject::{InjectConfig, Injection, agent_of, inject};
use toolcrib_compile::names;

use super::agents::{Agents, Found};
use super::body::{self, Read};
use super::certificate::Certificate;
use super::meter::{Meter, Outcome};
use super::review::{Answer, Request, Review};
use super::serve::Phase;
use super::validate::validate;

/// How many admissions are worked on at a time: each may hold a body.
const MAX_ADMISSIONS: usize = 64;
/// Each reads other objects and compiles agents twice; people apply them, not machines.
const MAX_VALIDATIONS: usize = 8;
/// How long one waits for its turn; less than the webhook's timeout.
const QUEUE_TIME: Duration = Duration::from_secs(2);

/// What an admission needs. Cheap to clone.
#[derive(Clone)]
pub struct App {
    client: Client,
    agents: Agents,
    config: Arc<InjectConfig>,
    agent_wait: Duration,
    meter: Meter,
    turns: Arc<Semaphore>,
    validations: Arc<Semaphore>,
}

impl App {
    pub fn new(
        client: Client,
        agents: Agents,
        config: InjectConfig,
        agent_wait: Duration,
        meter: Meter,
    ) -> Self {
        Self {
            client,
            agents,
            config: Arc::new(config),
            agent_wait,
            meter,
            turns: Arc::new(Semaphore::new(MAX_ADMISSIONS)),
            validations: Arc::new(Semaphore::new(MAX_VALIDATIONS)),
        }
    }
}

/// The routes that the API server calls.
pub fn admission(app: App) -> Router {
    Router::new()
        .route("/inject", post(inject_route))
        .route("/validate", post(validate_route))
        .with_state(app)
}

#[derive(Clone)]
struct Status {
    app: App,
    certificate: Arc<Certificate>,
    phase: watch::Receiver<Phase>,
}

/// For the kubelet and a scraper.
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
            tracing::error!(%error, "metrics not encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// What a review is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Of a pod: with the mediator.
    Inject,
    /// Of an object of ours: whether, and what is to be said.
    Validate,
}

async fn inject_route(State(app): State<App>, request: HttpRequest) -> Response {
    admit(&app, Question::Inject, request).await
}

async fn validate_route(State(app): State<App>, request: HttpRequest) -> Response {
    admit(&app, Question::Validate, request).await
}

async fn admit(app: &App, question: Question, request: HttpRequest) -> Response {
    let started = Instant::now();
    let (uid, answer, outcome) = answer(app, question, request.into_body()).await;
    app.meter.admitted(outcome);
    app.meter.seconds.observe(started.elapsed().as_secs_f64());
    axum::Json(answer.into_review(&uid)).into_response()
}

async fn answer(app: &App, question: Question, body: Body) -> (String, Answer, Outcome) {
    let unread = |why: &str| {
        tracing::warn!(why, "not an AdmissionReview");
        (
            String::new(),
            Answer::Denied(format!("not an AdmissionReview: {why}")),
            Outcome::Malformed,
        )
    };
    // Apart, so that a flood of the one cannot hold up the other.
    let turns = match question {
        Question::Inject => &app.turns,
        Question::Validate => &app.validations,
    };
    let Ok(Ok(_turn)) = tokio::time::timeout(QUEUE_TIME, turns.acquire()).await else {
        return unread("too many admissions at a time");
    };
    let body = match body::read(body).await {
        Read::Whole(body) => body,
        Read::TooLarge { uid } => {
            let (answer, outcome) = too_large(question);
            tracing::warn!(?question, "a review of over 3 MiB");
            return (uid.unwrap_or_default(), answer, outcome);
        }
        Read::Failed(why) => return unread(why),
    };
    let review: Review = match serde_json::from_slice(&body) {
        Ok(review) => review,
        // Of the position only: the text may quote what was sent.
        Err(error) => {
            return unread(&format!("line {} column {}", error.line(), error.column()));
        }
    };
    let (answer, outcome) = match question {
        Question::Inject => decide(app, &review.request).await,
        Question::Validate => validate(&app.client, &app.agents, &review.request).await,
    };
    (review.request.uid, answer, outcome)
}

/// A pod would run without its mediator. An object of ours may be on its way to be smaller,
/// and compile looks at it again.
fn too_large(question: Question) -> (Answer, Outcome) {
    match question {
        Question::Inject => denied(
            Outcome::Malformed,
            "the pod is over 3 MiB as JSON, which no admission reads: make it smaller (large values belong into a ConfigMap or a volume)",
        ),
        Question::Validate => (
            Answer::Warned(vec![
                "toolcrib: nothing was checked: over 3 MiB with its former version; see its conditions"
                    .to_owned(),
            ]),
            Outcome::Warned,
        ),
    }
}

async fn decide(app: &App, request: &Request) -> (Answer, Outcome) {
    if request.operation != "CREATE" {
        return (Answer::Allowed, Outcome::Passed);
    }
    let text = request.object.as_ref().map_or("", |object| object.get());
    let pod: Pod = match serde_json::from_str(text) {
        Ok(pod) => pod,
        Err(error) => {
            tracing::warn!(
                namespace = request.namespace,
                line = error.line(),
                column = error.column(),
                "object is not a readable pod"
            );
            return denied(
                Outcome::Malformed,
                "the object is not a pod that can be read",
            );
        }
    };
    let Some(name) = agent_of(&pod) else {
        return (Answer::Allowed, Outcome::Passed);
    };
    let namespace = request.namespace.as_str();
    let (answer, outcome) = match app.agents.find(namespace, name, app.agent_wait).await {
        Found::Agent(agent) => match inject(&pod, &agent, &app.config) {
            Injection::Injected(patch) => (Answer::Patched(patch), Outcome::Injected),
            Injection::AlreadyInjected => (Answer::Allowed, Outcome::AlreadyInjected),
            Injection::Refused(refusal) => denied(Outcome::Refused, &refusal.to_string()),
        },
        Found::Undecodable => denied(
            Outcome::NoAgent,
            &format!(
                "Agent {name:?} of namespace {namespace:?} cannot be read as this release's kind; see its events"
            ),
        ),
        Found::Nothing => denied(
            Outcome::NoAgent,
            &format!(
                "there is no Agent {name:?} in namespace {namespace:?}: create it before the pod (`kubectl apply -f dir/` goes by file name, so number the files), or take the label {} off the pod",
                names::AGENT_LABEL
            ),
        ),
        Found::NotSynced => denied(
            Outcome::NotSynced,
            "the webhook has just started and does not know the Agents yet: try again in a moment",
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
            Answer::Denied(why) => Some(why.as_str()),
            Answer::Allowed | Answer::Warned(_) | Answer::Patched(_) => None,
        },
        "admission"
    );
    (answer, outcome)
}

fn denied(outcome: Outcome, why: &str) -> (Answer, Outcome) {
    (Answer::Denied(format!("toolcrib: {why}")), outcome)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};
    use toolcrib_compile::inject::{Allowances, DEFAULT_HISTORY_BYTES};
    use tower::ServiceExt;

    use super::super::agents::tests::{Fake, agent};
    use super::*;

    fn app(agents: Agents) -> App {
        let config = InjectConfig {
            image: "example.test/sidecar:7".to_owned(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            resources: Default::default(),
            history_bytes: DEFAULT_HISTORY_BYTES,
            keepalive: None,
            record_bodies: false,
            otlp_endpoint: None,
            metrics_port: None,
            allowances: Allowances::default(),
        };
        // An API server that nobody asks here.
        let client = Client::new(
            tower::service_fn(|_: HttpRequest<kube::client::Body>| async {
                Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
            }),
            "pond",
        );
        let wait = Duration::from_secs(2);
        App::new(client, agents, config, wait, Meter::default())
    }

    fn pod(labels: Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "generateName": "otter-", "labels": labels },
            "spec": { "containers": [{ "name": "runner", "image": "example.test/runner:1" }] },
        })
    }

    fn review(object: &Value) -> Vec<u8> {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u-7",
                "namespace": "pond",
                "operation": "CREATE",
                "object": object,
            },
        })
        .to_string()
        .into_bytes()
    }

    /// The response's part of the answer to `body`.
    async fn ask(app: &App, body: Vec<u8>) -> Value {
        ask_at(app, "/inject", body).await
    }

    async fn ask_at(app: &App, path: &str, body: Vec<u8>) -> Value {
        let request = HttpRequest::post(path).body(Body::from(body)).unwrap();
        let response = admission(app.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        review["response"].clone()
    }

    fn synced() -> App {
        let (agents, mut fake) = Fake::new();
        fake.list(&[agent("otter", "pond"), agent("heron", "lake")]);
        app(agents)
    }

    #[tokio::test]
    async fn a_labelled_pod_is_patched_and_then_let_pass() {
        let app = synced();
        let mut object = pod(json!({ "toolcrib.dev/agent": "otter" }));
        let response = ask(&app, review(&object)).await;
        assert_eq!(
            (&response["allowed"], &response["uid"]),
            (&json!(true), &json!("u-7"))
        );
        let patch = STANDARD
            .decode(response["patch"].as_str().unwrap())
            .unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(
            object["spec"]["initContainers"][0]["name"],
            names::MEDIATOR_CONTAINER
        );
        let again = ask(&app, review(&object)).await;
        assert_eq!(again, json!({ "uid": "u-7", "allowed": true }));
    }

    #[tokio::test]
    async fn a_pod_without_the_label_is_not_touched() {
        let response = ask(&synced(), review(&pod(json!({ "app": "otter" })))).await;
        assert_eq!(response, json!({ "uid": "u-7", "allowed": true }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_agent_is_waited_for_and_then_named() {
        // Another namespace's agent of that name does not count.
        let response = ask(
            &synced(),
            review(&pod(json!({ "toolcrib.dev/agent": "heron" }))),
        )
        .await;
        assert_eq!(response["allowed"], false);
        let message = response["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("no Agent \"heron\" in namespace \"pond\""),
            "{message}"
        );
        assert!(message.contains("number the files"), "{message}");
    }

    #[tokio::test]
    async fn a_refusal_says_what_to_do() {
        let mut object = pod(json!({ "toolcrib.dev/agent": "otter" }));
        object["spec"]["hostNetwork"] = json!(true);
        let response = ask(&synced(), review(&object)).await;
        assert_eq!(response["allowed"], false);
        let message = response["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("spec.hostNetwork") && message.contains("remove"),
            "{message}"
        );
    }

    /// An answer without the uid is none, and `failurePolicy: Ignore` would let it pass.
    #[tokio::test]
    async fn a_review_that_is_too_large_has_its_uid_in_the_answer() {
        let app = synced();
        let mut object = pod(json!({ "toolcrib.dev/agent": "otter" }));
        // Escaped, each of these is six bytes.
        object["metadata"]["annotations"] = json!({ "note": "\u{1}".repeat(1 << 20) });
        // In the API server's order.
        let review = format!(
            r#"{{"kind":"AdmissionReview","request":{{"uid":"u-7","operation":"CREATE","object":{object}}}}}"#
        );
        let response = ask(&app, review.clone().into_bytes()).await;
        assert_eq!(
            (&response["allowed"], &response["uid"]),
            (&json!(false), &json!("u-7"))
        );
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("make it smaller"), "{message}");

        let response = ask_at(&app, "/validate", review.into_bytes()).await;
        assert_eq!(
            (&response["allowed"], &response["uid"]),
            (&json!(true), &json!("u-7"))
        );
        assert!(response["warnings"][0].as_str().unwrap().contains("3 MiB"));
    }

    #[tokio::test]
    async fn whatever_cannot_be_read_is_not_allowed() {
        let app = synced();
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let huge = vec![b' '; body::MAX_KEPT + 1];
        for body in [
            b"".to_vec(),
            b"null".to_vec(),
            b"[]".to_vec(),
            br#"{"request":null}"#.to_vec(),
            br#"{"request":{"uid":7}}"#.to_vec(),
            deep.into_bytes(),
            huge,
            b"\xff\xfe".to_vec(),
        ] {
            let response = ask(&app, body).await;
            assert_eq!(response["allowed"], false);
        }
        for object in [
            json!(null),
            json!("pod"),
            json!({ "metadata": { "labels": { "toolcrib.dev/agent": 7 } } }),
            json!({ "spec": { "containers": "none" } }),
        ] {
            let response = ask(&app, review(&object)).await;
            assert_eq!(
                (&response["allowed"], &response["uid"]),
                (&json!(false), &json!("u-7"))
            );
        }
    }
}
