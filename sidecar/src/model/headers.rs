//! Which headers pass, in either direction. Pure.
//!
//! Upstream: everything the runner sent but what speaks of itself, of this hop or of the
//! credential. The provider's credential is put on afterwards and is the only one.

use http::header::{self, HeaderMap, HeaderName};

/// Of this connection alone (RFC 9110 7.6.1), and what is written anew for the next.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
];

/// Who the runner is, or whose account it would like to spend from: the credential that
/// we put on decides both.
const OF_THE_RUNNER: [&str; 15] = [
    "host",
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "accept-encoding",
    "expect",
    "forwarded",
    "referer",
    "origin",
    "openai-organization",
    "openai-project",
    // A trace is between the runner and whom its operators chose.
    "traceparent",
    "tracestate",
    "baggage",
];

/// Prefixes of what is ours, and of what another proxy would say of the runner.
const PREFIXES: [&str; 3] = ["x-claw-", "x-toolcrib-", "x-forwarded-"];

/// The runner's headers as they go to the model.
pub fn upstream(runner: &HeaderMap) -> HeaderMap {
    let mut passed = filtered(runner, &OF_THE_RUNNER, &PREFIXES);
    passed.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    // What is buffered must be readable; what is streamed must not wait for a codec.
    passed.insert(
        header::ACCEPT_ENCODING,
        header::HeaderValue::from_static("identity"),
    );
    passed
}

/// The same for a later round of the request: it is no repetition of the first one, which a
/// provider would take it for and answer alike.
pub fn of_a_later_round(upstream: &HeaderMap) -> HeaderMap {
    filtered(upstream, &["idempotency-key"], &[])
}

/// The model's headers as they go to the runner.
pub fn downstream(model: &HeaderMap) -> HeaderMap {
    filtered(
        model,
        &["set-cookie", "alt-svc", "strict-transport-security"],
        &[],
    )
}

fn filtered(headers: &HeaderMap, dropped: &[&str], prefixes: &[&str]) -> HeaderMap {
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
            !(HOP_BY_HOP.contains(&text)
                || dropped.contains(&text)
                || prefixes.iter().any(|prefix| text.starts_with(prefix))
                || named.contains(name))
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_runner_s_identity_and_nothing_of_the_hop_passes() {
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
        ];
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let passed = upstream(&headers);
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept-encoding",
                "anthropic-version",
                "content-type",
                "openai-beta",
                "user-agent"
            ]
        );
        assert_eq!(passed["accept-encoding"], "identity");
    }
}
