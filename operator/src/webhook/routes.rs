//! One admission, and the status routes.
//!
//! A request at a path that no configuration names gets 404, and its body is not read: it does not
//! come from the API server. The body of a review is read first, within a bound for all bodies
//! together; then the review waits for its turn. So a review that gets no turn is still answered
//! under its uid. The API server ignores an answer without a uid and admits the pod without its
//! mediator; the guard then denies the pod with a misleading message.

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
use toolcrib_compile::names;
use toolcrib_crds::Agent;

use super::agents::{Agents, Lookup};
use super::body::{Bodies, BodyRead};
use super::certificate::Certificate;
use super::meter::{Meter, Outcome};
use super::paths::{Paths, Question};
use super::review::{Answer, Request, Review};
use super::serve::Phase;
use super::validate::validate;
use crate::listen::Visitor;

/// Limit of pod admissions that are decided at the same time.
const MAX_ADMISSIONS: usize = 64;
/// Limit of validations at the same time. Each reads other objects and compiles agents twice;
/// people apply such objects, not machines.
const MAX_VALIDATIONS: usize = 8;
/// Time that a review waits for its turn; less than the webhook's timeout.
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
) -> (String, Answer, Outcome) {
    let unread = |why: &str| {
        tracing::warn!(why, "not an AdmissionReview");
        (
            String::new(),
            Answer::Denied(format!("not an AdmissionReview: {why}")),
            Outcome::Malformed,
        )
    };
    // The room stays reserved until the answer: the decoded review is larger than its body.
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

/// Waits for this review's turn, and decides.
async fn turn(app: &App, question: Question, request: &Request) -> (Answer, Outcome) {
    // Separate turns, so that a flood of one kind of review does not delay the other.
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
fn busy(question: Question) -> (Answer, Outcome) {
    tracing::warn!(?question, "review not decided in time");
    let answer = match question {
        Question::Inject => Answer::Later(
            "toolcrib: too many pods are admitted at a time: try again in a moment".to_owned(),
        ),
        Question::Validate => Answer::Warned(vec![
            "toolcrib: nothing was checked: too many objects are applied at a time; see its conditions"
                .to_owned(),
        ]),
    };
    (answer, Outcome::Busy)
}

/// The answer to a review over the limit. A pod is denied, because it would run without its
/// mediator. An object of our kinds is admitted: the change may make it smaller, and compile checks it.
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

/// Decodes the object of a request as a pod.
pub fn pod(request: &Request) -> serde_json::Result<Pod> {
    serde_json::from_str(request.object.as_ref().map_or("", |object| object.get()))
}

/// Answers with the patch that injects the mediator of this Agent.
pub fn injected(pod: &Pod, agent: &Agent, config: &InjectConfig) -> (Answer, Outcome) {
    match inject(pod, agent, config) {
        Injection::Injected(patch) => (Answer::Patched(patch), Outcome::Injected),
        Injection::AlreadyInjected => (Answer::Allowed, Outcome::AlreadyInjected),
        Injection::Refused(refusal) => denied(Outcome::Refused, &refusal.to_string()),
    }
}

async fn decide(app: &App, request: &Request) -> (Answer, Outcome) {
    if request.operation != "CREATE" {
        return (Answer::Allowed, Outcome::Passed);
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
        return (Answer::Allowed, Outcome::Passed);
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
        Lookup::Nothing => denied(
            Outcome::NoAgent,
            &format!(
                "there is no Agent {name:?} in namespace {namespace:?}: create it before the pod (`kubectl apply -f dir/` goes by file name, so number the files), or take the label {} off the pod",
                names::AGENT_LABEL
            ),
        ),
        Lookup::NotSynced => (
            Answer::Later(
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
            Answer::Denied(why) | Answer::Later(why) => Some(why.as_str()),
            Answer::Allowed | Answer::Warned(_) | Answer::Patched(_) => None,
        },
        "pod reviewed"
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
    use tower::ServiceExt;

    use super::super::agents::tests::{Fake, agent};
    use super::*;

    fn app(agents: Agents) -> App {
        app_at(agents, Paths::plain())
    }

    fn app_at(agents: Agents, paths: Paths) -> App {
        let config = crate::foreign::config();
        // These tests send no request to the API server.
        let client = Client::new(
            tower::service_fn(|_: HttpRequest<kube::client::Body>| async {
                Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
            }),
            "pond",
        );
        let wait = Duration::from_secs(2);
        let settings = Settings::default();
        App::new(
            client,
            agents,
            paths,
            config,
            settings,
            wait,
            Meter::default(),
        )
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

    /// Returns the `response` of the answer to `body`.
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
    async fn a_labelled_pod_is_patched_once() {
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
    async fn a_pod_whose_agent_does_not_exist_is_denied_with_the_name() {
        // An Agent of that name exists in another namespace.
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
    async fn a_denied_pod_gets_the_cure() {
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

    /// The API server ignores an answer without the uid, and `failurePolicy: Ignore` admits the pod.
    #[tokio::test]
    async fn a_review_that_is_too_large_is_answered_under_its_uid() {
        let app = synced();
        let mut object = pod(json!({ "toolcrib.dev/agent": "otter" }));
        // Each of these characters takes six bytes in JSON.
        object["metadata"]["annotations"] = json!({ "note": "\u{1}".repeat(1 << 20) });
        // The members are in the API server's order.
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
    async fn an_undecodable_review_or_pod_is_denied() {
        let app = synced();
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let huge = vec![b' '; super::super::body::MAX_KEPT + 1];
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

    /// An API server with two webhook configurations, whose paths the test changes.
    #[derive(Clone, Default)]
    struct Configurations {
        inject: Arc<parking_lot::Mutex<Option<String>>>,
        validate: Arc<parking_lot::Mutex<Option<String>>>,
        looks: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Configurations {
        fn named(inject: Option<&str>, validate: Option<&str>) -> Self {
            let this = Self::default();
            this.name(inject, validate);
            this
        }

        fn name(&self, inject: Option<&str>, validate: Option<&str>) {
            *self.inject.lock() = inject.map(str::to_owned);
            *self.validate.lock() = validate.map(str::to_owned);
        }

        fn looks(&self) -> usize {
            self.looks.load(std::sync::atomic::Ordering::Relaxed)
        }

        fn paths(&self) -> Paths {
            let this = self.clone();
            let service = tower::service_fn(move |request: HttpRequest<kube::client::Body>| {
                let this = this.clone();
                async move {
                    let mutating = request.uri().path().contains("/mutating");
                    let path = if mutating {
                        this.looks
                            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        this.inject.lock().clone()
                    } else {
                        this.validate.lock().clone()
                    };
                    let configuration = json!({
                        "metadata": { "name": "toolcrib" },
                        "webhooks": [{
                            "name": "a.toolcrib.dev", "sideEffects": "None",
                            "admissionReviewVersions": ["v1"],
                            "clientConfig": { "service": {
                                "name": "webhook", "namespace": "pond", "path": path,
                            } },
                        }],
                    });
                    let body = Body::from(configuration.to_string());
                    Ok::<_, std::convert::Infallible>(Response::new(body))
                }
            });
            Paths::of(Client::new(service, "pond"), "toolcrib".to_owned())
        }
    }

    fn behind(configurations: &Configurations) -> App {
        let (agents, mut fake) = Fake::new();
        fake.list(&[agent("otter", "pond")]);
        app_at(agents, configurations.paths())
    }

    /// Returns the status of a review at that path. The body of a refused review is not read.
    async fn status_at(app: &App, path: &str) -> StatusCode {
        let review = review(&pod(json!({ "toolcrib.dev/agent": "otter" })));
        let read = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&read);
        let body = futures::stream::once(async move {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(review)
        });
        let request = HttpRequest::post(path)
            .body(Body::from_stream(body))
            .unwrap();
        let response = admission(app.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        assert_eq!(
            read.load(std::sync::atomic::Ordering::Relaxed),
            status == StatusCode::OK,
            "{path}"
        );
        if status != StatusCode::OK {
            assert_eq!(response.headers()[header::CONNECTION], "close");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(body.is_empty(), "{body:?}");
        }
        status
    }

    const SECRET: &str = "/inject/aaaa";
    const NEXT: &str = "/inject/bbbb";

    #[tokio::test(start_paused = true)]
    async fn a_stranger_with_a_right_shaped_review_gets_404_and_is_not_read() {
        let configurations = Configurations::named(Some(SECRET), Some("/validate/cccc"));
        let app = behind(&configurations);
        assert!(!app.paths.known());
        for path in [
            "/inject",
            "/validate",
            "/",
            "/inject/",
            NEXT,
            "/inject/aaaa/",
            "/x",
        ] {
            assert_eq!(status_at(&app, path).await, StatusCode::NOT_FOUND, "{path}");
        }
        assert!(app.paths.known());
        assert_eq!(status_at(&app, SECRET).await, StatusCode::OK);
        let get = HttpRequest::get(SECRET).body(Body::empty()).unwrap();
        let got = admission(app.clone()).oneshot(get).await.unwrap();
        assert_eq!(got.status(), StatusCode::NOT_FOUND);
    }

    /// An API server may know a new path before this process does.
    #[tokio::test(start_paused = true)]
    async fn a_new_path_is_answered_at_once_and_the_one_before_for_a_minute() {
        let configurations = Configurations::named(Some(SECRET), Some("/validate/cccc"));
        let app = behind(&configurations);
        assert_eq!(status_at(&app, SECRET).await, StatusCode::OK);
        configurations.name(Some(NEXT), Some("/validate/cccc"));
        for path in [NEXT, SECRET] {
            assert_eq!(status_at(&app, path).await, StatusCode::OK, "{path}");
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(status_at(&app, NEXT).await, StatusCode::OK);
        assert_eq!(status_at(&app, SECRET).await, StatusCode::NOT_FOUND);
    }

    /// An earlier chart names the plain paths; a chart may also name none.
    #[tokio::test(start_paused = true)]
    async fn a_plain_path_is_answered_while_a_configuration_names_it() {
        let configurations = Configurations::named(Some("/inject"), Some("/validate"));
        let app = behind(&configurations);
        assert_eq!(status_at(&app, "/inject").await, StatusCode::OK);
        configurations.name(None, None);
        assert_eq!(status_at(&app, "/").await, StatusCode::OK);
        // Both questions share one path; the object's kind decides.
        let mut object: Value =
            serde_json::from_slice(&review(&json!({ "kind": "Surface" }))).unwrap();
        object["request"]["kind"] = json!({ "kind": "Surface" });
        let answer = ask_at(&app, "/", object.to_string().into_bytes()).await;
        assert_ne!(
            answer["status"]["message"],
            "toolcrib: the object is not a pod that can be read"
        );
        configurations.name(Some(SECRET), Some("/validate/cccc"));
        assert_eq!(status_at(&app, SECRET).await, StatusCode::OK);
        tokio::time::advance(Duration::from_secs(61)).await;
        for path in ["/inject", "/"] {
            assert_eq!(status_at(&app, path).await, StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_make_no_flood_of_looks() {
        let configurations = Configurations::named(Some(SECRET), Some("/validate/cccc"));
        let app = behind(&configurations);
        let begun = Instant::now();
        let all = (0..200).map(|_| status_at(&app, "/inject"));
        for status in futures::future::join_all(all).await {
            assert_eq!(status, StatusCode::NOT_FOUND);
        }
        for _ in 0..20 {
            status_at(&app, "/inject").await;
        }
        let slots = begun.elapsed().as_millis() / 250 + 1;
        assert!(
            configurations.looks() as u128 <= slots,
            "{}",
            configurations.looks()
        );
    }

    /// The API server ignores an answer without a uid, and admits the pod.
    #[tokio::test(start_paused = true)]
    async fn a_review_without_a_turn_is_answered_under_its_uid() {
        let app = synced();
        let turns = app.turns.acquire_many(MAX_ADMISSIONS as u32).await.unwrap();
        let labelled = review(&pod(json!({ "toolcrib.dev/agent": "otter" })));
        let response = ask(&app, labelled.clone()).await;
        assert_eq!(
            (
                &response["allowed"],
                &response["uid"],
                &response["status"]["code"]
            ),
            (&json!(false), &json!("u-7"), &json!(429))
        );
        assert_eq!(response["status"]["details"]["retryAfterSeconds"], 1);
        // Sooner, where the API server waits for less.
        let begun = Instant::now();
        ask_at(&app, "/inject?timeout=1s", labelled.clone()).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        drop(turns);
        assert_eq!(ask(&app, labelled).await["allowed"], true);
        let _turns = app
            .validations
            .acquire_many(MAX_VALIDATIONS as u32)
            .await
            .unwrap();
        let response = ask_at(&app, "/validate", review(&json!({}))).await;
        assert_eq!(response["allowed"], true);
        assert!(
            response["warnings"][0]
                .as_str()
                .unwrap()
                .contains("nothing was checked")
        );
    }
}
