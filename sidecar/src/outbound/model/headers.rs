//! The headers that pass, in either direction. Pure.
//!
//! Upstream an allowlist passes, and the headers that the ModelProvider adds to it. Without a list
//! a caller could choose address, account and model in the headers of gateways. The provider's
//! credential is added afterwards and is the only one.

use http::header::{self, HeaderMap, HeaderName};
use toolcrib_bounds::headers::{HeaderPattern, is_hop_by_hop, reserved};

/// The headers of the OpenAI and Anthropic SDKs that the model APIs read.
const PASSED: [&str; 6] = [
    "accept",
    "idempotency-key",
    "openai-beta",
    "user-agent",
    "x-client-request-id",
    "x-request-id",
];

const PASSED_PREFIXES: [&str; 2] = ["anthropic-", "x-stainless-"];

/// The runner's headers that may go to any provider.
pub fn upstream(runner: &HeaderMap) -> HeaderMap {
    filtered(runner, |name| reserved(name).is_some())
}

/// The headers of [`upstream`] that go to one provider, with the mediator's own. `more`: the list
/// of the provider.
pub fn towards(upstream: &HeaderMap, more: &[String]) -> HeaderMap {
    let more: Vec<HeaderPattern> = more
        .iter()
        .filter_map(|text| HeaderPattern::parse(text))
        .collect();
    let passes = |name: &str| {
        PASSED.contains(&name)
            || PASSED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
            || more.iter().any(|pattern| pattern.passes(name))
    };
    let mut passed: HeaderMap = upstream
        .iter()
        .filter(|(name, _)| passes(name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    passed.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    passed
        .entry(header::ACCEPT)
        .or_insert(header::HeaderValue::from_static("*/*"));
    // Buffered replies must be readable, and streamed ones must not wait for a codec.
    passed.insert(
        header::ACCEPT_ENCODING,
        header::HeaderValue::from_static("identity"),
    );
    passed
}

/// The headers for a later round of the request, without those that would make the provider
/// take it for a repetition of the first round.
pub fn of_a_later_round(upstream: &HeaderMap) -> HeaderMap {
    filtered(upstream, |name| name == "idempotency-key")
}

/// The model's headers that go to the runner.
pub fn downstream(model: &HeaderMap) -> HeaderMap {
    filtered(model, |name| {
        ["set-cookie", "alt-svc", "strict-transport-security"].contains(&name)
    })
}

fn filtered(headers: &HeaderMap, is_dropped: impl Fn(&str) -> bool) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    headers
        .iter()
        .filter(|(name, _)| {
            let text = name.as_str();
            // The next connection writes a length of its own.
            let is_framing = is_hop_by_hop(text) || *name == header::CONTENT_LENGTH;
            !(is_framing || is_dropped(text) || named.contains(name))
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_do_not_reach_the_runner() {
        let sent = [
            ("connection", "close, x-private"),
            ("content-length", "7"),
            ("http2-settings", "AAMAAABk"),
            ("keep-alive", "timeout=5"),
            ("proxy-authenticate", "Basic"),
            ("set-cookie", "a=b"),
            ("transfer-encoding", "chunked"),
            ("x-private", "1"),
            ("x-ratelimit-remaining", "7"),
        ];
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let passed = downstream(&headers);
        let names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-ratelimit-remaining"]);
    }

    #[test]
    fn identity_and_hop_by_hop_headers_do_not_pass() {
        let sent = [
            ("authorization", "Bearer otter:secret"),
            ("x-api-key", "otter:secret"),
            ("cookie", "a=b"),
            ("x-claw-id", "heron"),
            ("x-toolcrib-trace", "1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("host", "elsewhere"),
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept-encoding", "gzip"),
            ("openai-organization", "org-1"),
            ("openai-beta", "assistants=v2"),
            ("anthropic-version", "2023-06-01"),
            ("user-agent", "sdk/1"),
            ("x-stainless-os", "Linux"),
            ("x-portkey-custom-host", "https://elsewhere"),
            ("x-portkey-config", "{}"),
            ("x-goog-api-key", "k"),
            ("x-amz-security-token", "k"),
            ("x-title", "Otter"),
            ("traceparent", "00-1"),
        ];
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let passed = towards(&upstream(&headers), &[]);
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept",
                "accept-encoding",
                "anthropic-version",
                "content-type",
                "openai-beta",
                "user-agent",
                "x-stainless-os"
            ]
        );
        assert_eq!(passed["accept-encoding"], "identity");
        let more = ["x-title", "x-portkey-con*", "x-*", "authorization"].map(String::from);
        let passed = towards(&upstream(&headers), &more);
        for name in ["x-title", "x-portkey-config", "x-portkey-custom-host"] {
            assert!(passed.contains_key(name), "{name}");
        }
        for name in [
            "x-goog-api-key",
            "x-amz-security-token",
            "authorization",
            "x-claw-id",
            "x-private",
            "x-forwarded-for",
        ] {
            assert!(!passed.contains_key(name), "{name}");
        }
    }
}
