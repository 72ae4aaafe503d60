//! Arguments in HTTP requests: which values a path may carry, byte by byte.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

#[path = "support/corpus.rs"]
mod corpus;

use serde_json::{Value, json};
use toolcrib_manifest::{RawJson, Tool};
use toolcrib_mediation::{HttpCall, ResultCode, ToolFailure, fill_claw_id, http_call};

fn tool(method: &str, path: &str, more: Value) -> Tool {
    let mut execution = json!({"transport": "http", "service": "pond",
        "base_url": "http://pond.test:80/base/", "method": method, "path": path});
    for (key, value) in more.as_object().unwrap() {
        execution[key] = value.clone();
    }
    serde_json::from_value(
        json!({"name": "pond.depth", "inputSchema": {"type": "object"},
        "execution": execution}),
    )
    .unwrap()
}

fn call(tool: &Tool, arguments: &str) -> Result<HttpCall, ToolFailure> {
    http_call(
        tool,
        &RawJson::from_text(arguments).unwrap(),
        "otter",
        Some("r-1-0"),
    )
}

fn check(method: &str, path: &str, more: Value, arguments: &str, target: &str, body: Option<&str>) {
    let call = call(&tool(method, path, more), arguments).unwrap();
    let got = call.body.map(|body| String::from_utf8(body).unwrap());
    assert_eq!(
        (call.path_and_query.as_str(), got.as_deref()),
        (target, body)
    );
}

#[test]
fn arguments_go_to_path_query_or_body_by_method() {
    let none = || json!({});
    check(
        "GET",
        "/d/{at}",
        none(),
        r#"{"at":"a b"}"#,
        "/base/d/a%20b",
        None,
    );
    check(
        "GET",
        "/d/{claw_id}",
        none(),
        r#"{"claw_id":"otter"}"#,
        "/base/d/otter",
        None,
    );
    check(
        "GET",
        "d",
        none(),
        r#"{"q":"x&y=1","n":null}"#,
        "/base/d?q=x%26y%3D1",
        None,
    );
    check(
        "DELETE",
        "/d?v=1",
        none(),
        r#"{"q":[1,"b"]}"#,
        "/base/d?v=1&q=1&q=b",
        None,
    );
    check(
        "HEAD",
        "/d",
        none(),
        r#"{"q":{"a":1}}"#,
        "/base/d?q=%7B%22a%22%3A1%7D",
        None,
    );
    check("POST", "/d", none(), "{}", "/base/d", Some("{}"));
    check(
        "GET",
        "/d",
        json!({"body": "json"}),
        r#"{"a":1}"#,
        "/base/d",
        Some(r#"{"a":1}"#),
    );
    check(
        "PUT",
        "/d/{at}",
        json!({"body_key": "in"}),
        r#"{"at":1,"b":2}"#,
        "/base/d/1",
        Some(r#"{"in":{"b":2}}"#),
    );
}

#[test]
fn numbers_keep_their_digits() {
    let raw = r#"{"a":9007199254740993,"b":1.10,"c":123456789012345678901234567890}"#;
    check("POST", "/d", json!({}), raw, "/base/d", Some(raw));
    check(
        "GET",
        "/d/{a}",
        json!({}),
        raw,
        "/base/d/9007199254740993?b=1.10&c=123456789012345678901234567890",
        None,
    );
}

#[test]
fn no_value_escapes_its_path_segment() {
    let tool = tool("GET", "/a/{at}/b", json!({}));
    let corpus = corpus::path_values();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    for value in corpus {
        let arguments = json!({"at": value}).to_string();
        let failure = call(&tool, &arguments).expect_err(&format!("{value:?}"));
        assert_eq!(failure.code, ResultCode::InvalidArguments, "{value:?}");
        assert!(failure.message.contains("pond.depth") && !failure.message.contains("pond.test"));
        assert!(fill_claw_id("http://pond.test/{claw_id}", &value).is_err());
    }
    for raw in ["null", "[]", "{}", r#"["a"]"#] {
        assert!(call(&tool, &format!(r#"{{"at":{raw}}}"#)).is_err(), "{raw}");
    }
    assert!(call(&tool, "{}").is_err(), "a missing value");
}

#[test]
fn every_other_value_is_encoded_once_into_one_segment() {
    let tool = tool("GET", "/a/{at}/b", json!({}));
    for value in [
        "x", "a.b", "..a", "a..b", "é", "漢", "a b", "a+b", "a&b=c", "a:b@c", "-_.~", "*'()!", "💧",
    ] {
        let target = call(&tool, &json!({"at": value}).to_string())
            .unwrap()
            .path_and_query;
        assert_eq!(target.matches('/').count(), 4, "{target}");
        let segment = target.split('/').nth(3).unwrap();
        let decoded = percent_encoding::percent_decode_str(segment)
            .decode_utf8()
            .unwrap();
        assert_eq!(decoded, value);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~%".contains(&b);
        assert!(segment.bytes().all(plain), "{segment}");
    }
}

#[test]
fn a_call_has_the_header_by_which_its_service_recognizes_a_repetition() {
    let without = call(&tool("POST", "/d", json!({})), "{}").unwrap();
    assert_eq!(without.idempotency, None);
    let tool = |header: &str| tool("POST", "/d", json!({"idempotency_header": header}));
    let sent = call(&tool("Idempotency-Key"), "{}").unwrap().idempotency;
    assert_eq!(sent, Some(("Idempotency-Key".into(), "r-1-0".into())));
    for header in ["Authorization", "content-length", "X-Claw-ID", "a b", ""] {
        let refused = call(&tool(header), "{}").unwrap_err();
        assert_eq!(refused.code, ResultCode::UnsupportedTool, "{header:?}");
    }
}
