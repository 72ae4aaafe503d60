//! The operator's work on the bytes of a review, a report and a watched object, without IO.
//!
//! `e2e/growth` counts how this work grows, and fuzzes it. Not here: the bound of the body, the wait
//! for a turn, and reads of other objects.

use std::hint::black_box;

use jiff::Timestamp;
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;
use toolcrib_compile::inject::{Allowances, DEFAULT_HISTORY_BYTES, InjectConfig};
use toolcrib_crds::{Agent, AgentSpec, Surface, ToolGrant};
use toolcrib_manifest::Usage;

use crate::link::rates::RateSums;
use crate::link::reports::{Reports, Sender};
use crate::link::request;
use crate::objects::decode::DecodedObject;
use crate::webhook;

/// A webhook that knows a single Agent, which every pod runs.
pub struct Admission {
    agent: Agent,
    config: InjectConfig,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            agent: Agent::new("otter", AgentSpec::default()),
            config: config(),
        }
    }
}

/// The settings of injection without any option.
pub(crate) fn config() -> InjectConfig {
    InjectConfig {
        image: "example.test/sidecar:7".to_owned(),
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        resources: Default::default(),
        history_bytes: DEFAULT_HISTORY_BYTES,
        keepalive: None,
        record_bodies: false,
        otlp_endpoint: None,
        export: None,
        metrics_port: None,
        allowances: Allowances::default(),
    }
}

impl Admission {
    /// Decodes the review of a pod and returns the answer. `None` if it is not the review of a pod.
    pub fn inject(&self, body: &[u8]) -> Option<String> {
        webhook::answer_pod(body, &self.agent, &self.config)
    }
}

/// Decodes the review of one of Toolcrib's objects and returns the answer. `None` if it is not a
/// review.
pub fn validate(body: &[u8]) -> Option<String> {
    webhook::answer_object(body)
}

/// Decodes a mediator's report and merges it into those of the agent. Returns the usage in the
/// agent's status; `None` if it is not a report.
pub fn report(body: &[u8]) -> Option<u64> {
    let up = request::decoded(body)?;
    let sender = Sender {
        uid: "u-7".to_owned(),
        pod: "otter-0".to_owned(),
        agent: ObjectRef::new("pond", "otter"),
        older_than_leader: false,
    };
    let mut reports = Reports::default();
    reports.begin(&sender.agent, None, &Usage::default());
    reports.merge(&sender, &up, Timestamp::UNIX_EPOCH, Instant::now());
    let mut rates = RateSums::default();
    for uid in [&sender.uid, "u-8"] {
        rates.merge(&sender.agent, uid, &up.rates, Timestamp::UNIX_EPOCH);
    }
    black_box(rates.of_others(&sender.agent, &sender.uid, Timestamp::UNIX_EPOCH));
    Some(reports.usage(&sender.agent).requests)
}

/// Decodes a Surface and a ToolGrant as the controller watches them. Returns whether the text is an
/// object of each kind, decodable or not.
pub fn watched(text: &str) -> [bool; 2] {
    [
        serde_json::from_str::<DecodedObject<Surface>>(text).is_ok(),
        serde_json::from_str::<DecodedObject<ToolGrant>>(text).is_ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers all of the counted work: injection, and the validation of an object.
    #[test]
    fn reviews_are_answered_like_on_the_route() {
        let pod = br#"{"request":{"uid":"u-7","operation":"CREATE","object":{"metadata":{"labels":{"toolcrib.dev/agent":"otter"}},"spec":{"containers":[{"name":"c"}]}}}}"#;
        let answer = Admission::default().inject(pod).unwrap();
        assert!(answer.contains("JSONPatch"), "{answer}");
        let surface = br#"{"request":{"uid":"u-7","kind":{"kind":"Surface"},"operation":"CREATE","namespace":"pond","name":"reef","object":{"metadata":{"name":"reef","namespace":"pond"},"spec":{"url":"https://reef.test","descriptor":{"version":2,"tools":[{"name":"t","inputSchema":{"$ref":"http://a.test"},"http":{"method":"GET","path":"/a"}}]}}}}}"#;
        let answer = validate(surface).unwrap();
        assert!(answer.contains("RemoteReference"), "{answer}");
        assert_eq!(validate(b"{"), None);
    }
}
