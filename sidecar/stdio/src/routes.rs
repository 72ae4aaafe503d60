//! The HTTP routes: `/mcp` in both forms of the protocol, and two probes.
//!
//! Every answer is one JSON document; there is no event stream. Requests with an `Origin` are
//! refused, so that no web page reaches a server on a user's machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_TYPE, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_mcp::code::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND};
use toolcrib_mcp::header::SESSION_HEADER;
use toolcrib_mcp::revision::{self, Form};
use toolcrib_mcp::{Fault, Message, Raw, ReplyBody, RpcResponse, members, raw, reply};
use toolcrib_serve::{BodyError, read_body};
use toolcrib_sidecar::app::sessions::{SessionId, Sessions};

use crate::program::Caller;
use crate::relay::Relay;
use crate::revision::{Method, for_child, for_stateless};
use crate::token::TokenFile;

/// Limits the bytes of a request's body.
const BODY: usize = 1024 * 1024;
/// Timeout for receiving the body.
const BODY_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct App {
    pub relay: Relay,
    pub sessions: Sessions<()>,
    /// `None`: every client may call.
    pub token: Option<TokenFile>,
}

impl App {
    /// Returns a refusal if the headers alone exclude the client, whatever its request.
    fn refusal_of(&self, headers: &HeaderMap) -> Option<Response> {
        if headers.contains_key(ORIGIN) {
            return Some(StatusCode::FORBIDDEN.into_response());
        }
        let token = self.token.as_ref()?;
        let challenge = [(WWW_AUTHENTICATE, "Bearer")];
        (!token.accepts(headers)).then(|| (StatusCode::UNAUTHORIZED, challenge).into_response())
    }
}

pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/mcp", post(receive).delete(end_session))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(app)
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.relay.is_ready() {
        "ok\n".into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the program is not running\n",
        )
            .into_response()
    }
}

async fn end_session(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Some(refused) = app.refusal_of(&headers) {
        return refused;
    }
    match session_name(&headers) {
        None => StatusCode::BAD_REQUEST.into_response(),
        Some(name) if app.sessions.end(name) => StatusCode::NO_CONTENT.into_response(),
        Some(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn receive(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    if let Some(refused) = app.refusal_of(&headers) {
        return refused;
    }
    let body = match tokio::time::timeout(BODY_TIME, read_body(body, BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(BodyError::TooLarge)) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Ok(Err(BodyError::Broken(_))) => return StatusCode::BAD_REQUEST.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    let form = revision::form(&headers);
    let message = match Message::parse(&body) {
        Ok(message) => message,
        Err(malformed) => return refusal(form, None, &malformed.into()),
    };
    match form {
        Form::Handshake => in_session(&app, &headers, message).await,
        Form::Stateless => stateless(&app, &headers, message).await,
    }
}

async fn in_session(app: &App, headers: &HeaderMap, message: Message) -> Response {
    let form = Form::Handshake;
    if let Message::Request { id, method, params } = &message
        && method == "initialize"
    {
        return initialize(app, id, params.as_deref()).await;
    }
    let Some(name) = session_name(headers) else {
        let fault = Fault::new(
            INVALID_REQUEST,
            "no session is named: begin with initialize",
        );
        return refusal(form, None, &fault);
    };
    let Some((session, ())) = app.sessions.find(name, Instant::now()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match message {
        Message::Request { id, method, .. } if method == "ping" => {
            answer(form, &id, ReplyBody::Result(&raw(&serde_json::json!({}))))
        }
        Message::Request { id, method, params } => {
            let caller = Caller {
                session: Some(session),
                id,
            };
            call(app, form, caller, &method, params.as_deref()).await
        }
        Message::Notification { method, params } => {
            if method == "notifications/cancelled"
                && let Some(id) = cancelled(params.as_deref())
            {
                app.relay.cancel(&session, &id);
            }
            StatusCode::ACCEPTED.into_response()
        }
        // The wrapper sends no requests to clients, so it ignores their answers.
        Message::Response { .. } => StatusCode::ACCEPTED.into_response(),
    }
}

async fn initialize(app: &App, id: &RawValue, params: Option<&RawValue>) -> Response {
    let form = Form::Handshake;
    let about = match app.relay.about().await {
        Ok(about) => about,
        Err(error) => return answer(form, id, ReplyBody::Fault(&error.fault())),
    };
    let session: SessionId = match app.sessions.begin((), Instant::now()) {
        Ok(session) => session,
        Err(error) => {
            tracing::error!(
                error = error.to_string(),
                "session not created: no randomness"
            );
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let answered = answer(form, id, ReplyBody::Result(&about.initialized(params)));
    ([(SESSION_HEADER, session.as_str())], answered).into_response()
}

async fn stateless(app: &App, headers: &HeaderMap, message: Message) -> Response {
    let form = Form::Stateless;
    let (id, method, params) = match message {
        Message::Request { id, method, params } => (id, method, params),
        // Notifications have no effect in this form: a client cancels by closing its connection.
        Message::Notification { .. } => {
            return match revision::check_version(headers) {
                Ok(()) => StatusCode::ACCEPTED.into_response(),
                Err(fault) => refusal(form, None, &fault),
            };
        }
        Message::Response { .. } => {
            let fault = Fault::new(INVALID_REQUEST, "the message is not a request");
            return refusal(form, None, &fault);
        }
    };
    if let Err(fault) = revision::check_envelope(headers, &method, params.as_deref()) {
        return refusal(form, Some(&id), &fault);
    }
    if method == "server/discover" {
        return match app.relay.about().await {
            Ok(about) => answer(form, &id, ReplyBody::Result(&about.discovered())),
            Err(error) => answer(form, &id, ReplyBody::Fault(&error.fault())),
        };
    }
    if method == Method::CallTool.name()
        && let Err(fault) = app.relay.check(headers, params.as_deref())
    {
        return refusal(form, Some(&id), &fault);
    }
    let caller = Caller { session: None, id };
    call(app, form, caller, &method, params.as_deref()).await
}

async fn call(
    app: &App,
    form: Form,
    caller: Caller,
    method: &str,
    params: Option<&RawValue>,
) -> Response {
    let id = caller.id.clone();
    let Some(method) = Method::parse(method) else {
        let fault = Fault::new(METHOD_NOT_FOUND, "this method is not offered");
        return refusal(form, Some(&id), &fault);
    };
    let params = match for_child(params) {
        Ok(params) => params,
        Err(fault) => return refusal(form, Some(&id), &fault),
    };
    match app.relay.call(caller, method, params.as_ref()).await {
        Ok(RpcResponse::Result(result)) => match form {
            Form::Handshake => answer(form, &id, ReplyBody::Result(&result)),
            Form::Stateless => match for_stateless(method, &result) {
                Some(result) => answer(form, &id, ReplyBody::Result(&result)),
                None => {
                    let fault = Fault::new(INTERNAL_ERROR, "the program's result is not an object");
                    answer(form, &id, ReplyBody::Fault(&fault))
                }
            },
        },
        Ok(RpcResponse::Error(error)) => answer(form, &id, ReplyBody::Error(&error)),
        Err(error) => answer(form, &id, ReplyBody::Fault(&error.fault())),
    }
}

fn session_name(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

/// Returns the id that `notifications/cancelled` names.
fn cancelled(params: Option<&RawValue>) -> Option<Raw> {
    members(params?)?.remove("requestId")
}

/// Encodes the error of a request that did not reach the child.
fn refusal(form: Form, id: Option<&RawValue>, fault: &Fault) -> Response {
    document(
        revision::status(form, Some(fault.code)),
        reply(id, ReplyBody::Fault(fault)),
    )
}

fn answer(form: Form, id: &RawValue, said: ReplyBody<'_>) -> Response {
    let code = match said {
        ReplyBody::Result(_) => None,
        ReplyBody::Error(error) => code(error),
        ReplyBody::Fault(fault) => Some(fault.code),
    };
    document(revision::status(form, code), reply(Some(id), said))
}

fn code(error: &RawValue) -> Option<i64> {
    #[derive(Deserialize)]
    struct ErrorCode {
        code: i64,
    }
    let coded: ErrorCode = serde_json::from_str(error.get()).ok()?;
    Some(coded.code)
}

fn document(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
