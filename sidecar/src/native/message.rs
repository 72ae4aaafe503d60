//! Reads one message of a client, and refuses unsupported ones.

use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ACCEPT, HeaderMap};
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_bounds::json::nests_within;
use toolcrib_dialect::json::Object;
use toolcrib_mcp::code::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR};
use toolcrib_mcp::header::{SESSION_HEADER, check_mirrored};
use toolcrib_mcp::revision::{
    self, Form, META, NEWEST_HANDSHAKE, SERVER_KEY, STATELESS, implementation, settled,
};
use toolcrib_mcp::{Fault, MAX_DEPTH, Message, Raw, ReplyBody, members, raw, reply};
use toolcrib_mediation::{NameOwner, PresentedTools};

use super::answer::{NOT_SERVED, Refusal, document, uncached};
use super::call::Call;
use super::changes::{self, StreamOwner, Subscription};
use super::listing::Listing;
use crate::app::App;
use crate::app::sessions::client::Session;
use crate::config::EffectiveConfig;
use crate::request::admission::recordable;
use crate::request::caller::Caller;

/// Most bytes of a token for progress, which is repeated in each notification.
const MAX_TOKEN: usize = 256;

/// The next step for a message: its answer, or a call to run.
pub enum NextStep {
    Answered(Response),
    Call(Box<Call>),
}

/// A message of an authenticated client.
pub struct ClientMessage<'a> {
    pub app: &'a Arc<App>,
    pub now: &'a EffectiveConfig,
    pub headers: &'a HeaderMap,
    pub caller: Caller,
    pub body: Vec<u8>,
}

impl ClientMessage<'_> {
    pub fn next(self) -> Result<NextStep, Refusal> {
        let form = revision::form(self.headers);
        let is_flat = std::str::from_utf8(&self.body).is_ok_and(|it| nests_within(it, MAX_DEPTH));
        if !is_flat {
            let fault = Fault::new(PARSE_ERROR, "the body is no JSON, or nested too deeply");
            return Err(Refusal::of(form, fault));
        }
        let message = Message::parse(&self.body).map_err(|it| Refusal::of(form, it.into()))?;
        match form {
            Form::Handshake => self.in_session(message),
            Form::Stateless => self.stateless(message),
        }
    }

    fn in_session(self, message: Message) -> Result<NextStep, Refusal> {
        let form = Form::Handshake;
        if let Message::Request { id, method, params } = &message
            && method == "initialize"
        {
            return self.initialize(id, params.as_deref());
        }
        let session = session(self.app, self.headers, &self.caller)?;
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            Message::Notification { method, params } => {
                let named = params.as_deref().and_then(members);
                if method == "notifications/cancelled"
                    && let Some(id) = named.and_then(|mut params| params.remove("requestId"))
                {
                    session.cancel(&id);
                }
                return Ok(NextStep::Answered(StatusCode::ACCEPTED.into_response()));
            }
            // The mediator sends no requests to clients, so it expects no answers.
            Message::Response { .. } => {
                return Ok(NextStep::Answered(StatusCode::ACCEPTED.into_response()));
            }
        };
        match method.as_str() {
            "ping" => Ok(answer(&id, &raw(&json!({})))),
            "tools/list" => {
                let listing = self.listing(form, &id, params.as_deref())?;
                session.told.renew(listing.digest);
                Ok(answer(&id, &uncached(form, [("tools", listing.tools)])))
            }
            "tools/call" => self.call(form, id, params.as_deref(), Some(&session)),
            _ => Err(unknown(form).to(&id)),
        }
    }

    fn initialize(self, id: &RawValue, params: Option<&RawValue>) -> Result<NextStep, Refusal> {
        let result = json!({
            "protocolVersion": settled(params, NEWEST_HANDSHAKE),
            "capabilities": capabilities(),
            "serverInfo": server(),
        });
        let session = Arc::new(Session::new(&self.caller.agent));
        let begun = self.app.native.sessions.begin(session, Instant::now());
        let name = begun.map_err(|error| {
            tracing::error!(
                error = error.to_string(),
                "MCP session not created: no randomness"
            );
            let fault = Fault::new(NOT_SERVED, "no session can begin");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, fault).to(id)
        })?;
        let body = reply(Some(id), ReplyBody::Result(&raw(&result)));
        let greeting = document(StatusCode::OK, body);
        let named = ([(SESSION_HEADER, name.as_str())], greeting);
        Ok(NextStep::Answered(named.into_response()))
    }

    fn stateless(self, message: Message) -> Result<NextStep, Refusal> {
        let form = Form::Stateless;
        let refuse = |fault| Refusal::of(form, fault);
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            // Ignored: without a session a client cancels by closing its connection.
            Message::Notification { .. } => {
                revision::check_version(self.headers).map_err(refuse)?;
                return Ok(NextStep::Answered(StatusCode::ACCEPTED.into_response()));
            }
            Message::Response { .. } => {
                return Err(refuse(Fault::new(
                    INVALID_REQUEST,
                    "the message is not a request",
                )));
            }
        };
        revision::check_envelope(self.headers, &method, params.as_deref())
            .map_err(|fault| refuse(fault).to(&id))?;
        match method.as_str() {
            "server/discover" => {
                let described = [
                    ("supportedVersions", raw(&[STATELESS])),
                    ("capabilities", raw(&capabilities())),
                    (META, raw(&json!({SERVER_KEY: server()}))),
                ];
                Ok(answer(&id, &uncached(form, described)))
            }
            "tools/list" => {
                let listing = self.listing(form, &id, params.as_deref())?;
                Ok(answer(&id, &uncached(form, [("tools", listing.tools)])))
            }
            "tools/call" => self.call(form, id, params.as_deref(), None),
            "subscriptions/listen" => {
                let wanted = params.as_deref().and_then(members);
                let wanted = wanted.and_then(|params| members(params.get("notifications")?));
                let wanted = wanted.ok_or_else(|| {
                    let what = "params.notifications must say what to announce";
                    refuse(Fault::new(INVALID_PARAMS, what)).to(&id)
                })?;
                let tools = wanted.get("toolsListChanged");
                let of = StreamOwner::Subscription(Subscription {
                    id: id.clone(),
                    of_tools: tools.is_some_and(|it| it.get() == "true"),
                });
                let stream = changes::stream(self.app, &self.caller.runner, of);
                stream
                    .map(NextStep::Answered)
                    .ok_or_else(|| too_many_streams().to(&id))
            }
            _ => Err(unknown(form).to(&id)),
        }
    }

    /// Lists the tools, all on one page: they fit into one Secret.
    fn listing(
        &self,
        form: Form,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Listing, Refusal> {
        let params = params.and_then(members).unwrap_or_default();
        if params.contains_key("cursor") {
            let fault = Fault::new(INVALID_PARAMS, "no cursor was given out");
            return Err(Refusal::of(form, fault).to(id));
        }
        Ok(Listing::of(&self.now.authority, jiff::Timestamp::now()))
    }

    fn call(
        self,
        form: Form,
        id: Raw,
        params: Option<&RawValue>,
        session: Option<&Arc<Session>>,
    ) -> Result<NextStep, Refusal> {
        let invalid = |what: &str| Refusal::of(form, Fault::new(INVALID_PARAMS, what)).to(&id);
        let object = params.ok_or_else(|| invalid("a call needs params"))?;
        // Two readers of a repeated key could see different calls.
        let once = Object::scan(object.get()).is_ok_and(|it| it.repeated().is_none());
        let mut params = members(object)
            .filter(|_| once)
            .ok_or_else(|| invalid("params must be an object, and name nothing twice"))?;
        if params.contains_key("task") {
            return Err(invalid("tasks are not offered"));
        }
        let name: String = params
            .remove("name")
            .and_then(|name| serde_json::from_str(name.get()).ok())
            .ok_or_else(|| invalid("params.name must be a text"))?;
        let arguments = params
            .remove("arguments")
            .filter(|arguments| arguments.get() != "null")
            .map_or_else(String::new, |arguments| arguments.get().to_owned());
        if form == Form::Stateless
            && let NameOwner::Managed(tool) =
                PresentedTools::alone(&self.now.authority, jiff::Timestamp::now()).resolve(&name)
        {
            check_mirrored(self.headers, tool.shown_schema(), &arguments)
                .map_err(|fault| Refusal::of(form, fault).to(&id))?;
        }
        let progress = params
            .remove("_meta")
            .and_then(|meta| members(&meta)?.remove("progressToken"))
            .filter(|token| token.get().len() <= MAX_TOKEN && reads_streams(self.headers));
        recordable(self.app).map_err(|error| Refusal::from(error).to(&id))?;
        let running = match session.map(|session| session.begin(&id)) {
            None => None,
            Some(Some(running)) => Some(running),
            Some(None) => {
                let fault = Fault::new(INVALID_REQUEST, "a request with this id is running");
                return Err(Refusal::of(form, fault).to(&id));
            }
        };
        Ok(NextStep::Call(Box::new(Call {
            caller: self.caller,
            form,
            id,
            name,
            arguments,
            body: self.body,
            progress,
            running,
        })))
    }
}

/// Returns the session that a request names, if it belongs to the caller's agent.
pub fn session(app: &App, headers: &HeaderMap, caller: &Caller) -> Result<Arc<Session>, Refusal> {
    let refuse = |status, what: &str| Refusal::new(status, Fault::new(INVALID_REQUEST, what));
    let name = session_name(headers).ok_or_else(|| {
        let what = "no session is named: begin with initialize";
        refuse(StatusCode::BAD_REQUEST, what)
    })?;
    app.native
        .sessions
        .find(name, Instant::now())
        .map(|(_, session)| session)
        .filter(|session| session.is_of(&caller.agent))
        .ok_or_else(|| {
            let what = "there is no such session: begin with initialize";
            refuse(StatusCode::NOT_FOUND, what)
        })
}

/// True if the client reads an answer that is a stream of events.
fn reads_streams(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|it| it.to_str().is_ok_and(|it| it.contains("text/event-stream")))
}

pub fn session_name(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

pub fn too_many_streams() -> Refusal {
    let fault = Fault::new(NOT_SERVED, "too many streams are open; try again later");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, fault)
}

fn unknown(form: Form) -> Refusal {
    let fault = Fault::new(METHOD_NOT_FOUND, "this method is not offered");
    Refusal::of(form, fault)
}

fn answer(id: &RawValue, result: &RawValue) -> NextStep {
    let body = reply(Some(id), ReplyBody::Result(result));
    NextStep::Answered(document(StatusCode::OK, body))
}

fn capabilities() -> serde_json::Value {
    json!({"tools": {"listChanged": true}})
}

fn server() -> serde_json::Value {
    implementation("toolcrib", env!("CARGO_PKG_VERSION"))
}
