//! One `tools/call`: read, run and recorded like a call of a mediated turn.
//!
//! The call runs in a task of its own, so that it is recorded even if the client disconnects.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tokio::sync::oneshot;
use toolcrib_mcp::revision::Form;
use toolcrib_mcp::{Fault, Raw, ReplyBody, raw, reply};
use toolcrib_mediation::{DirectCall, PresentedTools};

use super::answer::{NOT_SERVED, Refusal, completed};
use crate::app::App;
use crate::app::sessions::client::SessionCall;
use crate::history::{Bodies, Body};
use crate::outbound::model::Operation;
use crate::request::caller::Caller;
use crate::request::record::{self, HUNG_UP, RequestEnd, RequestSummary};
use crate::request::stop::{AccessWatch, StopReason, stopped};
use crate::turn::dispatch::{DispatchResult, cut_off, dispatch};

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
    /// The call's entry in its session, which can cancel it.
    pub running: Option<SessionCall>,
}

/// The HTTP response to the client.
#[derive(Debug)]
pub struct CallResponse {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

/// Runs a call. `None`: the task panicked, and it is unknown whether it had called the service.
pub async fn call(app: Arc<App>, call: Call) -> Option<CallResponse> {
    let (to_client, waiting) = oneshot::channel();
    // The task is not awaited here: draining waits for the permits that it holds.
    tokio::spawn(run(app, call, to_client));
    waiting.await.ok()
}

async fn run(app: Arc<App>, mut request: Call, mut to_client: oneshot::Sender<CallResponse>) {
    let mut access = AccessWatch::new(&app.current);
    let now = app.current.now();
    let presented = PresentedTools::alone(&now.authority, jiff::Timestamp::now())
        .remembering(app.continuity.presented());
    let identity = request.caller.identity();
    let mut call = DirectCall::new(&presented, &identity, &request.name, &request.arguments);
    let started = request.caller.started;
    let mut waited = Duration::ZERO;
    let mut stop = None;
    if let Some(managed) = call.start(started.elapsed()) {
        let timeout = now.version().map_or(Duration::ZERO, |version| {
            let policy = version.catalog.policy();
            let most = policy.timeout_per_tool_ms.min(policy.total_timeout_ms);
            Duration::from_millis(most.max(1))
        });
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
            ) => stop = Some(why),
            it = dispatch(&app, &request.caller, &managed, timeout) => {
                let DispatchResult { outcome, display, allowed_by, latency, max_result_bytes } = it;
                call.finish(&outcome, display, allowed_by, latency, max_result_bytes);
            }
        }
        waited = waiting.elapsed();
    }
    if stop.is_some() {
        call.cut_short(started.elapsed());
        cut_off(&app);
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
            let refusal = refusal(why, &request.id);
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
        && to_client.send(answered).is_err()
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

fn refusal(why: &StopReason, id: &Raw) -> Refusal {
    let refusal = match why {
        StopReason::RunnerGone | StopReason::Cancelled | StopReason::Late => {
            let fault = Fault {
                data: Some(json!({"code": code(why), "mayHaveRun": true})),
                ..Fault::new(NOT_SERVED, "the call was cancelled")
            };
            Refusal::new(StatusCode::OK, fault)
        }
        StopReason::Ended(error) => Refusal::from(error),
    };
    refusal.to(id)
}
