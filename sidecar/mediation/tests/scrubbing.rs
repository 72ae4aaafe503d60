//! Known secrets are removed from bytes in every form in which a service could echo them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::collection::vec;
use proptest::prelude::*;
use toolcrib_mediation::Scrubber;

/// The encoding of form values in browsers, except for blanks.
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
    // HTML pages, with entities that are themselves encoded once more.
    let html = |text: &str| {
        let numeric = |it: char| format!("&#x{:X};", it as u32);
        let is_plain = |it: &char| it.is_ascii_alphanumeric();
        let encoded = text.chars().map(|it| {
            if is_plain(&it) {
                it.into()
            } else {
                numeric(it)
            }
        });
        encoded.collect::<String>()
    };
    check(&html(SECRET));
    check(&html(SECRET).replace("&#x2F;", "&#047;"));
    check(&html(SECRET).replace('&', "&amp;"));
    check(&html(SECRET).replace('&', "\\u0026"));
    check(&SECRET.replace('"', "&quot;"));
    // Logs of servers and of C programs.
    let is_plain = |it: &u8| it.is_ascii_alphanumeric();
    let logged = SECRET.bytes().map(|it| match is_plain(&it) {
        true => char::from(it).to_string(),
        false => format!("\\x{it:02X}"),
    });
    check(&logged.collect::<String>());
    for text in [hex::encode(SECRET), hex::encode_upper(SECRET)] {
        check(&format!("0x{text}00"));
    }
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

/// JSON writes a character above U+FFFF as two escapes.
#[test]
fn a_pair_of_escapes_is_one_character() {
    let scrubber = Scrubber::new(["otter-\u{1f9a6}-pond"]);
    for text in ["otter-\\ud83e\\udda6-pond", "otter-\\\\uD83E\\\\uDDA6-pond"] {
        assert_eq!(scrubber.scrub_text(text), "[redacted]");
    }
    let other = "otter-\\ud83e\\udda7-pond";
    assert_eq!(scrubber.scrub_text(other), other);
}

#[test]
fn a_secret_that_looks_encoded_is_found() {
    let scrubber = Scrubber::new(["pa%25ss%41word"]);
    for text in [
        "pa%25ss%41word",
        "pa%2525ss%2541word",
        "pa&#37;25ss&#37;41word",
    ] {
        assert_eq!(scrubber.scrub_text(text), "[redacted]");
    }
}

#[test]
fn a_secret_within_another_leaves_nothing() {
    let scrubber = Scrubber::new(["abcdefgh", "abcdefghijkl"]);
    assert_eq!(scrubber.scrub_text("xabcdefghijklx"), "x[redacted]x");
}

#[test]
fn other_text_stays_and_debug_prints_no_secret() {
    let scrubber = Scrubber::new(["a", "", "true", SECRET]);
    let text = r#"{"a":true}"#;
    assert_eq!(scrubber.scrub_text(text), text);
    assert!(!format!("{scrubber:?}").contains("s3cr"));
    assert_eq!(Scrubber::default().scrub(vec![0xff, 0]), vec![0xff, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A text with an escape that could stand for a byte of a secret is read byte by byte; other
    /// texts are searched for all forms at once. Both searches find the same.
    #[test]
    fn plain_and_escaped_search_find_the_same(pieces in vec(piece(), 0..24)) {
        let scrubber = Scrubber::new(["sekrit-token-77", "krit-tok", "token-77/other"]);
        let text = pieces.concat();
        let escape = " %73";
        let slow = scrubber.scrub_text(&format!("{text}{escape}"));
        let fast = scrubber.scrub_text(&text);
        prop_assert_eq!(slow, format!("{fast}{escape}"));
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("sekrit-token-77".to_string()),
        Just(STANDARD.encode("sekrit-token-77")),
        Just(URL_SAFE.encode("a:sekrit-token-77/other")),
        Just("\\n".to_string()),
        Just("\\\\\"".to_string()),
        Just("%20".to_string()),
        Just("\\u00e9".to_string()),
        Just("\\u0073ekrit-token-77".to_string()),
        Just("é ".to_string()),
        "[sekrit-]{1,6}",
        "[token7/-]{1,6}",
    ]
}

/// A line of the record stays JSON, whatever a secret looks like and wherever it stands.
#[test]
fn scrubbed_json_stays_json() {
    let check = |secret: &str, text: &str, wanted: &str| {
        let scrubber = Scrubber::new([secret]);
        let scrubbed = scrubber.scrubbed_json(text.as_bytes().into()).into_owned();
        let scrubbed = String::from_utf8(scrubbed).unwrap();
        assert_eq!(scrubbed, wanted);
        serde_json::from_str::<serde_json::Value>(&scrubbed).unwrap();
    };
    let number = "31415926";
    check(
        number,
        r#"{"n":31415926,"m":1}"#,
        r#"{"n":"[redacted]","m":1}"#,
    );
    check(number, r#"[-931415926.5e3, 2]"#, r#"["[redacted]", 2]"#);
    check(
        number,
        r#"{"31415926":"a31415926b"}"#,
        r#"{"[redacted]":"a[redacted]b"}"#,
    );
    check("false-secret", r#"{"a":false}"#, r#"{"a":false}"#);
    // Removing the secret alone would leave half an escape.
    check("n-secret", r#"{"a":"x\n-secret"}"#, r#"{"a":"[redacted]"}"#);
    // The secret spans several values.
    check(
        r#"1","b":22"#,
        r#"{"a":"1","b":22,"c":3}"#,
        r#"{"a":"[redacted]","[redacted]":"[redacted]","c":3}"#,
    );
    check(number, r#"{"a":[]}"#, r#"{"a":[]}"#);
}

proptest! {
    #[test]
    fn scrubbed_json_stays_json_without_secrets(
        secret in "[0-9]{6,9}|[a-z\\\"]{6,9}", before in "[a-z0-9\"\\\\]{0,4}", numbers in vec(any::<u64>(), 0..3),
    ) {
        let number = secret.trim_start_matches('0').parse::<u64>().unwrap_or(7);
        let value = serde_json::json!({"text": format!("{before}{secret}{before}"), "n": [number, numbers]});
        let scrubber = Scrubber::new([secret.as_str()]);
        let text = value.to_string();
        let scrubbed = scrubber.scrubbed_json(text.as_bytes().into());
        let scrubbed: serde_json::Value = serde_json::from_slice(&scrubbed).unwrap();
        prop_assert!(!scrubbed["text"].as_str().unwrap().contains(&secret));
    }
}
