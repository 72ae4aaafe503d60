//! Messages to the child, one line each.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_mcp::{Members, ReplyBody, reply};

#[derive(Serialize)]
struct Line<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

/// Encodes a request for the child as one line.
pub fn request_line(id: u64, method: &str, params: Option<&Members>) -> Vec<u8> {
    line(&Line {
        jsonrpc: "2.0",
        id: Some(id),
        method,
        params,
    })
}

/// Encodes a notification for the child as one line.
pub fn notification_line(method: &str, params: Option<&Value>) -> Vec<u8> {
    line(&Line {
        jsonrpc: "2.0",
        id: None,
        method,
        params,
    })
}

/// Encodes an answer to a request of the child as one line.
pub fn answer_line(id: &RawValue, said: ReplyBody<'_>) -> Vec<u8> {
    ended(reply(Some(id), said))
}

fn line(message: &impl Serialize) -> Vec<u8> {
    ended(serde_json::to_vec(message).expect("strings, numbers and raw JSON always serialize"))
}

/// Replaces line breaks by spaces, and ends the line. A client may send JSON on several lines, and
/// raw members keep these, but the child reads one message per line. No JSON string contains these
/// two bytes, so they are always white space.
fn ended(mut bytes: Vec<u8>) -> Vec<u8> {
    for byte in &mut bytes {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use toolcrib_mcp::{Raw, members};

    use super::*;

    #[test]
    fn a_line_has_no_line_break_within() {
        let params: Raw =
            serde_json::from_str("{\n \"a\":\r\n [1,\n2], \"b\": \"x\\ny\"}").unwrap();
        let line = request_line(3, "m", members(&params).as_ref());
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text.matches(['\n', '\r']).count(), 1, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["params"],
            serde_json::json!({"a": [1, 2], "b": "x\ny"})
        );
        assert_eq!(value["id"], 3);
    }
}
