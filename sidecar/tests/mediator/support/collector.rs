//! A receiver of OTLP logs that can be stopped, restarted at its address, slow, or refusing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream;
use http::StatusCode;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use tokio::sync::watch;

use super::{TestServer, within};

/// What the collector does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Take,
    /// Answers that it rejected this many records.
    TakeWithout(i64),
    Status(u16),
    /// Takes the records and never answers.
    TakeAndHang,
    /// Takes the records; the body of the answer has no end.
    TakeEndlessly,
    /// Takes nothing and never answers.
    Hang,
}

pub struct Collector {
    state: Arc<CollectorState>,
    address: SocketAddr,
    /// `None` after [`Collector::stop`].
    server: Option<TestServer>,
}

struct CollectorState {
    /// Verdicts about the next requests; then `usual`.
    script: Mutex<VecDeque<Verdict>>,
    usual: Mutex<Verdict>,
    taken: Mutex<Vec<LogRecord>>,
    requests: watch::Sender<usize>,
}

impl Collector {
    pub async fn start() -> Self {
        let state = CollectorState {
            script: Mutex::default(),
            usual: Mutex::new(Verdict::Take),
            taken: Mutex::default(),
            requests: watch::Sender::new(0),
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut collector = Self {
            state: Arc::new(state),
            address: any,
            server: None,
        };
        collector.serve().await;
        collector
    }

    async fn serve(&mut self) {
        let router = axum::Router::new()
            .route("/v1/logs", post(receive))
            .with_state(self.state.clone());
        let server = TestServer::start_at(self.address, router).await;
        self.address = server.address();
        self.server = Some(server);
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the listener; what was taken is kept.
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    /// Listens again at the same address.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.serve().await;
    }

    /// Decides about the next request that no earlier call decides about.
    pub fn then(&self, verdict: Verdict) {
        self.state.script.lock().unwrap().push_back(verdict);
    }

    /// Decides about all further requests.
    pub fn usually(&self, verdict: Verdict) {
        *self.state.usual.lock().unwrap() = verdict;
    }

    pub fn requests(&self) -> usize {
        *self.state.requests.borrow()
    }

    /// Waits for this many requests.
    pub async fn asked(&self, count: usize) {
        let mut seen = self.state.requests.subscribe();
        within("a request", seen.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }

    pub fn records(&self) -> Vec<LogRecord> {
        self.state.taken.lock().unwrap().clone()
    }

    /// The texts of all records that were taken.
    pub fn texts(&self) -> Vec<String> {
        self.records().iter().map(body).collect()
    }
}

/// The text of a record.
pub fn body(record: &LogRecord) -> String {
    let value = record.body.as_ref().and_then(|it| it.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// An attribute as text; empty if there is none.
pub fn attribute(record: &LogRecord, key: &str) -> String {
    let found = record.attributes.iter().find(|it| it.key == key);
    let value = |it: &KeyValue| match it.value.as_ref().and_then(|it| it.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => panic!("{other:?}"),
    };
    found.map(value).unwrap_or_default()
}

async fn receive(State(state): State<Arc<CollectorState>>, message: Bytes) -> Response {
    let next = state.script.lock().unwrap().pop_front();
    let verdict = next.unwrap_or(*state.usual.lock().unwrap());
    let request = ExportLogsServiceRequest::decode(message).unwrap();
    let records = request
        .resource_logs
        .into_iter()
        .flat_map(|it| it.scope_logs)
        .flat_map(|it| it.log_records);
    let take = |rejected: i64| {
        let mut taken = state.taken.lock().unwrap();
        let all: Vec<LogRecord> = records.collect();
        let count = all.len() - usize::try_from(rejected).unwrap();
        taken.extend(all.into_iter().take(count));
    };
    let answer = |partial: Option<ExportLogsPartialSuccess>| {
        let response = ExportLogsServiceResponse {
            partial_success: partial,
        };
        response.encode_to_vec().into_response()
    };
    let asked = || state.requests.send_modify(|count| *count += 1);
    match verdict {
        Verdict::Take => {
            take(0);
            asked();
            answer(None)
        }
        Verdict::TakeWithout(rejected) => {
            take(rejected);
            asked();
            answer(Some(ExportLogsPartialSuccess {
                rejected_log_records: rejected,
                error_message: "no room".to_owned(),
            }))
        }
        Verdict::Status(status) => {
            asked();
            StatusCode::from_u16(status).unwrap().into_response()
        }
        Verdict::TakeAndHang => {
            take(0);
            asked();
            std::future::pending().await
        }
        Verdict::TakeEndlessly => {
            take(0);
            asked();
            let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0; 64 * 1024]));
            Body::from_stream(chunks).into_response()
        }
        Verdict::Hang => {
            asked();
            std::future::pending().await
        }
    }
}
