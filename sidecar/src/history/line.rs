//! The lines of the record. The file has the bodies, stdout only when they are asked for:
//! prompts do not belong in a cluster's logs unasked.

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_manifest::{GrantRef, RawJson, Tier};
use toolcrib_mediation::{ManagedCall, TurnRecord};

/// Of one body; what is longer is left out with its size.
const MAX_BODY: usize = 1024 * 1024;

/// Written before a call leaves, so that a kill between call and record loses nothing.
#[derive(Debug, Serialize)]
pub struct IntentLine<'a> {
    kind: &'static str,
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    pub timestamp: String,
    pub round: u32,
    pub name: &'a str,
    pub arguments: &'a RawJson,
    pub service: &'a str,
    pub tier: Tier,
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<&'a GrantRef>,
}

impl<'a> IntentLine<'a> {
    pub fn new(who: Who<'a>, timestamp: String, call: &'a ManagedCall) -> Self {
        Self {
            kind: "intent",
            request_id: who.request_id,
            agent_id: who.agent_id,
            pod: who.pod,
            timestamp,
            round: call.id().round,
            name: call.name(),
            arguments: call.arguments(),
            service: call.service(),
            tier: call.tier(),
            read_only: call.read_only(),
            grant: call.grant(),
        }
    }
}

/// Whose line it is.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
}

/// One finished request, failed ones too.
#[derive(Debug, Serialize)]
pub struct TurnLine<'a> {
    pub kind: &'static str,
    pub request_id: &'a str,
    pub agent_id: &'a str,
    pub pod: &'a str,
    pub timestamp: String,
    pub dialect: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    /// Ids of the provider's key and the runner's token, never their text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    pub token: &'a str,
    /// Towards the runner.
    pub http_status: u16,
    pub duration_ms: u64,
    #[serde(flatten)]
    pub turn: &'a TurnRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Box<RawValue>>,
}

/// What the runner sent and got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bodies<'a> {
    pub request: &'a [u8],
    pub response: &'a [u8],
}

/// A body as it goes into a line: JSON as it is, a stream as its text, too much as a
/// number.
pub fn body(bytes: &[u8]) -> Option<Box<RawValue>> {
    if bytes.is_empty() {
        return None;
    }
    let text = if bytes.len() > MAX_BODY {
        format!(r#"{{"omitted_bytes":{}}}"#, bytes.len())
    } else {
        let text = String::from_utf8_lossy(bytes);
        match serde_json::from_str::<&RawValue>(&text) {
            // A line is one line. In JSON a line break is never inside a string.
            Ok(raw) => raw.get().replace(['\n', '\r'], " "),
            Err(_) => serde_json::to_string(&text).ok()?,
        }
    };
    RawValue::from_string(text).ok()
}
