//! The webhook's work on the bytes of a review, without IO.
//!
//! `e2e/growth` counts how this work grows. Not here: the bound of the body, the wait for a turn,
//! and reads of other objects.

use toolcrib_compile::inject::{Allowances, DEFAULT_HISTORY_BYTES, InjectConfig};
use toolcrib_crds::{Agent, AgentSpec};

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
