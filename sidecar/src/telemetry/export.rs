//! Sends spans to a receiver of OTLP over HTTP, with a bounded queue and one task.
//!
//! A slow or absent receiver fails no request: spans that do not fit are dropped and counted. At
//! the end the queued spans are sent, within a bound.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::otlp::{self, Receiver, Signal};
use crate::metrics::Metrics;
use crate::outbound::Outbound;

/// Most requests whose spans wait.
const QUEUE: usize = 128;
/// Spans of one message; the spans of a request are not split.
const BATCH: usize = 512;
/// Longest time that the first span of a message waits for others.
const GATHER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most attempts for one message, if the receiver may accept it later.
const ATTEMPTS: u32 = 3;

/// The sending end of the queue. Dropping it ends the task when all spans are sent.
#[derive(Debug)]
pub struct Exporter {
    queue: Mutex<Option<mpsc::Sender<Vec<Span>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
}

impl Exporter {
    /// `endpoint` is the base URL of OTLP, to which `/v1/traces` is joined. Must be called
    /// within a runtime.
    pub fn start(
        endpoint: &str,
        pod: &str,
        outbound: Arc<Outbound>,
        metrics: Arc<Metrics>,
    ) -> Exporter {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let sender = Sender {
            receiver: Receiver::new(endpoint, Signal::Traces, outbound),
            pod: pod.to_owned(),
            metrics: metrics.clone(),
        };
        Exporter {
            queue: Mutex::new(Some(queue)),
            task: Mutex::new(Some(tokio::spawn(sender.run(waiting)))),
            metrics,
        }
    }

    /// Queues the spans of a request, without waiting.
    pub fn offer(&self, spans: Vec<Span>) {
        let count = spans.len();
        let queue = self.queue.lock();
        let taken = queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(spans).is_ok());
        if !taken {
            self.metrics.spans("dropped", count);
        }
    }

    /// Sends the queued spans. The caller bounds the wait.
    pub async fn close(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::error!("span exporter panicked");
        }
    }
}

struct Sender {
    receiver: Receiver,
    pod: String,
    metrics: Arc<Metrics>,
}

/// The reason why a message was not accepted.
enum Failure {
    /// A failure that a later attempt may not have.
    Passing(String),
    Final(String),
}

impl Sender {
    async fn run(self, mut queue: mpsc::Receiver<Vec<Span>>) {
        while let Some(first) = queue.recv().await {
            let mut spans = first;
            let until = Instant::now() + GATHER;
            while spans.len() < BATCH {
                match tokio::time::timeout_at(until, queue.recv()).await {
                    Ok(Some(more)) => spans.extend(more),
                    // The time is up, or the queue is closed.
                    Ok(None) | Err(_) => break,
                }
            }
            self.send(spans, &queue).await;
        }
    }

    async fn send(&self, spans: Vec<Span>, queue: &mpsc::Receiver<Vec<Span>>) {
        let count = spans.len();
        let body = self.message(spans);
        for attempt in 1.. {
            let error = match self.attempt(body.clone()).await {
                Ok(()) => {
                    self.metrics.spans("exported", count);
                    return;
                }
                // At the end there is no time for a receiver to recover.
                Err(Failure::Passing(_)) if attempt < ATTEMPTS && !queue.is_closed() => {
                    tokio::time::sleep(Duration::from_secs(1 << attempt)).await;
                    continue;
                }
                Err(Failure::Passing(error) | Failure::Final(error)) => error,
            };
            self.metrics.spans("dropped", count);
            tracing::warn!(spans = count, error, "span export failed, spans dropped");
            return;
        }
    }

    fn message(&self, spans: Vec<Span>) -> Vec<u8> {
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(otlp::resource(&self.pod)),
                scope_spans: vec![ScopeSpans {
                    scope: Some(otlp::scope()),
                    spans,
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        request.encode_to_vec()
    }

    async fn attempt(&self, body: Vec<u8>) -> Result<(), Failure> {
        let answer = self.receiver.post(body, TIMEOUT).await;
        let status = answer.map_err(Failure::Passing)?.status;
        let error = format!("the receiver answered with status {status}");
        match status {
            200..=299 => Ok(()),
            // The statuses that OTLP calls retryable.
            429 | 502 | 503 | 504 => Err(Failure::Passing(error)),
            _ => Err(Failure::Final(error)),
        }
    }
}
