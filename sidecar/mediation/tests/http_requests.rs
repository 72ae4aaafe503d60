//! Arguments as requests: what a path may carry, byte by byte.
#![allow(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

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
    http_call(tool, &RawJson::from_text(arguments).unwrap(), "otter")
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
fn arguments_go_where_the_method_says() {
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

/// Values that mean something else in a path, and every way to write them that some
/// server takes for the same.
fn corpus() -> Vec<String> {
    let bare = [
        "..",
        ".",
        "../x",
        "a/..",
        "a/b",
        "/",
        "a\\..",
        "\\",
        "x?admin=1",
        "?",
        "x#f",
        "#",
        "a%b",
        "%",
        "a\r\nHost: b",
        "\r\n\r\n",
        "\0",
        "a\tb",
        "\u{7f}",
        "\u{85}",
        "",
        "..;/x",
        "...",
        "/etc/passwd",
        "//host",
        "http://host/",
    ];
    let mut corpus: Vec<String> = bare.iter().map(ToString::to_string).collect();
    for text in bare.iter().filter(|text| !text.is_empty()) {
        let hex = |upper: bool| -> String {
            text.bytes()
                .map(|b| {
                    if upper {
                        format!("%{b:02X}")
                    } else {
                        format!("%{b:02x}")
                    }
                })
                .collect()
        };
        for once in [hex(true), hex(false)] {
            let twice = once.replace('%', "%25");
            corpus.push(twice.replace('%', "%25"));
            corpus.extend([once, twice]);
        }
        let wide: String = text
            .chars()
            .map(|c| match c {
                '!'..='~' => char::from_u32(c as u32 + 0xfee0).unwrap(),
                other => other,
            })
            .collect();
        corpus.extend([wide, format!("{text}\u{200b}"), format!("\u{202e}{text}")]);
    }
    corpus.extend(
        [
            "%c0%ae%c0%ae%c0%af",
            "%u002e%u002e",
            "\u{2215}",
            "a\u{2044}b",
            "\u{ff0e}\u{ff0e}",
            "\u{2024}\u{2024}",
            "\u{fe52}.",
            "\u{feff}..",
            "%e2%80%a8",
            "\u{2028}",
            "a\u{fe68}b",
            "\u{ff05}2e",
        ]
        .map(String::from),
    );
    corpus
}

#[test]
fn no_value_leaves_its_segment() {
    let tool = tool("GET", "/a/{at}/b", json!({}));
    let corpus = corpus();
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
