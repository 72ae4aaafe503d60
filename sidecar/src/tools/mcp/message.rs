//! The JSON-RPC messages that this client reads and writes. Pure.
//!
//! Invariant: an answer belongs to a request only if its id is exactly the text that was sent.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_dialect::json;
use toolcrib_mcp::code::METHOD_NOT_FOUND;
use toolcrib_mcp::revision::{
    HANDSHAKE, META, NEWEST_HANDSHAKE, STATELESS, implementation, request_meta,
};

fn client_info() -> Value {
    implementation(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
}

fn meta() -> String {
    request_meta(client_info()).to_string()
}

fn request(id: u64, method: &str, params: String) -> String {
    json::object(&[
        ("jsonrpc", json::quote("2.0")),
        ("id", id.to_string()),
        ("method", json::quote(method)),
        ("params", params),
    ])
}

fn notification(method: &str, params: Option<String>) -> String {
    let mut members = vec![
        ("jsonrpc", json::quote("2.0")),
        ("method", json::quote(method)),
    ];
    members.extend(params.map(|params| ("params", params)));
    json::object(&members)
}

pub fn discover(id: u64) -> String {
    request(id, "server/discover", json::object(&[(META, meta())]))
}

pub fn initialize(id: u64) -> String {
    let params = json::object(&[
        ("protocolVersion", json::quote(NEWEST_HANDSHAKE)),
        ("capabilities", "{}".to_string()),
        ("clientInfo", client_info().to_string()),
    ]);
    request(id, "initialize", params)
}

pub fn initialized() -> String {
    notification("notifications/initialized", None)
}

/// `arguments` is a JSON object.
pub fn call(id: u64, name: &str, arguments: &str, stateless: bool) -> String {
    let mut params = vec![
        ("name", json::quote(name)),
        ("arguments", arguments.to_string()),
    ];
    if stateless {
        params.push((META, meta()));
    }
    request(id, "tools/call", json::object(&params))
}

pub fn cancelled(id: u64) -> String {
    let params = json::object(&[
        ("requestId", id.to_string()),
        ("reason", json::quote("nobody waits for it any more")),
    ]);
    notification("notifications/cancelled", Some(params))
}

/// A request of a server during a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    /// The id, with its bytes unchanged.
    id: String,
    method: String,
}

impl ServerRequest {
    /// The kind of the refused request, from a closed list; `None`: a ping, which is answered.
    pub fn refused_as(&self) -> Option<&'static str> {
        match self.method.as_str() {
            "ping" => None,
            "sampling/createMessage" => Some("sampling"),
            "elicitation/create" => Some("elicitation"),
            "roots/list" => Some("roots"),
            _ => Some("other"),
        }
    }

    /// The answer: an empty result to a ping, "not offered" to every other request.
    pub fn reply(&self) -> String {
        let outcome = match self.refused_as() {
            None => ("result", "{}".to_string()),
            Some(_) => (
                "error",
                json::object(&[
                    ("code", METHOD_NOT_FOUND.to_string()),
                    ("message", json::quote("this client offers nothing")),
                ]),
            ),
        };
        json::object(&[
            ("jsonrpc", json::quote("2.0")),
            ("id", self.id.clone()),
            outcome,
        ])
    }
}

/// A server's error instead of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
}

/// A server's answer: the result as it came, or an error.
pub type Answer = Result<Box<RawValue>, RpcError>;

/// A message of a server.
#[derive(Debug)]
pub enum ServerMessage {
    Answer { id: String, answer: Answer },
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
    error: Option<ErrorOnWire>,
}

#[derive(Deserialize)]
struct ErrorOnWire {
    code: i64,
    #[serde(default)]
    message: String,
}

impl ServerMessage {
    /// Reads a message; `None`: the text is not one JSON-RPC message.
    pub fn read(text: &str) -> Option<Self> {
        let wire: OnWire = serde_json::from_str(text).ok()?;
        if wire.jsonrpc != "2.0" {
            return None;
        }
        let id = wire.id.map(|id| id.get().to_string());
        match (wire.method, id, wire.result, wire.error) {
            (Some(method), Some(id), None, None) => {
                Some(Self::Request(ServerRequest { id, method }))
            }
            (Some(_), None, None, None) => Some(Self::Notification),
            (None, Some(id), Some(result), None) => Some(Self::Answer {
                id,
                answer: Ok(result.to_owned()),
            }),
            (None, id, None, Some(ErrorOnWire { code, message })) => Some(Self::Answer {
                id: id.unwrap_or_default(),
                answer: Err(RpcError { code, message }),
            }),
            _ => None,
        }
    }
}

/// True if a `server/discover` result lists the stateless revision.
pub fn speaks_stateless(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct DiscoverResult {
        #[serde(rename = "supportedVersions")]
        supported: Vec<String>,
    }
    serde_json::from_str::<DiscoverResult>(result.get())
        .is_ok_and(|discovered| discovered.supported.iter().any(|it| it == STATELESS))
}

/// The revision that an `initialize` result settles on, if it is supported. `tools/call` is the
/// same in all. The oldest revision has another transport, but bridges for older programs answer
/// a POST with that revision.
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

    fn check(text: &str, expected: &str) {
        let seen = match ServerMessage::read(text) {
            None => "nothing".to_string(),
            Some(ServerMessage::Notification) => "notification".to_string(),
            Some(ServerMessage::Request(asked)) => {
                format!("asks {:?}: {}", asked.refused_as(), asked.reply())
            }
            Some(ServerMessage::Answer { id, answer }) => format!("{id}: {answer:?}"),
        };
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn a_text_is_exactly_one_message_or_none() {
        check(
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1.0}}"#,
            r#"7: Ok(RawValue({"a":1.0}))"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":"7","error":{"code":-3,"message":"no","data":[]}}"#,
            r#""7": Err(RpcError { code: -3, message: "no" })"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-3}}"#,
            r#": Err(RpcError { code: -3, message: "" })"#,
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
        ] {
            check(nothing, "nothing");
        }
    }

    #[test]
    fn arguments_keep_their_bytes() {
        let text = call(3, "catch", r#"{"n":12345678901234567890.0}"#, false);
        let expected = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"catch","arguments":{"n":12345678901234567890.0}}}"#;
        assert_eq!(text, expected);
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
        assert!(speaks_stateless(&raw(
            r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#
        )));
        assert!(!speaks_stateless(&raw(
            r#"{"supportedVersions":["2025-11-25"]}"#
        )));
    }
}
