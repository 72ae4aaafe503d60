//! A server that plays answers in order and records its requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::within;

#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl RecordedRequest {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    chunks: Vec<Bytes>,
    /// From this chunk on, held until the test opens it.
    pause: Option<(usize, Arc<Notify>)>,
    /// Held until the test opens it.
    gate: Option<Arc<Notify>>,
    never_ends: bool,
    breaks_off: Option<Arc<Notify>>,
}

impl Answer {
    pub fn json(body: Value) -> Answer {
        Self::text(200, &body.to_string()).header("content-type", "application/json")
    }

    pub fn text(status: u16, body: &str) -> Answer {
        Self::chunks(status, &[body])
    }

    pub fn chunks(status: u16, chunks: &[&str]) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            chunks: chunks
                .iter()
                .map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()))
                .collect(),
            pause: None,
            gate: None,
            never_ends: false,
            breaks_off: None,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    /// Replaces `"$ID"` by the JSON-RPC id of the request.
    fn to(mut self, id: Option<Value>) -> Answer {
        let Some(id) = id.filter(|id| !id.is_null()) else {
            return self;
        };
        for chunk in &mut self.chunks {
            let marked = std::str::from_utf8(chunk).is_ok_and(|text| text.contains("\"$ID\""));
            if marked {
                let text = std::str::from_utf8(chunk).unwrap();
                *chunk = text.replace("\"$ID\"", &id.to_string()).into();
            }
        }
        self
    }

    pub fn gated(mut self, gate: &Arc<Notify>) -> Answer {
        self.gate = Some(gate.clone());
        self
    }

    /// Holds chunk `at` and later ones until the test opens the gate.
    pub fn paused(mut self, at: usize, gate: &Arc<Notify>) -> Answer {
        self.pause = Some((at, gate.clone()));
        self
    }

    /// Sends nothing after the chunks, and keeps the connection open.
    pub fn never_ends(mut self) -> Answer {
        self.never_ends = true;
        self
    }

    /// Breaks the connection after the chunks, when the test says so.
    pub fn breaks_off(mut self, when: &Arc<Notify>) -> Answer {
        self.breaks_off = Some(when.clone());
        self
    }
}

pub struct Fake {
    state: Arc<FakeState>,
    address: std::net::SocketAddr,
    task: JoinHandle<()>,
}

struct FakeState {
    script: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<RecordedRequest>>,
    count: watch::Sender<usize>,
    connections: AtomicUsize,
    /// Number of requests whose answer was not read to its end.
    dropped: watch::Sender<usize>,
}

impl Fake {
    pub async fn start() -> Fake {
        let state = Arc::new(FakeState {
            script: Mutex::default(),
            requests: Mutex::default(),
            count: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
            dropped: watch::Sender::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counted = state.clone();
        let listener = listener.tap_io(move |_| {
            counted.connections.fetch_add(1, Ordering::SeqCst);
        });
        let router = axum::Router::new().fallback(play).with_state(state.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Fake {
            state,
            address,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn will(&self, answer: Answer) {
        self.state.script.lock().unwrap().push_back(answer);
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits for this many requests.
    pub async fn asked(&self, count: usize) {
        let mut seen = self.state.count.subscribe();
        within("a request", seen.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }

    /// Waits for this many answers that the client hung up on.
    pub async fn hung_up(&self, count: usize) {
        let mut seen = self.state.dropped.subscribe();
        within("a hang-up", seen.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts a dropped answer unless it is defused.
struct DropCounter(Option<Arc<FakeState>>);

impl DropCounter {
    fn defuse(&mut self) {
        self.0 = None;
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.dropped.send_modify(|count| *count += 1);
        }
    }
}

async fn play(State(state): State<Arc<FakeState>>, request: Request) -> Response {
    let mut dropped = DropCounter(Some(state.clone()));
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let id = serde_json::from_slice::<Value>(&body)
        .ok()
        .map(|body| body["id"].clone());
    state.requests.lock().unwrap().push(RecordedRequest {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: parts.headers,
        body,
    });
    state.count.send_modify(|count| *count += 1);
    let answer = state.script.lock().unwrap().pop_front();
    let answer = answer.unwrap_or_else(|| Answer::text(599, "the script has no more answers"));
    if let Some(gate) = &answer.gate {
        gate.notified().await;
    }
    let answer = answer.to(id);
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    if !answer.never_ends && answer.breaks_off.is_none() && answer.pause.is_none() {
        dropped.defuse();
        if let [one] = &answer.chunks[..] {
            return response.body(Body::from(one.clone())).unwrap();
        }
    }
    let (never_ends, breaks_off) = (answer.never_ends, answer.breaks_off);
    let pause = answer.pause;
    let chunks = answer.chunks.into_iter().enumerate();
    let chunks = stream::unfold((chunks, dropped), move |mut at| {
        let (breaks_off, pause) = (breaks_off.clone(), pause.clone());
        async move {
            if let Some((number, chunk)) = at.0.next() {
                if let Some((_, gate)) = pause.filter(|(at, _)| *at == number) {
                    gate.notified().await;
                }
                return Some((Ok(chunk), at));
            }
            if let Some(when) = breaks_off {
                when.notified().await;
                return Some((Err(std::io::Error::other("cut")), at));
            }
            if never_ends {
                std::future::pending::<()>().await;
            }
            at.1.defuse();
            None
        }
    });
    response.body(Body::from_stream(chunks)).unwrap()
}
