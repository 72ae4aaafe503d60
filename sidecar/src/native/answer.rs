//! The answers to a client's messages: documents, results, and refusals.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_mcp::revision::{self, Form};
use toolcrib_mcp::{Fault, Members, Raw, ReplyBody, raw, reply};
use toolcrib_mediation::RunnerError;

/// The JSON-RPC code of a refusal that is not about the message; `data.code` has the reason.
pub const NOT_SERVED: i64 = -32000;

/// The reason why a message has no result.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    id: Option<Raw>,
    fault: Fault,
}

impl Refusal {
    pub fn new(status: StatusCode, fault: Fault) -> Self {
        Self {
            status,
            id: None,
            fault,
        }
    }

    /// Addresses the refusal to the request with this id.
    pub fn to(self, id: &RawValue) -> Self {
        let id = Some(id.to_owned());
        Self { id, ..self }
    }

    /// Makes a refusal with the HTTP status that the revision assigns to the code.
    pub fn of(form: Form, fault: Fault) -> Self {
        Self::new(revision::status(form, Some(fault.code)), fault)
    }

    pub fn body(&self) -> Vec<u8> {
        reply(self.id.as_deref(), ReplyBody::Fault(&self.fault))
    }
}

impl From<&RunnerError> for Refusal {
    fn from(error: &RunnerError) -> Self {
        let status = StatusCode::from_u16(error.status());
        let fault = Fault {
            data: Some(json!({"code": error.code.name()})),
            ..Fault::new(NOT_SERVED, error.to_string())
        };
        Self::new(status.unwrap_or(StatusCode::BAD_GATEWAY), fault)
    }
}

impl From<RunnerError> for Refusal {
    fn from(error: RunnerError) -> Self {
        Self::from(&error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = document(self.status, self.body());
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

pub fn document(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Makes a result with these members and those that its revision requires.
pub fn completed<'a>(form: Form, with: impl IntoIterator<Item = (&'a str, Raw)>) -> Raw {
    let with = with.into_iter();
    let mut result: Members = with.map(|(name, value)| (name.to_owned(), value)).collect();
    if form == Form::Stateless {
        result.insert("resultType".to_owned(), raw(&"complete"));
    }
    raw(&result)
}

/// Makes the result of a list or a description, which clients must not cache: it can change at
/// any time.
pub fn uncached<'a>(form: Form, with: impl IntoIterator<Item = (&'a str, Raw)>) -> Raw {
    let caching = [("ttlMs", raw(&0)), ("cacheScope", raw(&"private"))];
    let caching = caching.into_iter().filter(|_| form == Form::Stateless);
    completed(form, with.into_iter().chain(caching))
}
