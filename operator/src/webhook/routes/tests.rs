//! Reviews and status requests at the routers.

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
    // Both webhooks share one path; the object's kind decides.
    let mut object: Value = serde_json::from_slice(&review(&json!({ "kind": "Surface" }))).unwrap();
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
    // The answer comes sooner if the API server's timeout is shorter.
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
