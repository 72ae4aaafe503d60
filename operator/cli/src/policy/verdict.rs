//! Compares the expectation of a test with the outcome.

use serde::Serialize;
use serde_json::Value;

use super::call::Outcome;
use super::file::{Expect, ExpectedRequest};

/// A field that differs from the expectation.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub field: &'static str,
    pub expected: String,
    pub actual: String,
}

/// Returns the differences; none if the case passes.
pub fn differences(expect: &Expect, actual: &Outcome) -> Vec<Difference> {
    let Expect {
        result,
        code,
        would_deny,
        by,
        withheld,
        tier,
        credential,
        arguments,
        request,
    } = expect;
    let mut found = Vec::new();
    let mut compare = |field, expected: Option<&Value>, actual: Value| {
        if let Some(expected) = expected.filter(|expected| **expected != actual) {
            found.push(Difference {
                field,
                expected: shown(expected),
                actual: shown(&actual),
            });
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let got = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let verdict = |verdict| Value::from(format!("{verdict:?}"));
    compare("result", Some(&verdict(*result)), verdict(actual.result));
    for (field, expected, actual) in [
        ("code", code, &actual.code),
        ("wouldDeny", would_deny, &actual.would_deny),
        ("by", by, &actual.by),
        ("withheld", withheld, &actual.withheld),
        ("tier", tier, &actual.tier),
        ("credential", credential, &actual.credential),
    ] {
        compare(field, text(expected).as_ref(), got(actual));
    }
    let executed = actual.arguments.clone().unwrap_or_default();
    compare("arguments", arguments.as_ref(), executed);
    if let Some(ExpectedRequest { method, url, body }) = request {
        let sent = actual.request.as_ref();
        let sent_text = |part: fn(&super::call::SentRequest) -> &String| {
            sent.map_or(Value::Null, |sent| Value::from(part(sent).as_str()))
        };
        compare(
            "request.method",
            text(method).as_ref(),
            sent_text(|sent| &sent.method),
        );
        compare(
            "request.url",
            text(&url.as_deref().map(normal)).as_ref(),
            sent_text(|sent| &sent.url),
        );
        let sent_body = sent.and_then(|sent| sent.body.clone()).unwrap_or_default();
        compare("request.body", body.as_ref(), sent_body);
    }
    found
}

/// Removes the default port of the URL's scheme, as sending the request does.
fn normal(url: &str) -> String {
    url::Url::parse(url).map_or_else(|_| url.to_owned(), Into::into)
}

/// Prints text as it is, anything else as JSON, and a missing value as a word.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
