//! One `tools/call`: read, run and recorded as a call of a mediated turn is.
//!
//! It runs in a task of its own, so that what ran is recorded whoever hangs up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tokio::sync::oneshot;
use toolcrib_mcp::revision::Form;
use toolcrib_mcp::{Fault, Raw, Said, raw, reply};
use toolcrib_mediation::{LoneCall, Presented, RunnerError};

use super::answer::{NOT_SERVED, Refusal, completed};
use crate::app::App;
use crate::history::{Bodies, Body};
use crate::model::Operation;
use crate::request::caller::Caller;
use crate::request::record::{self, Ended, HUNG_UP, Recorded};
use crate::request::stop::AccessWatch;
use crate::sessions::client::Running;
use crate::turn::dispatch::{cut_off, dispatch};

/// A call that was let in.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub form: Form,
    pub id: Raw,
    pub name: String,
    pub arguments: String,
    /// The message, for the record.
    pub body: Vec<u8>,
    /// In a session, which can cancel it.
    pub running: Option<Running>,
}

/// Towards the client.
#[derive(Debug)]
pub struct Told {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

/// Why a call has no result.
enum Stopped {
    /// Nobody waits any more.
    HungUp,
    Cancelled,
    Ended(RunnerError),
}

/// `None`: the task panicked, and nobody knows what it had called.
pub async fn call(app: Arc<App>, call: Call) -> Option<Told> {
    let (told, waiting) = oneshot::channel();
    // Its owner is the semaphore: draining waits for the permits that the task holds.
    tokio::spawn(run(app, call, told));
    waiting.await.ok()
}

async fn run(app: Arc<App>, mut asked: Call, mut told: oneshot::Sender<Told>) {
    let mut access = AccessWatch::new(&app.current);
    let now = app.current.now();
    let presented = Presented::alone(&now.authority);
    let identity = asked.caller.identity();
    let mut call = LoneCall::new(&presented, &identity, &asked.name, &asked.arguments);
    let started = asked.caller.started;
    let mut waited = Duration::ZERO;
    let mut stopped = None;
    if let Some(managed) = call.start(started.elapsed()) {
        let timeout = now.version().map_or(Duration::ZERO, |version| {
            let policy = version.catalog.policy();
            let most = policy.timeout_per_tool_ms.min(policy.total_timeout_ms);
            Duration::from_millis(most.max(1))
        });
        let waiting = Instant::now();
        tokio::select! {
            biased;
            why = stop(&app, &asked.caller, &mut asked.running, &mut access, &mut told) => {
                stopped = Some(why);
            }
            it = dispatch(&app, &asked.caller, &managed, timeout) => {
                call.finish(&it.outcome, it.display, it.latency, it.max_result_bytes);
            }
        }
        waited = waiting.elapsed();
    }
    if stopped.is_some() {
        call.cut_short(started.elapsed());
        cut_off(&app);
    }
    let answer = call.end(stopped.as_ref().map(Stopped::code));
    let (http_status, answered) = match &stopped {
        None => {
            let content = json!([{"type": "text", "text": answer.result}]);
            let members = [
                ("content", raw(&content)),
                ("isError", raw(&!answer.is_success)),
            ];
            let result = completed(asked.form, members);
            let body = reply(Some(&asked.id), Said::Result(&result));
            let status = StatusCode::OK;
            (status.as_u16(), Some(Told { status, body }))
        }
        Some(Stopped::HungUp) => (HUNG_UP, None),
        Some(why) => {
            let refusal = why.refusal(&asked.id);
            let (status, body) = (refusal.status, refusal.body());
            (status.as_u16(), Some(Told { status, body }))
        }
    };
    let ended = Ended {
        record: &answer.record,
        http_status,
        served_by: None,
        bodies: Bodies {
            request: Body::Bytes(&asked.body),
            response: Body::Bytes(answered.as_ref().map_or(&[], |it| &it.body)),
        },
        connection: None,
        waited,
    };
    let recorded = Recorded {
        caller: &asked.caller,
        dialect: None,
        operation: Operation::Answer,
        model: None,
        tools_count: presented.len(),
        noticed: &[],
        waited_for_feeds: Duration::ZERO,
    };
    // Before the answer: who has the answer finds the record.
    record::finish(&app, recorded, ended);
    if let Some(answered) = answered
        && told.send(answered).is_err()
    {
        tracing::debug!(
            request_id = asked.caller.request_id,
            "the runner did not take its answer"
        );
    }
}

/// Resolves when the call must not go on.
async fn stop(
    app: &App,
    caller: &Caller,
    running: &mut Option<Running>,
    access: &mut AccessWatch,
    told: &mut oneshot::Sender<Told>,
) -> Stopped {
    let cancelled = async {
        match running {
            Some(running) => running.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = told.closed() => Stopped::HungUp,
        () = cancelled => Stopped::Cancelled,
        error = access.ended(&app.current, caller) => Stopped::Ended(error),
    }
}

impl Stopped {
    fn code(&self) -> &'static str {
        match self {
            Stopped::HungUp | Stopped::Cancelled => "canceled",
            Stopped::Ended(error) => error.code.name(),
        }
    }

    fn refusal(&self, id: &Raw) -> Refusal {
        let refusal = match self {
            Stopped::HungUp | Stopped::Cancelled => {
                let fault = Fault {
                    data: Some(json!({"code": self.code(), "mayHaveRun": true})),
                    ..Fault::new(NOT_SERVED, "the call was cancelled")
                };
                Refusal::new(StatusCode::OK, fault)
            }
            Stopped::Ended(error) => Refusal::from(error),
        };
        refusal.to(id)
    }
}
