//! Authenticates the runner. Every failure has the same answer and costs the same work, so neither
//! the text nor the time tells which part did not match.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use toolcrib_bounds::headers::bearer;
use toolcrib_manifest::{AgentFile, Identity};

/// The authenticated runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Id of the agent's token that the runner presented.
    pub token_id: String,
    /// Hash of that token, so that another token with the same id is told apart.
    pub token_sha256: String,
}

/// Returns the runner whose token these headers carry. Two SDKs use two headers for it; if both
/// are set, both must carry the same token.
pub fn authenticate(headers: &HeaderMap, agent: &AgentFile) -> Option<Runner> {
    let presented = presented(headers);
    let digest = Sha256::digest(presented.unwrap_or_default());
    let mut found = Choice::from(0);
    let mut at = 0u32;
    for (index, token) in agent.tokens.iter().enumerate() {
        let known = hex::decode(&token.sha256).unwrap_or_default();
        let same = known.as_slice().ct_eq(digest.as_slice());
        at = u32::conditional_select(&at, &(index as u32), same);
        found |= same;
    }
    if presented.is_none() || !bool::from(found) {
        return None;
    }
    let token = agent.tokens.get(at as usize)?;
    Some(Runner {
        token_id: token.id.clone(),
        token_sha256: token.sha256.clone(),
    })
}

/// True if these headers carry exactly this token, in either place.
pub fn presents(headers: &HeaderMap, token: &[u8]) -> bool {
    let presented = presented(headers);
    let digest = Sha256::digest(presented.unwrap_or_default());
    let is_same = Sha256::digest(token).as_slice().ct_eq(digest.as_slice());
    presented.is_some() && bool::from(is_same)
}

/// True if these headers carry a token, valid or not.
pub fn has_token(headers: &HeaderMap) -> bool {
    presented(headers).is_some()
}

/// The token as it was sent.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let values = |name: &str| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let token = || bearer(values("authorization"));
    let key = || single(values("x-api-key"));
    match (
        headers.contains_key("authorization"),
        headers.contains_key("x-api-key"),
    ) {
        (false, _) => key(),
        (true, false) => token(),
        (true, true) => token().filter(|token| key() == Some(*token)),
    }
}

/// Returns the value of a header that is not repeated.
fn single<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Option<&'v [u8]> {
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The identity for services and the record. `None`: it would be the pod's name, and that has a
/// dot, so it could equal the agent `NAME.NAMESPACE` of another namespace.
pub fn claw_id(agent: &AgentFile, pod: &str) -> Option<String> {
    match agent.identity {
        Identity::Agent => Some(agent.claw_id.clone()),
        Identity::Pod if pod.is_empty() => Some(agent.claw_id.clone()),
        Identity::Pod if pod.contains('.') => None,
        Identity::Pod => Some(pod.to_string()),
    }
}

/// This pod, as the link token names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaims {
    pub namespace: String,
    pub name: String,
    pub uid: Arc<str>,
}

/// Reads the pod in the link token, which the API server makes for this pod. The token is not
/// verified: the kubelet alone writes the file.
pub fn pod_claims(link_token: &Path) -> Option<PodClaims> {
    #[derive(Deserialize)]
    struct Claims {
        #[serde(rename = "kubernetes.io")]
        kubernetes: Kubernetes,
    }
    #[derive(Deserialize)]
    struct Kubernetes {
        #[serde(default)]
        namespace: String,
        pod: Pod,
    }
    #[derive(Deserialize)]
    struct Pod {
        #[serde(default)]
        name: String,
        uid: String,
    }
    let token = std::fs::read_to_string(link_token).ok()?;
    let claims = token.split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end()).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let Kubernetes { namespace, pod } = claims.kubernetes;
    (pod.uid.len() <= LONGEST_UID).then(|| PodClaims {
        namespace,
        name: pod.name,
        uid: pod.uid.into(),
    })
}

/// A UUID has 36 bytes.
const LONGEST_UID: usize = 64;

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use toolcrib_manifest::RunnerToken;

    use super::*;

    fn agent() -> AgentFile {
        let token = |id: &str, text: &str| RunnerToken {
            id: id.into(),
            sha256: hex::encode(Sha256::digest(text)),
        };
        let mut agent: AgentFile = serde_json::from_str(
            r#"{"version":1,"agent":"otter","namespace":"pond","claw_id":"otter","tokens":[]}"#,
        )
        .unwrap();
        agent.tokens = vec![token("old", "otter:first"), token("new", "otter:second")];
        agent
    }

    fn check(headers: &[(&str, &str)], expected: Option<&str>) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
            })
            .collect();
        let runner = authenticate(&headers, &agent());
        assert_eq!(
            runner.map(|it| it.token_id).as_deref(),
            expected,
            "{headers:?}"
        );
    }

    #[test]
    fn the_link_token_names_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let claims =
            r#"{"kubernetes.io":{"namespace":"pond","pod":{"name":"otter-0","uid":"u-7"}}}"#;
        let token = format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
        std::fs::write(&file, token).unwrap();
        let expected = PodClaims {
            namespace: "pond".to_owned(),
            name: "otter-0".to_owned(),
            uid: "u-7".into(),
        };
        assert_eq!(pod_claims(&file), Some(expected));
        std::fs::write(&file, "e30.e30.c2ln").unwrap();
        assert_eq!(pod_claims(&file), None);
        assert_eq!(pod_claims(&dir.path().join("none")), None);
    }

    #[test]
    fn either_place_and_every_valid_token() {
        check(&[("authorization", "Bearer otter:first")], Some("old"));
        check(&[("authorization", "bearer otter:second")], Some("new"));
        check(&[("x-api-key", "otter:second")], Some("new"));
        let both = [
            ("authorization", "Bearer otter:first"),
            ("x-api-key", "otter:first"),
        ];
        check(&both, Some("old"));
    }

    #[test]
    fn every_other_header_is_refused() {
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer  otter:first",
            "Bearer otter:first ",
            "Basic otter:first",
            "otter:first",
            "Bearer otter:",
            "Bearer :first",
            "Bearer otter",
            "Bearer otter:firs",
            "Bearer otter:firstt",
            "Bearer OTTER:first",
            "Bearer heron:first",
            "Bearer \u{00fc}",
            "Bearer otter:first,otter:second",
            "BearerXotter:first",
            "Bearer\totter:first",
        ] {
            check(&[("authorization", value)], None);
        }
        check(&[], None);
        check(&[("x-api-key", "")], None);
        check(&[("x-api-key", "Bearer otter:first")], None);
        check(&[("cookie", "otter:first")], None);
    }

    #[test]
    fn a_pods_name_with_a_dot_is_no_identity() {
        let mut agent = agent();
        assert_eq!(claw_id(&agent, "news.shared").as_deref(), Some("otter"));
        agent.identity = Identity::Pod;
        assert_eq!(claw_id(&agent, "news.shared"), None);
        assert_eq!(claw_id(&agent, "news-0").as_deref(), Some("news-0"));
    }

    #[test]
    fn two_tokens_at_once_are_refused() {
        let twice = [
            ("authorization", "Bearer otter:first"),
            ("authorization", "Bearer otter:first"),
        ];
        check(&twice, None);
        let differing = [
            ("authorization", "Bearer otter:first"),
            ("x-api-key", "otter:second"),
        ];
        check(&differing, None);
    }

    #[test]
    fn an_agent_without_tokens_admits_no_runner() {
        let mut agent = agent();
        agent.tokens.clear();
        let headers = HeaderMap::from_iter([(
            http::header::AUTHORIZATION,
            HeaderValue::from_static("Bearer otter:first"),
        )]);
        assert_eq!(authenticate(&headers, &agent), None);
    }
}
