//! The scripted model's HTTP surface.
//!
//! `POST /v1/chat/completions`, `/v1/messages`, `/v1/responses` play the script;
//! `POST /v1/messages/count_tokens` counts tools and messages; `GET /v1/models` lists one model;
//! `POST /script` replaces the script; `GET /requests [?since=SEQ]` returns the recorded requests,
//! `DELETE /requests` drops them; `GET /healthz`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{HeaderMap, Response, StatusCode, Uri, header},
    routing::{get, post},
};
use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::script::{Fault, Reply, Script, ScriptError};
use super::stored::StoredResponses;
use super::wire::ModelReply;
use crate::services::model::{Conversation, Dialect, Recorder, wire};
use crate::services::serving::{ResetHandle, credential};

/// Maximum bytes of a body: enough for a long conversation.
const MAX_BODY: usize = 16 << 20;

pub struct ModelState {
    api_key_file: PathBuf,
    script: Mutex<ScriptState>,
    recorder: Recorder,
    stored: StoredResponses,
    counter: AtomicU64,
}

struct ScriptState {
    script: Script,
    /// How often each step was played.
    played: Vec<u32>,
}

impl ScriptState {
    fn new(script: Script) -> Self {
        Self {
            played: vec![0; script.steps.len()],
            script,
        }
    }
}

impl ModelState {
    /// The key file is read on each request, so a rotated key is valid at once.
    pub fn new(api_key_file: PathBuf, script: Script) -> Arc<Self> {
        Arc::new(Self {
            api_key_file,
            script: Mutex::new(ScriptState::new(script)),
            recorder: Recorder::default(),
            stored: StoredResponses::default(),
            counter: AtomicU64::new(1),
        })
    }

    /// The recorded requests, for tests in the same process.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Chooses the reply for this request and counts the play.
    fn play(&self, conversation: &Conversation) -> Result<(usize, Reply), ScriptError> {
        let mut playing = self.script.lock();
        let playing = &mut *playing;
        let index = playing
            .script
            .select(conversation, &playing.played)
            .ok_or(ScriptError::NoStep)?;
        playing.played[index] += 1;
        Ok((index, playing.script.steps[index].reply.clone()))
    }

    async fn authorized(&self, headers: &HeaderMap) -> bool {
        match tokio::fs::read_to_string(&self.api_key_file).await {
            Ok(key) => !key.trim().is_empty() && credential(headers) == Some(key.trim()),
            Err(error) => {
                tracing::error!(%error, file = %self.api_key_file.display(), "API key file cannot be read");
                false
            }
        }
    }
}

pub fn router(state: Arc<ModelState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/responses", post(responses))
        .route("/v1/models", get(models))
        .route("/script", post(replace_script))
        .route("/requests", get(requests).delete(forget))
        .route("/healthz", get(async || "ok"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

type Model = State<Arc<ModelState>>;
type Connection = ConnectInfo<ResetHandle>;

async fn chat_completions(
    model: Model,
    connection: Connection,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    converse(
        Dialect::OpenAi,
        "/v1/chat/completions",
        model,
        connection,
        headers,
        body,
    )
    .await
}

async fn messages(
    model: Model,
    connection: Connection,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    converse(
        Dialect::Anthropic,
        "/v1/messages",
        model,
        connection,
        headers,
        body,
    )
    .await
}

/// Counts each tool and each message as one token.
async fn count_tokens(body: Bytes) -> Response<Body> {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let length = |field: &str| body[field].as_array().map_or(0, Vec::len);
    let count = json!({"input_tokens": length("tools") + length("messages")});
    let mut response = Response::new(Body::from(count.to_string()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

async fn responses(
    model: Model,
    connection: Connection,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    converse(
        Dialect::Responses,
        "/v1/responses",
        model,
        connection,
        headers,
        body,
    )
    .await
}

/// Handles one model request: authorizes, chooses the step, records, answers.
async fn converse(
    dialect: Dialect,
    path: &str,
    State(model): Model,
    ConnectInfo(connection): Connection,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let authorized = model.authorized(&headers).await;
    let outcome = if authorized {
        decide(&model, dialect, &body)
    } else {
        Outcome::unauthorized()
    };
    tracing::info!(path, authorized, answer = outcome.summary, "request");
    model.recorder.push(
        ("POST", path),
        authorized,
        &headers,
        &body,
        outcome.summary.clone(),
    );
    outcome.respond(dialect, &connection).await
}

/// The response to a request.
struct Outcome {
    /// A short description for the record and the log.
    summary: String,
    delay: Duration,
    kind: OutcomeKind,
}

enum OutcomeKind {
    Error {
        status: u16,
        code: &'static str,
        message: String,
        retry_after: Option<u32>,
    },
    Reset,
    Reply {
        reply: ModelReply,
        stream: bool,
        between: Duration,
        damage: Damage,
    },
}

/// A fault of a response in transit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    Truncated,
    Malformed,
}

impl Outcome {
    fn error(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        let kind = OutcomeKind::Error {
            status,
            code,
            message: message.into(),
            retry_after: None,
        };
        Self {
            summary: format!("{status} {code}"),
            delay: Duration::ZERO,
            kind,
        }
    }

    fn unauthorized() -> Self {
        Self::error(401, "invalid_api_key", "Incorrect API key provided.")
    }
}

fn decide(model: &ModelState, dialect: Dialect, body: &[u8]) -> Outcome {
    let Ok(mut request) = serde_json::from_slice::<Value>(body) else {
        return Outcome::error(400, "invalid_json", "The body is not JSON.");
    };
    if dialect == Dialect::Responses
        && let Err(error) = model.stored.resolve(&mut request)
    {
        return Outcome::error(400, "invalid_request_error", error.to_string());
    }
    let conversation = Conversation::read(dialect, &request);
    let played = model.play(&conversation).and_then(|(index, reply)| {
        let calls = reply.calls_for(&conversation, || format!("call_{}", model.next()))?;
        Ok((index, calls, reply))
    });
    let (index, calls, reply) = match played {
        Ok(played) => played,
        Err(error) => return Outcome::error(400, "script_error", error.to_string()),
    };
    let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
    let what = if names.is_empty() {
        "text".to_string()
    } else {
        format!("calls {}", names.join(", "))
    };
    let damage = match &reply.fault {
        Some(Fault::Truncated) => Damage::Truncated,
        Some(Fault::Malformed) => Damage::Malformed,
        Some(Fault::Reset | Fault::Status { .. }) | None => Damage::None,
    };
    let kind = match &reply.fault {
        Some(Fault::Reset) => OutcomeKind::Reset,
        Some(Fault::Status {
            code,
            retry_after,
            message,
        }) => OutcomeKind::Error {
            status: *code,
            code: "scripted_fault",
            message: message
                .clone()
                .unwrap_or_else(|| "scripted fault".to_string()),
            retry_after: *retry_after,
        },
        Some(Fault::Truncated | Fault::Malformed) | None => {
            let model_reply = ModelReply {
                number: model.next(),
                created: unix_seconds(),
                model: conversation.model.clone(),
                text: reply.text_for(&conversation),
                reasoning: reply.reasoning.clone(),
                calls,
                finish: reply.finish.clone(),
                usage: reply.usage,
                previous_response_id: request["previous_response_id"].as_str().map(str::to_owned),
                usage_in_stream: request["stream_options"]["include_usage"] == json!(true),
            };
            if dialect == Dialect::Responses && damage == Damage::None {
                let response = wire::document(dialect, &model_reply);
                model.stored.store(&request, &response);
            }
            OutcomeKind::Reply {
                reply: model_reply,
                stream: conversation.stream,
                between: Duration::from_millis(reply.between_ms),
                damage,
            }
        }
    };
    let summary = match &reply.fault {
        Some(fault) => format!("step {index}: {fault:?}"),
        None => format!("step {index}: {what}"),
    };
    Outcome {
        summary,
        delay: Duration::from_millis(reply.delay_ms),
        kind,
    }
}

impl Outcome {
    async fn respond(self, dialect: Dialect, connection: &ResetHandle) -> Response<Body> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match self.kind {
            OutcomeKind::Reset => {
                connection.reset();
                json_response(StatusCode::OK, &Value::Null)
            }
            OutcomeKind::Error {
                status,
                code,
                message,
                retry_after,
            } => {
                let status =
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let body = wire::error(dialect, status.as_u16(), code, &message);
                let mut response = json_response(status, &body);
                if let Some(seconds) = retry_after {
                    response
                        .headers_mut()
                        .insert(header::RETRY_AFTER, seconds.into());
                }
                response
            }
            OutcomeKind::Reply {
                reply,
                stream: true,
                between,
                damage,
            } => stream_response(wire::frames(dialect, &reply), between, damage),
            OutcomeKind::Reply {
                reply,
                stream: false,
                damage,
                ..
            } => document_response(&wire::document(dialect, &reply), damage),
        }
    }
}

fn document_response(document: &Value, damage: Damage) -> Response<Body> {
    let text = document.to_string();
    let half = text[..text.floor_char_boundary(text.len() / 2)].to_string();
    let body = match damage {
        Damage::None => Body::from(text),
        Damage::Malformed => Body::from(half),
        // An error in the body ends the connection before the body's end.
        Damage::Truncated => Body::from_stream(stream::iter([Ok(half)]).chain(truncation())),
    };
    response(StatusCode::OK, "application/json", body)
}

fn stream_response(mut frames: Vec<String>, between: Duration, damage: Damage) -> Response<Body> {
    let middle = frames.len() / 2;
    match damage {
        Damage::None => {}
        Damage::Malformed => frames[middle] = "data: {\"scripted\": mal\n\n".to_string(),
        Damage::Truncated => frames.truncate(middle),
    }
    let end = (damage == Damage::Truncated).then(truncation);
    let paced =
        stream::iter(frames.into_iter().enumerate()).then(move |(index, frame)| async move {
            if index > 0 && !between.is_zero() {
                tokio::time::sleep(between).await;
            }
            Ok::<_, std::io::Error>(frame)
        });
    let body = Body::from_stream(paced.chain(stream::iter(end).flatten()));
    response(StatusCode::OK, "text/event-stream", body)
}

/// Ends a body with an error after the earlier bytes are on the wire. The yield leaves the body
/// pending, and the server flushes a pending body.
fn truncation<T>() -> impl Stream<Item = std::io::Result<T>> {
    stream::once(async {
        tokio::task::yield_now().await;
        Err(std::io::Error::other("scripted truncation"))
    })
}

fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    response(status, "application/json", Body::from(body.to_string()))
}

fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = header::HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

async fn models(State(model): Model, headers: HeaderMap) -> Response<Body> {
    if !model.authorized(&headers).await {
        return refused();
    }
    let scripted =
        json!({"id": "scripted", "object": "model", "created": 0, "owned_by": "scripted"});
    json_response(
        StatusCode::OK,
        &json!({"object": "list", "data": [scripted]}),
    )
}

async fn replace_script(State(model): Model, headers: HeaderMap, body: String) -> Response<Body> {
    if !model.authorized(&headers).await {
        return refused();
    }
    match Script::parse(&body) {
        Ok(script) => {
            let steps = script.steps.len();
            *model.script.lock() = ScriptState::new(script);
            json_response(StatusCode::OK, &json!({"steps": steps}))
        }
        Err(error) => {
            let body = wire::error(Dialect::OpenAi, 400, "script_error", &error.to_string());
            json_response(StatusCode::BAD_REQUEST, &body)
        }
    }
}

async fn requests(State(model): Model, headers: HeaderMap, uri: Uri) -> Response<Body> {
    if !model.authorized(&headers).await {
        return refused();
    }
    let since = uri.query().and_then(|query| query.strip_prefix("since="));
    let Ok(since) = since.map_or(Ok(0), str::parse) else {
        let body = wire::error(Dialect::OpenAi, 400, "bad_query", "use ?since=NUMBER");
        return json_response(StatusCode::BAD_REQUEST, &body);
    };
    let text = serde_json::to_string(&model.recorder.since(since)).expect("plain data serializes");
    response(StatusCode::OK, "application/json", Body::from(text))
}

async fn forget(State(model): Model, headers: HeaderMap) -> Response<Body> {
    if !model.authorized(&headers).await {
        return refused();
    }
    model.recorder.clear();
    tracing::info!("recorded requests cleared");
    json_response(StatusCode::OK, &json!({}))
}

fn refused() -> Response<Body> {
    let body = wire::error(
        Dialect::OpenAi,
        401,
        "invalid_api_key",
        "Incorrect API key provided.",
    );
    json_response(StatusCode::UNAUTHORIZED, &body)
}
