//! Authenticates requests and bounds their bodies, for every route.
//!
//! Invariants: bodies are read only after authentication; each body has a bound of its own and
//! counts towards the bound of all bodies together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use axum::body::Body as HttpBody;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use http_body_util::BodyExt;
use toolcrib_manifest::RunnerAccess;
use toolcrib_mediation::{RunnerCode, RunnerError};

use crate::app::App;
use crate::config::EffectiveConfig;
use crate::config::identity::{self, Runner, authenticate};
use crate::history::HistoryError;
use crate::history::line::CallPath;
use crate::request::caller::{Caller, unauthorized};
use crate::request::room::{BodyRoom, overloaded};

/// Most bytes that are allocated for a declared length before the body arrives.
const EXPECTED: usize = 512 * 1024;

/// Authenticates the runner, also when nothing is served any more: a wrong token always gets 401.
pub fn admit(now: &EffectiveConfig, headers: &HeaderMap) -> Result<Runner, RunnerError> {
    match now.agent() {
        Some(agent) => authenticate(headers, agent).ok_or_else(unauthorized),
        None => match now.version() {
            Err(unavailable) => Err(unavailable.into()),
            Ok(version) => authenticate(headers, &version.agent).ok_or_else(unauthorized),
        },
    }
}

/// Makes the caller of a request from its headers alone.
pub fn let_in(
    app: &App,
    now: &EffectiveConfig,
    headers: &HeaderMap,
    via: CallPath,
) -> Result<Caller, RunnerError> {
    let admitted = admit(now, headers);
    match &admitted {
        Ok(_) => app.current.note_runner(RunnerAccess::Admitted),
        Err(error) if error.code == RunnerCode::Unauthorized && identity::has_token(headers) => {
            app.current.note_runner(RunnerAccess::Refused);
        }
        Err(_) => {}
    }
    let runner = admitted?;
    let agent = now.agent().cloned().ok_or_else(unauthorized)?;
    let claw_id = identity::claw_id(&agent, &app.settings.pod).ok_or_else(|| {
        RunnerError::new(
            RunnerCode::IdentityRefused,
            "the pod's name is its identity, and has a dot, as agents of other namespaces have",
        )
    })?;
    Ok(Caller {
        request_id: request_id(),
        via,
        runner,
        claw_id,
        agent,
        pod: app.settings.pod.clone(),
        pod_uid: app.settings.pod_uid.clone(),
        started: Instant::now(),
        trace: app.telemetry.trace(headers),
        running: None,
        body: BodyRoom::new(app.bodies.clone()),
    })
}

/// Takes one of the permits for running requests; an error if all are taken.
pub fn enter(app: &App, caller: &mut Caller) -> Result<(), RunnerError> {
    let permit = app.requests.clone().try_acquire_owned();
    caller.running = Some(permit.map_err(|_| overloaded())?);
    Ok(())
}

/// Refuses a request that could not be recorded.
pub fn recordable(app: &App) -> Result<(), RunnerError> {
    app.history.ready().map_err(|error| unrecordable(&error))
}

/// Reads the body within `limit`, its own bound, and within the bound of all bodies together.
pub async fn read_body(
    app: &App,
    headers: &HeaderMap,
    from: HttpBody,
    limit: usize,
    body: &mut Vec<u8>,
    caller: &mut Caller,
) -> Result<(), RunnerError> {
    let too_large = || {
        let message = format!("the body is larger than {limit} bytes");
        RunnerError::new(RunnerCode::InvalidRequest, message)
    };
    if headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(RunnerError::new(
            RunnerCode::InvalidRequest,
            "the body is compressed (`content-encoding`), which is not read here",
        ));
    }
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    body.reserve_exact(declared.unwrap_or(0).min(EXPECTED));
    let read = read_frames(from, limit, body, &mut caller.body, too_large);
    match tokio::time::timeout(app.settings.limits.body_timeout, read).await {
        Ok(result) => result,
        Err(_) => Err(RunnerError::new(
            RunnerCode::InvalidRequest,
            "the body did not arrive in time",
        )),
    }
}

async fn read_frames(
    mut from: HttpBody,
    limit: usize,
    body: &mut Vec<u8>,
    room: &mut BodyRoom,
    too_large: impl Fn() -> RunnerError,
) -> Result<(), RunnerError> {
    while let Some(frame) = from.frame().await {
        let frame = frame
            .map_err(|_| RunnerError::new(RunnerCode::InvalidRequest, "the body broke off"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        // Not a `bounds::Buffer`: the caller keeps what arrived if this future is dropped at the
        // body's deadline, and the room is held before the bytes are.
        if body.len() + data.len() > limit {
            return Err(too_large());
        }
        room.hold(body.len() + data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(())
}

/// Logs a request without a valid token. It is not in the agent's record, which a stranger must
/// not be able to fill.
pub fn log_unauthenticated(
    app: &App,
    now: &EffectiveConfig,
    dialect: &'static str,
    error: &RunnerError,
) {
    if error.code == RunnerCode::Unauthorized {
        app.metrics.unauthorized();
    }
    tracing::info!(
        dialect,
        status = error.status(),
        error = error.code.name(),
        manifest_present = now.version().is_ok(),
        tools_count = 0,
        "authentication failed"
    );
}

pub fn unrecordable(error: &HistoryError) -> RunnerError {
    let message = match error {
        HistoryError::Behind(_) => {
            "the record is full, and the OpenTelemetry Collector has not taken its older part; make \
             the collector take records again"
        }
        HistoryError::Open(_)
        | HistoryError::Write(_)
        | HistoryError::StdoutBlocked
        | HistoryError::Closed
        | HistoryError::Randomness => {
            "neither the disk nor the log takes the record of this request; free the volume of \
             the record, or read the mediator's stdout"
        }
    };
    RunnerError::new(RunnerCode::RecordUnavailable, message)
}

/// The id that ties intents, turns and log lines together; it authenticates nothing. It is the
/// random prefix of this process and a number, so a request needs no randomness of its own.
fn request_id() -> String {
    static PROCESS: OnceLock<[u8; 8]> = OnceLock::new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let process = PROCESS.get_or_init(|| {
        let mut bytes = [0; 8];
        if getrandom::fill(&mut bytes).is_err() {
            // The time is unique enough for a prefix.
            let now = jiff::Timestamp::now().as_nanosecond().to_be_bytes();
            bytes.copy_from_slice(&now[8..]);
        }
        bytes
    });
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut id = hex::encode(process);
    id.push_str(&hex::encode(number.to_be_bytes()));
    id
}
