//! The lines of the record. The file has the bodies; stdout has them only if configured, since
//! prompts do not belong in a cluster's logs by default.
//!
//! A record line is one JSON value on one line, whatever a model, a runner or a service put into
//! it: see [`escaped`].

use std::borrow::Cow;

use serde::Serialize;
use toolcrib_dialect::Dialect;
use toolcrib_manifest::{GrantRef, RawJson, Tier, Transport};
use toolcrib_mediation::{AllowedBy, ConnectionFailure, ManagedCall, Scrubber, TurnRecord};

use super::kept::{KeptBody, MAX_BODY, whole};
use crate::model::Operation;

const BLOCK: usize = 256;

/// Written before a call leaves, so that a kill between call and record loses nothing.
#[derive(Debug, Serialize)]
pub struct IntentLine<'a> {
    kind: &'static str,
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    /// Omitted for calls by a model.
    #[serde(skip_serializing_if = "Via::is_mediated")]
    pub path: Via,
    pub timestamp: String,
    pub round: u32,
    pub name: &'a str,
    pub arguments: &'a RawJson,
    pub service: &'a str,
    /// Omitted for HTTP.
    #[serde(skip_serializing_if = "Transport::is_http")]
    pub transport: Transport,
    pub tier: Tier,
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<&'a GrantRef>,
    /// Digest of the grant's rule that allows the call, if the tool has rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'a str>,
}

impl<'a> IntentLine<'a> {
    pub fn new(
        who: LineContext<'a>,
        timestamp: String,
        call: &'a ManagedCall,
        allowed_by: Option<&'a AllowedBy>,
    ) -> Self {
        Self {
            kind: "intent",
            request_id: who.request_id,
            agent_id: who.agent_id,
            pod: who.pod,
            path: who.path,
            timestamp,
            round: call.id().round,
            name: call.name(),
            arguments: call.arguments(),
            service: call.service(),
            transport: call.transport(),
            tier: call.tier(),
            read_only: call.read_only(),
            grant: allowed_by.map(|it| &it.grant).or_else(|| call.grant()),
            rule: allowed_by.map(|it| it.rule.as_str()),
        }
    }
}

/// Written before a request is sent to a model, so that a kill before its end leaves a trace. The
/// request's `turn` line has the same `request_id`.
#[derive(Debug, Serialize)]
pub struct ModelCallLine<'a> {
    kind: &'static str,
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    pub timestamp: String,
    pub dialect: &'static str,
    /// Omitted for answers.
    #[serde(skip_serializing_if = "Operation::is_answer")]
    pub operation: Operation,
    /// `provider/model` of the first candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Id of the runner's token.
    pub token: &'a str,
}

impl<'a> ModelCallLine<'a> {
    pub fn new(
        who: LineContext<'a>,
        timestamp: String,
        dialect: Dialect,
        operation: Operation,
        model: Option<String>,
        token: &'a str,
    ) -> Self {
        Self {
            kind: "model_call",
            request_id: who.request_id,
            agent_id: who.agent_id,
            pod: who.pod,
            timestamp,
            dialect: dialect.name(),
            operation,
            model,
            token,
        }
    }
}

/// The way that tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// By a model, whose turn is mediated.
    Mediated,
    /// By the runner itself, as an MCP client.
    Native,
}

impl Via {
    pub fn is_mediated(&self) -> bool {
        *self == Self::Mediated
    }
}

/// The agent, pod and request of a line.
#[derive(Clone, Copy, Debug)]
pub struct LineContext<'a> {
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    pub path: Via,
}

/// One finished request, failed ones too.
#[derive(Debug, Serialize)]
pub struct TurnLine<'a> {
    pub kind: &'static str,
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    /// Omitted for calls by a model.
    #[serde(skip_serializing_if = "Via::is_mediated")]
    pub path: Via,
    pub timestamp: String,
    pub dialect: &'static str,
    /// Omitted for answers.
    #[serde(skip_serializing_if = "Operation::is_answer")]
    pub operation: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    /// Ids of the provider's key and the runner's token, never their text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    pub token: &'a str,
    /// The status sent to the runner.
    pub http_status: u16,
    pub duration_ms: u64,
    /// The reason why no provider could be reached, and the address of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<&'a ConnectionFailure>,
    #[serde(flatten)]
    pub turn: &'a TurnRecord,
}

/// The bodies of the request and of the response.
#[derive(Clone, Copy, Debug)]
pub struct Bodies<'a> {
    pub request: Body<'a>,
    pub response: Body<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// A text that is known to be JSON; it is not validated again.
    Json(&'a str),
    Bytes(&'a [u8]),
    Kept(&'a KeptBody),
}

/// Formats a body for a line: JSON unchanged, a stream as its text, a long body as its ends.
/// `None`: there is no body.
pub fn body<'a>(body: Body<'a>, scrubber: &Scrubber) -> Option<Cow<'a, str>> {
    let long = |bytes: &[u8]| {
        let kept = KeptBody::of(bytes);
        kept.json(scrubber).map(|text| text.into_owned().into())
    };
    match body {
        Body::Json(text) if text.len() > MAX_BODY => long(text.as_bytes()),
        Body::Bytes(bytes) if bytes.len() > MAX_BODY => long(bytes),
        Body::Json(text) => Some(text.into()),
        Body::Bytes(bytes) => whole(bytes),
        Body::Kept(kept) => kept.json(scrubber),
    }
}

/// Escapes JSON so that no terminal or log collector acts on its bytes: line breaks between tokens
/// become spaces; DEL, the C1 controls and Unicode's line separators, which JSON allows in
/// strings, are escaped. `json` must be valid JSON.
pub fn escaped(json: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    // Blocks without an early exit inside, so that the compiler can vectorize the loop.
    let suspicious = |block: &[u8]| {
        block.iter().fold(false, |found, byte| {
            found | (*byte < 0x20) | (*byte == 0x7f) | (*byte == 0xc2) | (*byte == 0xe2)
        })
    };
    if !json.chunks(BLOCK).any(suspicious) {
        return json;
    }
    let mut clean = Vec::with_capacity(json.len() + 64);
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        let (length, code) = match (byte, json.get(at + 1), json.get(at + 2)) {
            // Valid JSON has these between tokens only.
            (0..0x20, _, _) => {
                clean.push(b' ');
                at += 1;
                continue;
            }
            (0x7f, _, _) => (1, 0x7f),
            (0xc2, Some(&second @ 0x80..=0x9f), _) => (2, u16::from(second)),
            (0xe2, Some(0x80), Some(&third @ 0xa8..=0xa9)) => (3, 0x2028 + u16::from(third - 0xa8)),
            _ => {
                clean.push(byte);
                at += 1;
                continue;
            }
        };
        clean.extend_from_slice(format!("\\u{code:04x}").as_bytes());
        at += length;
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(value: &Value, written: &str) {
        let clean = escaped(written.as_bytes().into()).into_owned();
        let text = String::from_utf8(clean).unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), value);
        let acts = |it: char| it.is_control() || ['\u{2028}', '\u{2029}'].contains(&it);
        assert!(!text.contains(acts), "{text:?}");
    }

    #[test]
    fn escaping_keeps_one_line_and_its_value() {
        let forged =
            "a\n{\"kind\":\"turn\"}\r\u{1b}[2J\u{7f}\u{85}\u{9b}2J\u{2028}b\u{2029}ü\u{a0}…\0";
        let value = json!({"said": forged, "list": [1, "x"]});
        check(&value, &value.to_string());
        check(&value, &serde_json::to_string_pretty(&value).unwrap());
        check(&json!({"a": 1}), "{\r\n\t\"a\" :\n1}\n");
    }

    #[test]
    fn json_that_needs_no_escape_is_unchanged() {
        let line = br#"{"a":"b","c":[1,2]}"#.as_slice();
        assert!(matches!(escaped(line.into()), Cow::Borrowed(same) if same == line));
    }
}
