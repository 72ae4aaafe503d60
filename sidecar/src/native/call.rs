//! One `tools/call`: read, run and recorded like a call of a mediated turn.
//!
//! The call runs in a task of its own, so that it is recorded even if the client disconnects. If it waits
//! for an approval and the client asked for progress, its answer is a stream that says that it waits.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, stream};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::json;
use tokio::sync::mpsc;
use toolcrib_dialect::frame;
use toolcrib_mcp::revision::Form;
use toolcrib_mcp::{Fault, Raw, ReplyBody, raw, reply};
use toolcrib_mediation::{DirectCall, PresentedTools};

use super::answer::{NOT_SERVED, Refusal, completed, document};
use crate::app::App;
use crate::app::sessions::client::SessionCall;
use crate::history::{Bodies, Body};
use crate::outbound::model::Operation;
use crate::request::caller::Caller;
use crate::request::record::{self, HUNG_UP, RequestEnd, RequestSummary};
use crate::request::stop::{AccessWatch, StopReason, stopped};
use crate::turn::dispatch::{DispatchResult, cut_off, dispatch};
use crate::turn::waits::ApprovalWaits;

/// Time between two notifications of progress.
const PROGRESS: Duration = Duration::from_secs(10);
const QUEUE: usize = 4;

/// An authenticated call.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub form: Form,
    pub id: Raw,
    pub name: String,
    pub arguments: String,
    /// The message, for the record.
    pub body: Vec<u8>,
    /// The token for notifications of progress, of a client that asked for them and reads streams.
    pub progress: Option<Raw>,
    /// The call's entry in its session, which can cancel it.
    pub running: Option<SessionCall>,
}

/// A part of the answer to the client; nothing follows an `Answer`.
#[derive(Debug)]
enum Part {
    /// A notification of progress.
    Progress(Bytes),
    Answer(CallResponse),
}

/// The HTTP response to the client.
#[derive(Debug)]
struct CallResponse {
    status: StatusCode,
    body: Vec<u8>,
}

/// Runs a call.
pub async fn call(app: Arc<App>, call: Call) -> Response {
    let (to_client, mut parts) = mpsc::channel(QUEUE);
    // The task is not awaited here: draining waits for the permits that it holds.
    tokio::spawn(run(app, call, to_client));
    match parts.recv().await {
        Some(Part::Answer(CallResponse { status, body })) => document(status, body),
        Some(Part::Progress(first)) => streamed(first, parts),
        // The task panicked, and it is unknown whether it had called the service.
        None => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// The answer as a stream, which ends with the result.
fn streamed(first: Bytes, parts: mpsc::Receiver<Part>) -> Response {
    let rest = stream::unfold((Some(first), parts), |(first, mut parts)| async move {
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(first), (None, parts)));
        }
        let next = match parts.recv().await? {
            Part::Progress(bytes) => bytes,
            Part::Answer(answer) => frame(None, &String::from_utf8_lossy(&answer.body)).into(),
        };
        Some((Ok(next), (None, parts)))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, HttpBody::from_stream(rest)).into_response()
}

/// Says that the call waits, for the `count`th time.
fn progress(token: &Raw, count: u32) -> Part {
    let params = json!({"progressToken": token, "progress": count,
        "message": "the call waits for a person's approval"});
    let message = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    Part::Progress(frame(None, &message.to_string()).into())
}

/// Sends progress while a call waits for its approval. Never ends.
async fn report_progress(
    token: Option<&Raw>,
    waits: &ApprovalWaits,
    to_client: &mpsc::Sender<Part>,
) -> Infallible {
    let Some(token) = token else {
        return pending().await;
    };
    let mut changes = waits.subscribe();
    let mut count = 0;
    loop {
        if !waits.is_waiting() {
            changes.next().await;
            continue;
        }
        count += 1;
        // A client that does not read needs no other notification; the last place is the answer's.
        if to_client.capacity() > 1 {
            to_client.try_send(progress(token, count)).ok();
        }
        tokio::time::sleep(PROGRESS).await;
    }
}

async fn run(app: Arc<App>, mut request: Call, to_client: mpsc::Sender<Part>) {
    let mut access = AccessWatch::new(&app.current);
    let now = app.current.now();
    let presented = PresentedTools::alone(&now.authority, jiff::Timestamp::now())
        .remembering(app.continuity.presented());
    let identity = request.caller.identity();
    let mut call = DirectCall::new(&presented, &identity, &request.name, &request.arguments);
    let started = request.caller.started;
    let mut waited = Duration::ZERO;
    let mut stop = None;
    let mut is_unsent = false;
    if let Some(managed) = call.start(started.elapsed()) {
        let timeout = now.version().map_or(Duration::ZERO, |version| {
            let policy = version.catalog.policy();
            let most = policy.timeout_per_tool_ms.min(policy.total_timeout_ms);
            Duration::from_millis(most.max(1))
        });
        let waits = ApprovalWaits::of_native(started, request.progress.is_some());
        let waiting = Instant::now();
        tokio::select! {
            biased;
            why = stopped(
                &mut access,
                &app.current,
                &request.caller,
                None,
                to_client.closed(),
                cancelled(&mut request.running),
            )
            // Looked at before the dispatch is dropped.
            .map(|why| (why, waits.is_waiting())) => {
                is_unsent = why.1;
                stop = Some(why.0);
            }
            never = report_progress(request.progress.as_ref(), &waits, &to_client) => match never {},
            it = dispatch(&app, &request.caller, &managed, timeout, &waits) => {
                let DispatchResult { outcome, display, allowed_by, latency, max_result_bytes } = it;
                call.finish(&outcome, display, allowed_by, latency, max_result_bytes);
            }
        }
        waited = waiting.elapsed();
        match (&stop, is_unsent) {
            (None, _) => {}
            (Some(_), true) => call.unsent(),
            (Some(_), false) => cut_off(&app),
        }
    }
    if stop.is_some() {
        call.cut_short(started.elapsed());
    }
    let answer = call.end(stop.as_ref().map(code));
    let (http_status, answered) = match &stop {
        None => {
            let content = json!([{"type": "text", "text": answer.result}]);
            let members = [
                ("content", raw(&content)),
                ("isError", raw(&!answer.is_success)),
            ];
            let result = completed(request.form, members);
            let body = reply(Some(&request.id), ReplyBody::Result(&result));
            let status = StatusCode::OK;
            (status.as_u16(), Some(CallResponse { status, body }))
        }
        Some(StopReason::RunnerGone) => (HUNG_UP, None),
        Some(why) => {
            let refusal = refusal(why, !is_unsent, &request.id);
            let (status, body) = (refusal.status, refusal.body());
            (status.as_u16(), Some(CallResponse { status, body }))
        }
    };
    let end = RequestEnd {
        record: answer.record,
        http_status,
        served_by: None,
        bodies: Bodies {
            request: Body::Bytes(&request.body),
            response: Body::Bytes(answered.as_ref().map_or(&[], |it| &it.body)),
        },
        connection: None,
        waited,
    };
    let summary = RequestSummary {
        caller: &request.caller,
        dialect: None,
        operation: Operation::Answer,
        model: None,
        tools_count: presented.len(),
        interventions: &[],
        waited_for_feeds: Duration::ZERO,
    };
    // Before the answer: a client that has the answer finds its record.
    record::finish(&app, summary, end);
    if let Some(answered) = answered
        && to_client.send(Part::Answer(answered)).await.is_err()
    {
        tracing::debug!(
            request_id = request.caller.request_id,
            "answer not delivered: the runner disconnected"
        );
    }
}

/// Resolves when the client has cancelled the call.
async fn cancelled(running: &mut Option<SessionCall>) {
    match running {
        Some(running) => running.cancelled().await,
        None => pending().await,
    }
}

fn code(why: &StopReason) -> &'static str {
    match why {
        // A call is never late: dispatch bounds it, and its result says so.
        StopReason::RunnerGone | StopReason::Cancelled | StopReason::Late => "canceled",
        StopReason::Ended(error) => error.code.name(),
    }
}

fn refusal(why: &StopReason, may_have_run: bool, id: &Raw) -> Refusal {
    let refusal = match why {
        StopReason::RunnerGone | StopReason::Cancelled | StopReason::Late => {
            let fault = Fault {
                data: Some(json!({"code": code(why), "mayHaveRun": may_have_run})),
                ..Fault::new(NOT_SERVED, "the call was cancelled")
            };
            Refusal::new(StatusCode::OK, fault)
        }
        StopReason::Ended(error) => Refusal::from(error),
    };
    refusal.to(id)
}
