//! OTLP over HTTP, as spans and the record use it: one POST of a protobuf message, and the attributes
//! that all messages of a mediator have.
//!
//! Not here: queues, retries, and the verdict about a status, which differ.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::outbound::{Outbound, body};

/// Limits the bytes of an answer that are read.
const MOST_ANSWER: usize = 64 * 1024;

/// The path of a kind of messages below the receiver's base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Traces,
    Logs,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Logs => "/v1/logs",
        }
    }
}

/// A receiver of one kind of messages.
#[derive(Debug)]
pub struct Receiver {
    url: String,
    outbound: Arc<Outbound>,
}

/// The answer of a receiver, with any status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Seconds of `Retry-After`, if it has them.
    pub retry_after: Option<Duration>,
    /// The beginning of the body.
    pub body: Vec<u8>,
}

impl Receiver {
    /// `endpoint` is the base URL of OTLP.
    pub fn new(endpoint: &str, signal: Signal, outbound: Arc<Outbound>) -> Self {
        Self {
            url: format!("{}{}", endpoint.trim_end_matches('/'), signal.path()),
            outbound,
        }
    }

    /// Sends a message. Errors: the reason why there is no answer within `timeout`.
    pub async fn post(&self, message: Vec<u8>, timeout: Duration) -> Result<Answer, String> {
        let client = self
            .outbound
            .client(None, None)
            .map_err(|it| it.to_string())?;
        let plain = |error: reqwest::Error| error.without_url().to_string();
        let response = client
            .post(&self.url)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .timeout(timeout)
            .body(message)
            .send()
            .await
            .map_err(plain)?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|it| it.to_str().ok()?.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        // The status is the answer, also if the connection breaks after it.
        let body = match body::prefix(response.into(), MOST_ANSWER).await {
            Ok(body) => body,
            Err(error) => {
                tracing::debug!(error = error.to_string(), "body of an OTLP answer not read");
                Vec::new()
            }
        };
        Ok(Answer {
            status,
            retry_after,
            body,
        })
    }
}

/// The attributes of the process.
pub fn resource(pod: &str) -> Resource {
    let mut attributes = vec![
        text("service.name", "toolcrib-mediator"),
        text("service.version", env!("CARGO_PKG_VERSION")),
    ];
    if !pod.is_empty() {
        attributes.push(text("k8s.pod.name", pod));
    }
    Resource {
        attributes,
        ..Resource::default()
    }
}

pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "toolcrib.mediator".to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        ..InstrumentationScope::default()
    }
}

pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_string()))
}

pub fn number(key: &str, value: u64) -> KeyValue {
    attribute(
        key,
        Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)),
    )
}

pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_string(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
