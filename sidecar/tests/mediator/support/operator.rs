//! A double of the operator's leader: takes reports and questions, and says what the test wants,
//! also what no operator says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::sync::watch;

use super::{Files, TestServer, Wire, World, until};

pub struct Operator {
    shared: Arc<LinkServer>,
    server: TestServer,
    ca: String,
    token: NamedTempFile,
}

struct LinkServer {
    token: String,
    /// Counts the changes of the answer; the `seq` of the link.
    version: watch::Sender<u64>,
    said: Mutex<LinkScript>,
}

#[derive(Default)]
struct LinkScript {
    reports: Vec<Value>,
    questions: Vec<Value>,
    decisions: Vec<Value>,
    floor: Value,
    /// Statuses for the next questions.
    failures: Vec<u16>,
    refusal: Option<Value>,
}

impl Operator {
    pub async fn start() -> Self {
        let claims =
            r#"{"kubernetes.io":{"namespace":"pond","pod":{"name":"otter-0","uid":"u-7"}}}"#;
        let token = format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &token).unwrap();
        let shared = Arc::new(LinkServer {
            token,
            version: watch::Sender::new(1),
            said: Mutex::default(),
        });
        let router = Router::new()
            .route("/v1/link", post(link))
            .route("/v1/questions", post(question))
            .with_state(shared.clone());
        let server = TestServer::start(router).await;
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["operator".into()];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        Self {
            shared,
            server,
            ca: certificate.self_signed(&key).unwrap().pem(),
            token: file,
        }
    }

    /// Adds the link to the files.
    pub fn link(&self, files: &mut Files) {
        files.agent["link"] =
            json!({"url": self.server.url(), "ca": self.ca, "audience": "toolcrib.dev/link"});
    }

    pub fn flags(&self) -> [&str; 2] {
        ["--link-token-file", self.token.path().to_str().unwrap()]
    }

    /// An agent whose `desk.order` is Elevated, with a link to this operator.
    pub async fn world(&self, wire: Wire, edit: impl FnOnce(&mut Files)) -> World {
        self.world_with(wire, edit, &[]).await
    }

    pub async fn world_with(
        &self,
        wire: Wire,
        edit: impl FnOnce(&mut Files),
        flags: &[&str],
    ) -> World {
        let edit = |files: &mut Files| {
            self.link(files);
            files.tools["tools"][1]["x-toolcrib"]["tier"] = json!("Elevated");
            edit(files);
        };
        let flags = [&self.flags()[..], flags].concat();
        World::speaking_with(wire, edit, &flags).await
    }

    /// Waits for this many questions, and returns the last of them.
    pub async fn asked(&self, count: usize) -> Value {
        until("a question", || {
            let said = self.shared.said.lock().unwrap();
            said.questions.get(count - 1).cloned()
        })
        .await
    }

    pub fn questions(&self) -> Vec<Value> {
        self.shared.said.lock().unwrap().questions.clone()
    }

    /// The questions of the last report.
    pub fn reported(&self) -> Value {
        let said = self.shared.said.lock().unwrap();
        let questions = said.reports.last().map(|it| it["questions"].clone());
        questions.unwrap_or_default()
    }

    /// Waits for a report with these questions.
    pub async fn hears(&self, questions: Value) {
        let what = format!("a report of {questions}");
        until(&what, || (self.reported() == questions).then_some(())).await;
    }

    /// Sends decisions in each answer from now on.
    pub fn say(&self, decisions: &[Value]) {
        self.shared.said.lock().unwrap().decisions = decisions.to_vec();
        self.change();
    }

    pub fn decide(&self, question: &Value, verdict: &str) {
        self.say(&[decision(question, verdict)]);
    }

    /// Sets the allowlist.
    pub fn leave(&self, floor: Value) {
        self.shared.said.lock().unwrap().floor = floor;
        self.change();
    }

    /// Takes `desk.order` away in the answer that has these decisions.
    pub fn revoke_and_say(&self, decisions: &[Value]) {
        let mut said = self.shared.said.lock().unwrap();
        said.floor = json!({"tools": {"desk.quote": "v1:quote"}, "feeds": [],
            "providers": ["house"], "models": null});
        said.decisions = decisions.to_vec();
        drop(said);
        self.change();
    }

    /// Answers the next questions with these statuses.
    pub fn fail(&self, statuses: &[u16]) {
        self.shared.said.lock().unwrap().failures = statuses.to_vec();
    }

    pub fn refuse(&self, why: &str, message: &str) {
        let refusal = json!({"Refused": {"why": why, "message": message}});
        self.shared.said.lock().unwrap().refusal = Some(refusal);
    }

    /// Waits until the mediator has taken the latest answer.
    pub async fn is_heard(&self, world: &World) {
        let version = *self.shared.version.borrow();
        world.until(|now| now.seen >= version).await;
    }

    fn change(&self) {
        self.shared.version.send_modify(|version| *version += 1);
    }
}

pub fn approval(question: &Value) -> Value {
    let id = question["id"].as_str().unwrap();
    json!({"name": format!("otter-{}", &id[..12]), "uid": format!("u-{id}")})
}

pub fn decision(question: &Value, verdict: &str) -> Value {
    json!({"id": question["id"], "call_digest": question["call_digest"], "verdict": verdict,
        "approval": approval(question), "decided_by": ["ada"], "reason": "too many"})
}

async fn link(State(shared): State<Arc<LinkServer>>, headers: HeaderMap, body: String) -> Response {
    if let Some(refused) = refused(&shared, &headers) {
        return refused;
    }
    let report: Value = serde_json::from_str(&body).unwrap();
    let seen = report["seen"].as_u64().unwrap();
    let hold = Duration::from_millis(report["hold_ms"].as_u64().unwrap());
    shared.said.lock().unwrap().reports.push(report);
    let mut version = shared.version.subscribe();
    // Err: nothing has changed.
    drop(tokio::time::timeout(hold, version.wait_for(|it| *it > seen)).await);
    let seq = *shared.version.borrow();
    let said = shared.said.lock().unwrap();
    let answer = json!({"seq": seq, "agent": "Present", "floor": said.floor,
        "decisions": said.decisions});
    answer.to_string().into_response()
}

async fn question(
    State(shared): State<Arc<LinkServer>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    if let Some(refused) = refused(&shared, &headers) {
        return refused;
    }
    assert!(body.len() <= toolcrib_manifest::LONGEST_QUESTION);
    let question: Value = serde_json::from_str(&body).unwrap();
    let mut said = shared.said.lock().unwrap();
    if !said.failures.is_empty() {
        return StatusCode::from_u16(said.failures.remove(0))
            .unwrap()
            .into_response();
    }
    let answer = match &said.refusal {
        Some(refusal) => refusal.clone(),
        None => json!({"Asked": approval(&question)}),
    };
    said.questions.push(question);
    answer.to_string().into_response()
}

fn refused(shared: &LinkServer, headers: &HeaderMap) -> Option<Response> {
    let sent = headers.get("authorization")?.to_str().unwrap();
    let is_valid = sent == format!("Bearer {}", shared.token);
    (!is_valid).then(|| StatusCode::UNAUTHORIZED.into_response())
}
