//! YAML as `kubectl` reads it, so that a file means the same here and in `kubectl apply`.
//!
//! `kubectl` reads plain words by YAML 1.1: `yes` and `off` are booleans, `0777` is 511, `1_000`
//! is
//! 1000. Our parser knows YAML 1.2, where all of these are text. This module replaces such words
//! before it parses a text, and quotes them when it writes one. It leaves quoted and tagged words
//! alone, which mean the same in both versions.
//!
//! Invariant: only such words change, so line numbers stay valid.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde::Deserialize as _;
use serde::Serialize;
use serde_json::Value;

/// Limit on open `[` and `{`. It is the limit of the JSON parser for all levels.
const MAX_OPEN_BRACKETS: usize = 128;

/// A document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line in which its content begins, from 1. Of a document that cannot be read, the line of
    /// the fault.
    pub line: usize,
    /// JSON with merge keys applied, or the fault and its cure.
    pub value: Result<Value, String>,
}

/// Reads the documents of a text, up to the first that cannot be read.
pub fn documents(text: &str) -> Vec<Document> {
    if let Err(error) = check_nesting(text) {
        let value = Err(error);
        return vec![Document { line: 1, value }];
    }
    let text = as_kubectl(text);
    let mut lines = first_lines(&text).into_iter();
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        // An empty text is one document for one parser, and no document for the other.
        let line = lines.next().unwrap_or(1);
        match parse(document) {
            Ok(value) => documents.push(Document {
                line,
                value: Ok(value),
            }),
            Err(fault) => {
                documents.push(Document {
                    line: fault.line.unwrap_or(line),
                    value: Err(fault.message),
                });
                // After a syntax error the parser's position is lost.
                break;
            }
        }
    }
    documents
}

/// Returns the line of the first content of each document.
fn first_lines(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut begins = false;
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        if begins {
            lines.push(span.start.line());
        }
        begins = matches!(event, Event::DocumentStart(_));
    }
    lines
}

/// Refuses a text whose lists and maps nest too deeply in brackets. `serde_yaml` checks all open
/// brackets at each word, so its work would grow with the square of the text.
pub fn check_nesting(text: &str) -> Result<(), String> {
    if most_open_brackets(text) <= MAX_OPEN_BRACKETS {
        return Ok(());
    }
    // Brackets in quoted texts and comments do not count. This parser stops at 255 levels.
    match Parser::new_from_str(text).find_map(Result::err) {
        None => Ok(()),
        Some(error) => Err(format!(
            "more than {MAX_OPEN_BRACKETS} brackets are open at once ({error}): write it with fewer levels"
        )),
    }
}

fn most_open_brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// Writes a value as YAML that means the same to `kubectl` and to every YAML 1.2 parser.
pub fn to_string(value: &impl Serialize) -> Result<String, serde_yaml::Error> {
    let text = serde_yaml::to_string(value)?;
    // Booleans and numbers are written alike in both versions, so these words are texts.
    let quoted = rewritten(&text, |word| meant(word).map(|_| format!("'{word}'")));
    Ok(quoted.into_owned())
}

/// The advice about a text that is not YAML: the fault may be above the line that the parser names.
pub const CURE: &str = "look at that line and at the ones above it: indent with spaces, all fields of an object alike; write each key once; close each quote and bracket; put a text with `: `, ` #` or `{{` into quotes";

/// The reason why a document cannot be read.
struct Fault {
    /// `None`: somewhere in the document.
    line: Option<usize>,
    message: String,
}

fn parse(document: serde_yaml::Deserializer<'_>) -> Result<Value, Fault> {
    let anywhere = |message| Fault {
        line: None,
        message,
    };
    let mut value = serde_yaml::Value::deserialize(document).map_err(|error| Fault {
        line: error.location().map(|place| place.line()),
        message: format!("cannot be read as YAML: {error}; {CURE}"),
    })?;
    value.apply_merge().map_err(|error| {
        anywhere(format!(
            "{error}: write a map, or an alias of one (`*NAME`), after `<<:`"
        ))
    })?;
    serde_json::to_value(value)
        .map_err(|error| anywhere(format!("{error}: write keys of maps as texts, in quotes")))
}

fn as_kubectl(text: &str) -> Cow<'_, str> {
    rewritten(text, meant)
}

/// Replaces plain, untagged words of a text. The text after a syntax error is left unchanged; the
/// parser that reads it next reports the error.
fn rewritten(text: &str, replacement: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let words: Vec<(usize, Cow<'_, str>, String)> = Parser::new_from_str(text)
        .map_while(Result::ok)
        .filter_map(|(event, span)| {
            let Event::Scalar(word, ScalarStyle::Plain, _, None) = event else {
                return None;
            };
            let replacement = replacement(&word)?;
            Some((span.start.index(), word, replacement))
        })
        .collect();
    if words.is_empty() {
        return Cow::Borrowed(text);
    }
    // The parser counts characters, not bytes.
    let characters: Vec<char> = text.chars().collect();
    let mut written = String::with_capacity(text.len() + words.len() * 4);
    let mut done = 0;
    for (start, word, replacement) in words {
        let start = after_anchor(&characters, start);
        // All of these words are ASCII: as many bytes as characters.
        let end = start + word.len();
        let found = characters.get(start..end);
        if found.is_some_and(|found| found.iter().copied().eq(word.chars())) {
            written.extend(&characters[done..start]);
            written.push_str(&replacement);
            done = end;
        }
    }
    written.extend(&characters[done..]);
    Cow::Owned(written)
}

/// Returns the start of a scalar behind its anchor.
fn after_anchor(characters: &[char], start: usize) -> usize {
    let rest = characters.get(start..).unwrap_or_default();
    if rest.first() != Some(&'&') {
        return start;
    }
    let name = rest.iter().take_while(|c| !c.is_whitespace()).count();
    let space = rest[name..]
        .iter()
        .take_while(|c| c.is_whitespace())
        .count();
    start + name + space
}

/// Returns the YAML 1.1 meaning of a plain word if YAML 1.2 gives it another one.
fn meant(word: &str) -> Option<String> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some("true".to_owned()),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some("false".to_owned()),
        _ => number(word),
    }
}

/// Converts numbers that only YAML 1.1 knows: with underscores, octal numbers that begin with `0`,
/// and prefixes in capitals.
fn number(word: &str) -> Option<String> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let has_leading_zero = unsigned.len() > 1
        && unsigned.starts_with('0')
        && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    let has_capital_prefix = ["0X", "0B", "0O"]
        .iter()
        .any(|prefix| unsigned.starts_with(prefix));
    let is_of_1_1 = word.contains('_') || has_leading_zero || has_capital_prefix;
    if !is_of_1_1 || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let plain = unsigned.replace('_', "");
    let sign = if word.starts_with('-') { "-" } else { "" };
    let integer = match plain.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(&plain[2..], 16),
        [b'0', b'b' | b'B', ..] => u64::from_str_radix(&plain[2..], 2),
        [b'0', b'o' | b'O', ..] => u64::from_str_radix(&plain[2..], 8),
        [b'0', _, ..] => u64::from_str_radix(&plain, 8),
        _ => plain.parse(),
    };
    let magnitude = match integer {
        Ok(integer) => integer.to_string(),
        // `08` is not an octal number, so it is a decimal one.
        Err(_) => decimal(&plain)?.to_string(),
    };
    Some(format!("{sign}{magnitude}"))
}

/// Parses digits with a point or an exponent; Rust alone would also accept words such as `inf`.
fn decimal(plain: &str) -> Option<f64> {
    let is_decimal = plain
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let number: f64 = plain.parse().ok().filter(|_| is_decimal)?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Vec<Result<Value, String>> {
        let documents = documents(text).into_iter();
        documents.map(|document| document.value).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(as_kubectl(text), expected);
    }

    #[test]
    fn words_mean_what_yaml_1_1_says() {
        check("a: yes\nb: no\n", "a: true\nb: false\n");
        check("[y, N, on, OFF]", "[true, false, true, false]");
        check("a: &x yes # on\nb: *x\n", "a: &x true # on\nb: *x\n");
        // A key is replaced too: its name becomes "true".
        check("on: [push]\n", "true: [push]\n");
        check("é: yes\n---\nü: off\n", "é: true\n---\nü: false\n");
    }

    /// The expected values are those of Go's parser, which `kubectl` uses.
    #[test]
    fn numbers_of_yaml_1_1() {
        for (word, expected) in [
            ("0777", "511"),
            ("-0777", "-511"),
            ("+017", "15"),
            ("00", "0"),
            ("08", "8"),
            ("1_000", "1000"),
            ("1_000.5", "1000.5"),
            ("0x_ff", "255"),
            ("0XfF", "255"),
            ("0B11", "3"),
        ] {
            check(&format!("a: {word}\n"), &format!("a: {expected}\n"));
        }
    }

    #[test]
    fn other_words_stay_unchanged() {
        for text in [
            "a: \"yes\"\nb: 'no'\nc: \"0777\"\n",
            "a: !!str yes\n",
            "a: yEs\nb: yes please\nc: say yes\n",
            "a: |\n  yes\n  no\nb: >-\n  off\n",
            "# yes\na: [b, c]\n",
            "a: true\nb: 17\nc: 0x1f\nd: 0o17\ne: 1.5\nf: 0.5\ng: 0\nh: -1e3\n",
            "a: 2026-01-02\nb: 1_a\nc: _1\nd: 0_x\ne: 1.2.3_4\nf: 12:30\ng: 0Xyz\n",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn text_that_is_no_yaml_stays_unchanged() {
        check("a: yes\n---\nb: [on\n}", "a: true\n---\nb: [true\n}");
        check("\t: {", "\t: {");
        check("", "");
    }

    /// The growth of the work is tested in `e2e/growth`.
    #[test]
    fn deeply_nested_brackets_are_refused() {
        for piece in ["[", "{a: ", "[{a: "] {
            let read = values(&piece.repeat(100_000));
            let [Err(error)] = &read[..] else {
                panic!("{read:?}");
            };
            assert!(error.contains("more than 128 brackets"), "{error}");
        }
        let closed = format!("{}{}", "[".repeat(300), "]".repeat(300));
        assert!(values(&closed)[0].is_err());
    }

    #[test]
    fn a_fault_has_its_line() {
        let lines = |text| -> Vec<usize> { documents(text).iter().map(|it| it.line).collect() };
        assert_eq!(lines("a: 1\n---\n\nb: 1\nc: [1\nd: 2\n"), [1, 6]);
        assert_eq!(lines("a: 1\n---\nb: 1\nb: 2\n"), [1, 3]);
        assert_eq!(lines("# c\n---\n# d\n{[1]: 2}\n"), [4]);
    }

    #[test]
    fn brackets_in_quoted_texts_do_not_count() {
        let brackets = "[{".repeat(500);
        let text = format!("# {brackets}\na: '{brackets}'\nb: [1, 2]\n");
        let expected = json!({"a": brackets, "b": [1, 2]});
        assert_eq!(values(&text), [Ok(expected)]);
    }

    #[test]
    fn written_yaml_reads_back_unchanged() {
        let value = json!({
            "yes": ["no", "0777", "1_000", "plain", "two words", "a: b"],
            "y": {"of": "otter's", "text": "yes\nno\n", "on": true, "number": 7},
        });
        let text = to_string(&value).expect("plain data");
        assert!(text.contains("'yes':") && text.contains("- 'no'"), "{text}");
        assert_eq!(values(&text), [Ok(value)], "{text}");
    }

    proptest! {
        #[test]
        fn any_written_text_reads_back_unchanged(
            word in "[yYnNoOfFeEsSxXbB0-9_.+ :'#-]{0,6}|\\PC{0,8}",
        ) {
            let value = json!({ word.clone(): [word] });
            let text = to_string(&value).expect("plain data");
            prop_assert_eq!(values(&text), [Ok(value)], "{}", text);
        }

        #[test]
        fn a_document_has_the_line_in_which_its_content_begins(
            parts in prop::collection::vec(
                (0..7_usize, prop_oneof![Just("---\n"), Just("--- # c\n"), Just("...\n---\n"), Just("---\n---\n")]),
                1..6,
            ),
            has_first_separator: bool,
        ) {
            const BEFORE: [&str; 7] = ["", "\n", "# c\n", "\n# c\n\n", "  # c\n", "# yes: 0777\n", "#\n#\n"];
            let mut text = String::new();
            for (at, (before, separator)) in parts.iter().enumerate() {
                match (at, has_first_separator) {
                    (0, false) => {}
                    (0, true) => text.push_str("---\n"),
                    (_, _) => text.push_str(separator),
                }
                text.push_str(BEFORE[*before]);
                text.push_str(&format!("at: {at}\nyes: |\n  - a\n\nb: \"c\n  d\"\n"));
            }
            let mut seen = 0;
            for document in documents(&text) {
                let value = document.value.expect("YAML");
                if let Some(at) = value["at"].as_u64() {
                    let line = text.lines().nth(document.line - 1);
                    prop_assert_eq!(line, Some(&*format!("at: {at}")), "{}", text);
                    seen += 1;
                }
            }
            prop_assert_eq!(seen, parts.len());
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[ynosf0-7_&*!|>\\[\\]{}:,# \n\t'\"-]{0,40}|\\PC{0,40}") {
            let read = as_kubectl(&text);
            prop_assert_eq!(read.lines().count(), text.lines().count());
        }
    }
}
