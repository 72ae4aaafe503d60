//! JSON-RPC messages: the envelope is parsed, the rest stays unparsed bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::code::{INVALID_REQUEST, PARSE_ERROR};

pub type Raw = Box<RawValue>;
/// An object whose members are passed on unparsed.
pub type Members = BTreeMap<String, Raw>;

/// Limits the bytes of a client's id, which is kept while its call runs.
const MAX_ID: usize = 256;

#[derive(Debug)]
pub enum Message {
    Request {
        id: Raw,
        method: String,
        params: Option<Raw>,
    },
    Notification {
        method: String,
        params: Option<Raw>,
    },
    Response {
        id: Raw,
        response: RpcResponse,
    },
}

/// The response to a request, as its sender wrote it.
#[derive(Debug)]
pub enum RpcResponse {
    Result(Raw),
    Error(Raw),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    NotJson,
    /// JSON, but not a single JSON-RPC message: a batch, or an id of another type.
    NotMessage,
}

#[derive(Deserialize)]
struct Wire {
    jsonrpc: String,
    #[serde(default, deserialize_with = "present")]
    id: Option<Raw>,
    method: Option<String>,
    params: Option<Raw>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Raw>,
    #[serde(default, deserialize_with = "present")]
    error: Option<Raw>,
}

/// Distinguishes `null` from a missing member: a request with the id `null` is not a notification.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Raw>, D::Error> {
    Raw::deserialize(deserializer).map(Some)
}

impl Message {
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| {
            if error.is_data() {
                MessageError::NotMessage
            } else {
                MessageError::NotJson
            }
        })?;
        if wire.jsonrpc != "2.0" || !wire.id.as_deref().is_none_or(is_id) {
            return Err(MessageError::NotMessage);
        }
        let params = wire.params;
        match (wire.id, wire.method, wire.result, wire.error) {
            (Some(id), Some(method), None, None) => Ok(Self::Request { id, method, params }),
            (None, Some(method), None, None) => Ok(Self::Notification { method, params }),
            (Some(id), None, Some(result), None) => Ok(Self::Response {
                id,
                response: RpcResponse::Result(result),
            }),
            (Some(id), None, None, Some(error)) => Ok(Self::Response {
                id,
                response: RpcResponse::Error(error),
            }),
            _ => Err(MessageError::NotMessage),
        }
    }
}

/// Checks an id: MCP allows a string or a whole number, never `null`.
fn is_id(raw: &RawValue) -> bool {
    let text = raw.get();
    text.len() <= MAX_ID
        && match text.as_bytes() {
            [b'"', ..] => true,
            [b'-' | b'0'..=b'9', ..] => !text.contains(['.', 'e', 'E']),
            _ => false,
        }
}

/// Returns the members of an object; `None` if it is not an object.
pub fn members(raw: &RawValue) -> Option<Members> {
    serde_json::from_str(raw.get()).ok()
}

/// The content of a reply to a request.
#[derive(Clone, Copy, Debug)]
pub enum ReplyBody<'a> {
    Result(&'a RawValue),
    Error(&'a RawValue),
    /// An error of this program.
    Fault(&'a Fault),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    pub code: i64,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Fault {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

impl From<MessageError> for Fault {
    fn from(malformed: MessageError) -> Self {
        match malformed {
            MessageError::NotJson => Self::new(PARSE_ERROR, "the body is not JSON"),
            MessageError::NotMessage => {
                Self::new(INVALID_REQUEST, "the body is not a single JSON-RPC message")
            }
        }
    }
}

#[derive(Serialize)]
struct Reply<'a> {
    jsonrpc: &'static str,
    /// `null` if no id could be read.
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ReplyError<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ReplyError<'a> {
    Passed(&'a RawValue),
    Own(&'a Fault),
}

impl<'a> Reply<'a> {
    fn new(id: Option<&'a RawValue>, body: ReplyBody<'a>) -> Self {
        let (result, error) = match body {
            ReplyBody::Result(result) => (Some(result), None),
            ReplyBody::Error(error) => (None, Some(ReplyError::Passed(error))),
            ReplyBody::Fault(fault) => (None, Some(ReplyError::Own(fault))),
        };
        Self {
            jsonrpc: "2.0",
            id,
            result,
            error,
        }
    }
}

/// Encodes a whole reply. `id` is `None` if no id could be read.
pub fn reply(id: Option<&RawValue>, body: ReplyBody<'_>) -> Vec<u8> {
    json(&Reply::new(id, body))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and raw JSON always serialize")
}

/// Encodes a value of this program as raw JSON, so that it fits among members that are passed on
/// unparsed.
pub fn raw(value: &impl Serialize) -> Raw {
    serde_json::value::to_raw_value(value).expect("strings, numbers and raw JSON always serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_request_a_notification_or_an_answer() {
        let parse = |text: &str| Message::parse(text.as_bytes());
        let request = parse(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1.50}}"#);
        assert!(matches!(
            request,
            Ok(Message::Request { id, method, params: Some(params) })
                if id.get() == r#""a""# && method == "m" && params.get() == r#"{"x":1.50}"#
        ));
        let note = parse(r#"{"jsonrpc":"2.0","method":"m"}"#);
        assert!(
            matches!(note, Ok(Message::Notification { method, params: None }) if method == "m")
        );
        let null = parse(r#"{"jsonrpc":"2.0","id":7,"result":null}"#);
        assert!(
            matches!(null, Ok(Message::Response { response: RpcResponse::Result(it), .. }) if it.get() == "null")
        );
        let error = parse(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#);
        assert!(matches!(
            error,
            Ok(Message::Response {
                response: RpcResponse::Error(_),
                ..
            })
        ));
    }

    #[test]
    fn batches_and_invalid_messages_are_refused() {
        for bad in [
            r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"id":1,"method":"m"}"#,
            "7",
        ] {
            let parsed = Message::parse(bad.as_bytes());
            assert_eq!(parsed.err(), Some(MessageError::NotMessage), "{bad}");
        }
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#,
            "a".repeat(MAX_ID)
        );
        assert_eq!(
            Message::parse(long.as_bytes()).err(),
            Some(MessageError::NotMessage)
        );
        for bad in ["", "{", "hello", r#"{"jsonrpc":"2.0""#] {
            assert_eq!(
                Message::parse(bad.as_bytes()).err(),
                Some(MessageError::NotJson),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_reply_without_a_readable_id_has_id_null() {
        let fault = Fault::new(-32700, "no");
        let text = String::from_utf8(reply(None, ReplyBody::Fault(&fault))).unwrap();
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#
        );
    }
}
