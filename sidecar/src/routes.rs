//! What the runner may ask, and everything that is checked before a model is.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use toolcrib_dialect::{Dialect, Edits, Request, models_body};
use toolcrib_manifest::{Context, Mode};
use toolcrib_mediation::{Presented, RunnerCode, RunnerError, Turn, TurnConfig, claimed_calls};

use crate::app::App;
use crate::asked::{Asked, Preparation, prepare, unauthorized};
use crate::config::Effective;
use crate::history::{Bodies, Body};
use crate::identity::{self, Runner, authenticate};
use crate::model::{headers, policy};
use crate::outgoing;
use crate::passthrough;
use crate::record::{self, Ended};
use crate::turn::Drive;

/// The runner's history speaks of managed calls, which no runner is ever shown.
const FABRICATED: &str = "fabricated_history";

/// A body's declared length is believed so far, before any of it has come.
const EXPECTED: usize = 512 * 1024;

pub fn router(app: Arc<App>) -> Router {
    let model = |dialect| {
        post(move |State(app): State<Arc<App>>, request: HttpRequest| serve(app, dialect, request))
    };
    Router::new()
        .route("/v1/chat/completions", model(Dialect::OpenaiChat))
        .route("/v1/messages", model(Dialect::AnthropicMessages))
        .route("/v1/responses", model(Dialect::OpenaiResponses))
        .route("/v1/models", get(models))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(app)
}

async fn models(State(app): State<Arc<App>>, request: HttpRequest) -> Response {
    let dialect = spoken(request.headers());
    let now = app.current.now();
    let listed = admit(&now, request.headers())
        .and_then(|_| Ok(now.version()?))
        .map(|version| models_body(dialect, &policy::allowed(&now, version)));
    match listed {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => outgoing::error(dialect, &error),
    }
}

async fn not_found(request: HttpRequest) -> Response {
    let error = RunnerError::new(
        RunnerCode::NotFound,
        "the mediator serves POST /v1/chat/completions, /v1/messages and /v1/responses, and \
         GET /v1/models",
    );
    outgoing::error(spoken(request.headers()), &error)
}

/// Where the path does not say it: Anthropic's SDK always sends its version.
fn spoken(headers: &HeaderMap) -> Dialect {
    if headers.contains_key("anthropic-version") {
        Dialect::AnthropicMessages
    } else {
        Dialect::OpenaiChat
    }
}

async fn serve(app: Arc<App>, dialect: Dialect, request: HttpRequest) -> Response {
    let started = Instant::now();
    let now = app.current.now();
    // From the headers alone: nobody's body is read before it is known whose it is.
    let runner = match admit(&now, request.headers()) {
        Ok(runner) => runner,
        Err(error) => {
            not_let_in(&app, &now, dialect, &error, started);
            return outgoing::error(dialect, &error);
        }
    };
    let Some(agent) = now.agent().cloned() else {
        return outgoing::error(dialect, &unauthorized());
    };
    let mut asked = Asked {
        id: request_id(),
        dialect,
        runner,
        claw_id: identity::claw_id(&agent, &app.settings.pod),
        agent,
        pod: app.settings.pod.clone(),
        headers: headers::upstream(request.headers()),
        noticed: Vec::new(),
        trace: app.telemetry.trace(request.headers()),
        model: None,
        tools_count: 0,
        started,
        waited_for_feeds: Duration::ZERO,
        permits: Vec::new(),
    };
    let mut body = Vec::new();
    let begun = match begin(&app, &now, &mut asked, request, &mut body).await {
        Ok(begun) => begun,
        Err(error) => {
            let record = record::refused(&error);
            let response = error.body(dialect);
            let ended = Ended {
                record: &record,
                http_status: error.status(),
                served_by: None,
                bodies: Bodies {
                    request: Body::Bytes(&body),
                    response: Body::Bytes(&response),
                },
                waited: asked.started.elapsed(),
            };
            record::finish(&app, &asked, ended);
            return outgoing::error(dialect, &error);
        }
    };
    let (to_runner, from_task) = outgoing::channel();
    // Its owner is the semaphore: draining waits for the permits that the task holds.
    match begun {
        Begun::Pass(request, prepared) => {
            tokio::spawn(passthrough::pass(app, asked, *request, prepared, to_runner));
        }
        Begun::Turn(turn, effects) => {
            tokio::spawn(Drive::new(app, asked, *turn, to_runner).run(effects));
        }
    }
    outgoing::response(from_task, dialect).await
}

enum Begun {
    /// Nothing is managed here.
    Pass(Box<Request>, Preparation),
    Turn(Box<Turn>, Vec<toolcrib_mediation::Effect>),
}

/// Everything that can be refused before a model is asked. `body` is what was read, for
/// the record.
async fn begin(
    app: &App,
    now: &Effective,
    asked: &mut Asked,
    request: HttpRequest,
    body: &mut Vec<u8>,
) -> Result<Begun, RunnerError> {
    let version = now.version()?;
    let permit = app.requests.clone().try_acquire_owned();
    asked.permits.push(permit.map_err(|_| overloaded())?);
    app.history.ready().map_err(|_| unrecordable())?;
    read_body(app, request, body, &mut asked.permits).await?;
    let request = Request::decode(asked.dialect, body.clone())?;
    asked.model = request.model();
    // Whether anybody may serve it shows before anything is presented.
    policy::candidates(now, version, asked.dialect, asked.model.as_deref())?;
    let waiting = Instant::now();
    let context = app.feeds.message(&asked.identity()).await;
    asked.waited_for_feeds = waiting.elapsed();
    // Body and feeds took their time; what counts is what is in force after it.
    let now = &app.current.now();
    if let Some(ended) = asked.ended(now) {
        return Err(ended);
    }
    let version = now.version()?;
    let presented = Presented::new(&now.authority, &request);
    if presented.is_empty() || asked.agent.mode == Mode::Native {
        let prepared = prepare(now, asked.dialect, asked.model.as_deref(), |model| {
            let mut edits = Edits::new(model);
            edits.prompt = prompt(asked);
            edits.context = context.clone();
            Ok(request.encode(&edits)?)
        })?;
        return Ok(Begun::Pass(Box::new(request), prepared));
    }
    asked.tools_count = presented.len();
    if claimed_calls(&request, &presented) > 0 {
        asked.noticed.push(FABRICATED);
    }
    let insertions = app.continuity.insertions(&request, &presented)?;
    let (turn, effects) = Turn::start(TurnConfig {
        request,
        presented,
        policy: version.catalog.policy(),
        streaming: asked.agent.streaming,
        claw_id: asked.identity(),
        insertions,
        prompt: prompt(asked),
        context,
    })?;
    Ok(Begun::Turn(Box::new(turn), effects))
}

/// The tools document, where the agent gets it with each request.
fn prompt(asked: &Asked) -> Option<String> {
    match asked.agent.context {
        Context::Prompt => asked.agent.prompt.clone(),
        Context::Mount | Context::None => None,
    }
}

/// Who it is, also where nothing is served any more: a wrong token hears 401 either way.
fn admit(now: &Effective, headers: &HeaderMap) -> Result<Runner, RunnerError> {
    match now.agent() {
        Some(agent) => authenticate(headers, agent).ok_or_else(unauthorized),
        None => match now.version() {
            Err(unavailable) => Err(unavailable.into()),
            Ok(version) => authenticate(headers, &version.agent).ok_or_else(unauthorized),
        },
    }
}

/// The body within its own bound and within that of all bodies together.
async fn read_body(
    app: &App,
    request: HttpRequest,
    body: &mut Vec<u8>,
    permits: &mut Vec<OwnedSemaphorePermit>,
) -> Result<(), RunnerError> {
    let limits = app.settings.limits;
    let too_large = || {
        let message = format!("the body is larger than {} bytes", limits.body);
        RunnerError::new(RunnerCode::InvalidRequest, message)
    };
    let declared = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limits.body) {
        return Err(too_large());
    }
    body.reserve_exact(declared.unwrap_or(0).min(EXPECTED));
    let read = read_frames(app, request.into_body(), body, permits, too_large);
    match tokio::time::timeout(limits.body_timeout, read).await {
        Ok(result) => result,
        Err(_) => Err(RunnerError::new(
            RunnerCode::InvalidRequest,
            "the body did not arrive in time",
        )),
    }
}

async fn read_frames(
    app: &App,
    mut from: HttpBody,
    body: &mut Vec<u8>,
    permits: &mut Vec<OwnedSemaphorePermit>,
    too_large: impl Fn() -> RunnerError,
) -> Result<(), RunnerError> {
    let mut held_kib = 0;
    while let Some(frame) = from.frame().await {
        let frame = frame
            .map_err(|_| RunnerError::new(RunnerCode::InvalidRequest, "the body broke off"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if body.len() + data.len() > app.settings.limits.body {
            return Err(too_large());
        }
        body.extend_from_slice(&data);
        let more = body.len().div_ceil(1024) - held_kib;
        if more > 0 {
            let count = u32::try_from(more).map_err(|_| too_large())?;
            let permit = app.bodies.clone().try_acquire_many_owned(count);
            permits.push(permit.map_err(|_| overloaded())?);
            held_kib += more;
        }
    }
    Ok(())
}

/// Whoever has no valid token is not a request of the agent: counted and logged, but not
/// in the record, which a stranger must not be able to fill.
fn not_let_in(app: &App, now: &Effective, dialect: Dialect, error: &RunnerError, started: Instant) {
    let name = dialect.name();
    if error.code == RunnerCode::Unauthorized {
        app.metrics.unauthorized();
    }
    app.metrics.request(name, error.status(), started.elapsed());
    tracing::info!(
        dialect = name,
        status = error.status(),
        error = error.code.name(),
        manifest_present = now.version().is_ok(),
        tools_count = 0,
        "not let in"
    );
}

fn unrecordable() -> RunnerError {
    RunnerError::new(
        RunnerCode::RecordUnavailable,
        "neither the disk nor the log takes the record of this request; free the volume of \
         the record, or read the mediator's stdout",
    )
}

fn overloaded() -> RunnerError {
    RunnerError::new(
        RunnerCode::Overloaded,
        "too many requests are running; try again later",
    )
}

/// Ties intents, turns and log lines together; it authenticates nothing. A number after
/// what is this process's alone: no request asks the system for randomness.
fn request_id() -> String {
    static PROCESS: OnceLock<[u8; 8]> = OnceLock::new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let process = PROCESS.get_or_init(|| {
        let mut bytes = [0; 8];
        if getrandom::fill(&mut bytes).is_err() {
            // The clock is unique enough for a name.
            let now = jiff::Timestamp::now().as_nanosecond().to_be_bytes();
            bytes.copy_from_slice(&now[8..]);
        }
        bytes
    });
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    hex::encode([process.as_slice(), &number.to_be_bytes()].concat())
}
