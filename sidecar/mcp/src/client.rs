//! The client side of MCP: encodes the messages of a client, and classifies a server's message for
//! the request in flight. Pure.
//!
//! The mediator uses this module to call tools, the command line to list them. Each user has a
//! transport, an order of requests and bounds of its own.
//!
//! Invariant: an answer belongs to a request only if its id is exactly the text that the client
//! sent.

use http::HeaderMap;
use http::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::code::METHOD_NOT_FOUND;
use crate::header::{self, METHOD_HEADER, NAME_HEADER, SESSION_HEADER, VERSION_HEADER};
use crate::message::{Raw, raw};
use crate::revision::{
    Form, HANDSHAKE, META, NEWEST_HANDSHAKE, STATELESS, implementation, request_meta,
};

/// The name and version that a client sends as `clientInfo`.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    name: &'static str,
    version: &'static str,
}

impl Client {
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version }
    }

    /// Asks for the revisions of a server.
    pub fn discover(&self, id: u64) -> String {
        request(id, "server/discover", &[(META, &self.meta())])
    }

    pub fn initialize(&self, id: u64) -> String {
        let members = [
            ("protocolVersion", &*quoted(NEWEST_HANDSHAKE)),
            ("capabilities", "{}"),
            ("clientInfo", &self.info().to_string()),
        ];
        request(id, "initialize", &members)
    }

    /// `arguments` is a JSON object; its bytes are sent unchanged.
    pub fn call(&self, id: u64, name: &str, arguments: &str, form: Form) -> String {
        let name = quoted(name);
        let members = [("name", &*name), ("arguments", arguments)];
        self.request_in(form, id, "tools/call", &members)
    }

    /// Asks for the page of tools at `cursor`, or the first one.
    pub fn list_tools(&self, id: u64, cursor: Option<&str>, form: Form) -> String {
        let cursor = cursor.map(quoted);
        let members = cursor.as_deref().map(|cursor| ("cursor", cursor));
        self.request_in(form, id, "tools/list", members.as_slice())
    }

    fn request_in(&self, form: Form, id: u64, method: &str, members: &[(&str, &str)]) -> String {
        match form {
            Form::Handshake => request(id, method, members),
            Form::Stateless => {
                let meta = self.meta();
                request(id, method, &[members, &[(META, &*meta)]].concat())
            }
        }
    }

    fn info(&self) -> Value {
        implementation(self.name, self.version)
    }

    fn meta(&self) -> String {
        request_meta(self.info()).to_string()
    }
}

pub fn initialized() -> String {
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned()
}

pub fn cancelled(id: u64) -> String {
    let params = object(&[
        ("requestId", &id.to_string()),
        ("reason", &quoted("the result is no longer needed")),
    ]);
    object(&[
        ("jsonrpc", "\"2.0\""),
        ("method", "\"notifications/cancelled\""),
        ("params", &params),
    ])
}

fn request(id: u64, method: &str, params: &[(&str, &str)]) -> String {
    object(&[
        ("jsonrpc", "\"2.0\""),
        ("id", &id.to_string()),
        ("method", &quoted(method)),
        ("params", &object(params)),
    ])
}

/// Encodes an object. The members' values are JSON already.
fn object(members: &[(&str, &str)]) -> String {
    let members = members.iter();
    let members = members.map(|(key, value)| format!("{}:{value}", quoted(key)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The protocol that a client negotiated with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    Stateless,
    Handshake {
        revision: &'static str,
        session: Option<HeaderValue>,
    },
}

impl Protocol {
    pub fn form(&self) -> Form {
        match self {
            Self::Stateless => Form::Stateless,
            Self::Handshake { .. } => Form::Handshake,
        }
    }

    pub fn has_session(&self) -> bool {
        matches!(
            self,
            Self::Handshake {
                session: Some(_),
                ..
            }
        )
    }

    /// Returns the headers that every message needs.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Stateless => {
                headers.insert(VERSION_HEADER, HeaderValue::from_static(STATELESS));
            }
            Self::Handshake { revision, session } => {
                headers.insert(VERSION_HEADER, HeaderValue::from_static(revision));
                if let Some(session) = session {
                    headers.insert(SESSION_HEADER, session.clone());
                }
            }
        }
        headers
    }

    /// Returns the headers of a request; `name` is the tool's name in a `tools/call`.
    pub fn request_headers(&self, method: &'static str, name: Option<&str>) -> HeaderMap {
        let mut headers = self.headers();
        if self.form() == Form::Stateless {
            headers.insert(METHOD_HEADER, HeaderValue::from_static(method));
            if let Some(name) = name {
                headers.insert(NAME_HEADER, header::value(name));
            }
        }
        headers
    }
}

/// A server's error instead of a result.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RpcError {
    pub code: i64,
    #[serde(default)]
    pub message: String,
}

/// A server's response: the unchanged result, or an error.
pub type RpcResult = Result<Raw, RpcError>;

/// A message of a server, for a client that waits for one response.
#[derive(Debug)]
pub enum ServerMessage {
    /// The response that the client waits for.
    Response(RpcResult),
    /// A response to another request, or an error without an id.
    OtherResponse(RpcResult),
    Request(ServerRequest),
    Notification,
}

#[derive(Deserialize)]
struct OnWire<'a> {
    jsonrpc: String,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

impl ServerMessage {
    /// Decodes a server's message for a client that waits for the response to the request `id`.
    /// Returns `None` if the text is not exactly one JSON-RPC message.
    pub fn read(text: &str, id: u64) -> Option<Self> {
        let wire: OnWire = serde_json::from_str(text).ok()?;
        if wire.jsonrpc != "2.0" {
            return None;
        }
        let is_awaited = wire.id.is_some_and(|it| it.get() == id.to_string());
        let answered = |answer| match is_awaited {
            true => Self::Response(answer),
            false => Self::OtherResponse(answer),
        };
        match (wire.method, wire.id, wire.result, wire.error) {
            (Some(method), Some(id), None, None) => Some(Self::Request(ServerRequest {
                id: id.to_owned(),
                method,
            })),
            (Some(_), None, None, None) => Some(Self::Notification),
            (None, Some(_), Some(result), None) => Some(answered(Ok(result.to_owned()))),
            // Some servers answer a request that they could not read with the id null.
            (None, _, None, Some(error)) => Some(answered(Err(error))),
            _ => None,
        }
    }
}

/// A request of a server to its client.
#[derive(Debug)]
pub struct ServerRequest {
    /// The id, with its bytes unchanged.
    id: Raw,
    method: String,
}

impl ServerRequest {
    /// Returns the kind of a refused request, from a closed list, or `None` for a ping, which is
    /// answered.
    pub fn refused_as(&self) -> Option<&'static str> {
        match self.method.as_str() {
            "ping" => None,
            "sampling/createMessage" => Some("sampling"),
            "elicitation/create" => Some("elicitation"),
            "roots/list" => Some("roots"),
            _ => Some("other"),
        }
    }

    /// Encodes the reply: an empty result for a ping, `METHOD_NOT_FOUND` for every other request.
    pub fn reply(&self) -> String {
        let (outcome, content) = match self.refused_as() {
            None => ("result", raw(&Value::Object(serde_json::Map::new()))),
            Some(_) => ("error", raw(&Refusal::default())),
        };
        let (id, content) = (self.id.get(), content.get());
        object(&[("jsonrpc", "\"2.0\""), ("id", id), (outcome, content)])
    }
}

#[derive(Serialize)]
struct Refusal {
    code: i64,
    message: &'static str,
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            code: METHOD_NOT_FOUND,
            message: "this client offers nothing",
        }
    }
}

/// True if a `server/discover` result lists the stateless revision.
pub fn lists_stateless(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct DiscoverResult {
        #[serde(rename = "supportedVersions")]
        supported: Vec<String>,
    }
    serde_json::from_str::<DiscoverResult>(result.get())
        .is_ok_and(|discovered| discovered.supported.iter().any(|it| it == STATELESS))
}

/// Returns the revision in an `initialize` result, if this client supports it. `tools/list` and
/// `tools/call` are the same in all of these revisions. The oldest one has another transport, but
/// bridges for older programs answer a POST with it.
pub fn settled(result: &RawValue) -> Option<&'static str> {
    #[derive(Deserialize)]
    struct InitializeResult {
        #[serde(rename = "protocolVersion")]
        revision: String,
    }
    let settled: InitializeResult = serde_json::from_str(result.get()).ok()?;
    HANDSHAKE.into_iter().find(|it| *it == settled.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client = Client::new("otter", "3");

    /// Checks how a client that waits for the answer to request 7 classifies the text.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let seen = match ServerMessage::read(text, 7) {
            None => "nothing".to_string(),
            Some(ServerMessage::Notification) => "notification".to_string(),
            Some(ServerMessage::Request(request)) => {
                format!("asks {:?}: {}", request.refused_as(), request.reply())
            }
            Some(ServerMessage::Response(answer)) => format!("answer: {answer:?}"),
            Some(ServerMessage::OtherResponse(answer)) => format!("other: {answer:?}"),
        };
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn a_text_is_exactly_one_message_or_none() {
        check(
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1.0}}"#,
            r#"answer: Ok(RawValue({"a":1.0}))"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-3,"message":"no","data":[]}}"#,
            r#"answer: Err(RpcError { code: -3, message: "no" })"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-3}}"#,
            r#"other: Err(RpcError { code: -3, message: "" })"#,
        );
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
            "notification",
        );
        check(
            r#"{"jsonrpc":"2.0","id":"s-1","method":"roots/list"}"#,
            r#"asks Some("roots"): {"jsonrpc":"2.0","id":"s-1","error":{"code":-32601,"message":"this client offers nothing"}}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#,
            r#"asks None: {"jsonrpc":"2.0","id":3,"result":{}}"#,
        );
        for nothing in [
            "",
            "[]",
            "{}",
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"x","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":"no fish here"}"#,
        ] {
            check(nothing, "nothing");
        }
    }

    #[test]
    fn only_the_id_as_it_was_sent_is_answered() {
        for id in [r#""7""#, "7.0", "07", "8", "null", "[7]"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            let read = ServerMessage::read(&text, 7);
            assert!(
                matches!(read, None | Some(ServerMessage::OtherResponse(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn requests_have_the_form_of_their_revision() {
        let meta = r#""_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"otter","version":"3"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let arguments = r#"{"n":12345678901234567890.0}"#;
        for (text, method, params) in [
            (
                CLIENT.call(7, "catch", arguments, Form::Handshake),
                "tools/call",
                format!(r#"{{"name":"catch","arguments":{arguments}}}"#),
            ),
            (
                CLIENT.call(7, "catch", arguments, Form::Stateless),
                "tools/call",
                format!(r#"{{"name":"catch","arguments":{arguments},{meta}}}"#),
            ),
            (
                CLIENT.list_tools(7, None, Form::Handshake),
                "tools/list",
                "{}".to_string(),
            ),
            (
                CLIENT.list_tools(7, Some("\"more\""), Form::Stateless),
                "tools/list",
                format!(r#"{{"cursor":"\"more\"",{meta}}}"#),
            ),
            (
                CLIENT.discover(7),
                "server/discover",
                format!("{{{meta}}}"),
            ),
            (
                CLIENT.initialize(7),
                "initialize",
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"otter","version":"3"}}"#.to_string(),
            ),
        ] {
            let expected =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(read(&text), read(&expected));
            // A number keeps its digits.
            assert_eq!(text.contains(arguments), method == "tools/call");
        }
    }

    #[test]
    fn only_supported_revisions_are_settled_on() {
        let raw = |text: &str| RawValue::from_string(text.to_string()).unwrap();
        for revision in ["2025-06-18", "2024-11-05"] {
            let result = format!(r#"{{"protocolVersion":"{revision}"}}"#);
            assert_eq!(settled(&raw(&result)), Some(revision));
        }
        assert_eq!(settled(&raw(r#"{"protocolVersion":"2026-07-28"}"#)), None);
        assert_eq!(settled(&raw("{}")), None);
        assert!(lists_stateless(&raw(
            r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#
        )));
        assert!(!lists_stateless(&raw(
            r#"{"supportedVersions":["2025-11-25"]}"#
        )));
    }
}
