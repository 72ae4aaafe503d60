//! Known secrets come out of bytes in every form in which a service could echo them.
#![allow(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use toolcrib_mediation::Scrubber;

/// As browsers encode a form value, but for blanks.
const FORM: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'*')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');
const SECRET: &str = "s3cr/t+\"k€y\\_~1";

fn check(text: &str) {
    let scrubber = Scrubber::new([SECRET, "other-secret"]);
    let scrubbed = scrubber.scrub_text(text);
    assert!(scrubbed.contains("[redacted]"), "{text} gave {scrubbed}");
    for part in ["s3cr", "k€y", "other-"] {
        assert!(!scrubbed.contains(part), "{scrubbed}");
    }
    assert!(scrubber.longest() >= SECRET.len());
}

#[test]
fn each_form() {
    let json = serde_json::to_string(SECRET).unwrap();
    check(SECRET);
    check("a other-secret b other-secret");
    check(&json);
    check(&json.replace('/', "\\/"));
    check(&serde_json::to_string(&json).unwrap());
    check(&json.replace('€', "\\u20ac").replace('+', "\\u002b"));
    check(&format!("{{\"echo\":{json}}}"));
    check(&percent_encoding::utf8_percent_encode(SECRET, FORM).to_string());
    check(
        &percent_encoding::utf8_percent_encode(SECRET, percent_encoding::NON_ALPHANUMERIC)
            .to_string(),
    );
    for prefix in ["", "u", "us", "user:"] {
        for engine in [STANDARD, URL_SAFE] {
            check(&format!(
                "Basic {}",
                engine.encode(format!("{prefix}{SECRET}"))
            ));
            check(&format!(
                "Basic {}",
                engine.encode(format!("{prefix}{SECRET} and more"))
            ));
        }
    }
}

#[test]
fn a_secret_within_another_leaves_nothing() {
    let scrubber = Scrubber::new(["abcdefgh", "abcdefghijkl"]);
    assert_eq!(scrubber.scrub_text("xabcdefghijklx"), "x[redacted]x");
}

#[test]
fn what_is_no_secret_stays_and_nothing_is_printed() {
    let scrubber = Scrubber::new(["a", "", "true", SECRET]);
    let text = r#"{"a":true}"#;
    assert_eq!(scrubber.scrub_text(text), text);
    assert!(!format!("{scrubber:?}").contains("s3cr"));
    assert_eq!(Scrubber::default().scrub(vec![0xff, 0]), vec![0xff, 0]);
}
