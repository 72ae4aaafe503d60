//! The lines of the record, whose types `toolcrib_record` defines. The file has the bodies; stdout
//! has them only if configured, since prompts do not belong in a cluster's logs by default.
//!
//! A record line is one JSON value on one line, whatever a model, a runner or a service put into
//! it: see [`escaped`].

use std::borrow::Cow;

use toolcrib_mediation::{AllowedBy, ManagedCall, Scrubber};
use toolcrib_record::{IntentLine, Line, UsedApproval};

use super::body::{MAX_BODY, RecordBody, whole};

const BLOCK: usize = 256;

/// The way that tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPath {
    /// By a model, whose turn is mediated.
    Mediated,
    /// By the runner itself, as an MCP client.
    Native,
}

impl CallPath {
    pub fn is_mediated(&self) -> bool {
        *self == Self::Mediated
    }

    /// The word in a line, which has none for a model's calls.
    pub fn word(self) -> Option<Cow<'static, str>> {
        match self {
            CallPath::Mediated => None,
            CallPath::Native => Some("native".into()),
        }
    }
}

/// The agent, pod and request of a line.
#[derive(Clone, Copy, Debug)]
pub struct LineContext<'a> {
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub namespace: &'a str,
    pub pod: &'a str,
    pub pod_uid: Option<&'a str>,
    pub path: CallPath,
}

/// The line before a call leaves.
pub fn intent<'a>(
    who: LineContext<'a>,
    timestamp: String,
    call: &'a ManagedCall,
    allowed_by: Option<&'a AllowedBy>,
    approval: Option<&'a UsedApproval>,
    policies: &'a [String],
) -> Line<'a> {
    let transport = Some(call.transport()).filter(|it| !it.is_http());
    let grant = allowed_by.map(|it| &it.grant).or_else(|| call.grant());
    Line::Intent(IntentLine {
        request_id: who.request_id.into(),
        call_id: Some(call.id().in_request(who.request_id).into()),
        idempotency_key: call.idempotency_key(who.request_id).map(Into::into),
        agent_id: who.agent_id.into(),
        namespace: Some(who.namespace.into()),
        pod: who.pod.into(),
        pod_uid: who.pod_uid.map(Into::into),
        path: who.path.word(),
        timestamp: timestamp.into(),
        round: call.id().round,
        name: call.name().into(),
        arguments: Cow::Borrowed(call.arguments()),
        service: call.service().into(),
        transport: transport.map(|it| it.name().into()),
        tier: call.tier().name().into(),
        read_only: call.read_only(),
        policies: Cow::Borrowed(policies),
        grant: grant.map(Cow::Borrowed),
        rule: allowed_by.map(|it| it.rule.as_str().into()),
        would_deny: call.would_deny(allowed_by).map(|it| it.to_string().into()),
        approval: approval.map(Cow::Borrowed),
        chain: None,
        seq: None,
    })
}

/// Bytes of a usual line without its bodies.
const USUAL: usize = 1024;

/// Returns the JSON of a line.
pub fn to_json(line: &Line<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut text, line).expect("texts, numbers and raw JSON always serialize");
    text
}

/// Returns the JSON of a line as the record has it: escaped and without secrets.
pub fn scrubbed(line: &Line<'_>, scrubber: &Scrubber) -> Vec<u8> {
    let text = escaped(to_json(line).into());
    scrubber.scrubbed_json(text).into_owned()
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
    Kept(&'a RecordBody),
}

/// Formats a body for a line: JSON unchanged, a stream as its text, a long body as its ends.
/// `None`: there is no body.
pub fn body<'a>(body: Body<'a>, scrubber: &Scrubber) -> Option<Cow<'a, str>> {
    let long = |bytes: &[u8]| {
        let kept = RecordBody::of(bytes);
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
