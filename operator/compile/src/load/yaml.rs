//! YAML as `kubectl` reads it, so that a file means here what it means when it is applied.
//!
//! `kubectl` reads plain words by YAML 1.1: `yes` and `off` are booleans, `0777` is 511,
//! `1_000` is 1000. Our reader knows YAML 1.2, where all of these are text. Here: those words
//! are written out before a text is read, and quoted when text is written. Not here: words
//! that are quoted or tagged, which mean the same to both.
//!
//! Invariant: only such words change, so lines stay where they are.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde::Deserialize as _;
use serde::Serialize;
use serde_json::Value;

/// As many `[` and `{` may be open at once. JSON's reader has this limit for all levels.
const MAX_OPEN_BRACKETS: usize = 128;

/// The documents of a text as JSON, merge keys applied; up to the first that does not read.
pub fn documents(text: &str) -> Vec<Result<Value, String>> {
    if let Err(error) = check_nesting(text) {
        return vec![Err(error)];
    }
    let text = as_kubectl(text);
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let document = parse(document);
        let is_last = document.is_err();
        documents.push(document);
        if is_last {
            // After a syntax error the parser's place in the text is lost.
            break;
        }
    }
    documents
}

/// Refuses a text whose lists and maps nest too deeply in brackets. `serde_yaml` looks at all open
/// brackets at each word, so its work would grow with the square of the text.
pub fn check_nesting(text: &str) -> Result<(), String> {
    if most_open_brackets(text) <= MAX_OPEN_BRACKETS {
        return Ok(());
    }
    // Brackets in quoted texts and comments count for nothing. This parser ends at 255 levels.
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

/// A value as YAML that says the same to `kubectl` and to every reader of YAML 1.2.
pub fn to_string(value: &impl Serialize) -> Result<String, serde_yaml::Error> {
    let text = serde_yaml::to_string(value)?;
    // Booleans and numbers are written as both versions have them; so these words are texts.
    let quoted = rewritten(&text, |word| meant(word).map(|_| format!("'{word}'")));
    Ok(quoted.into_owned())
}

/// What to do about a text that is no YAML. The reader names a line; the fault may be above it.
pub const CURE: &str = "look at that line and at the ones above it: indent with spaces, all fields of an object alike; write each key once; close each quote and bracket; put a text with `: `, ` #` or `{{` into quotes";

fn parse(document: serde_yaml::Deserializer<'_>) -> Result<Value, String> {
    let mut value = serde_yaml::Value::deserialize(document)
        .map_err(|error| format!("cannot be read as YAML: {error}; {CURE}"))?;
    value.apply_merge().map_err(|error| {
        format!("{error}: write a map, or an alias of one (`*NAME`), after `<<:`")
    })?;
    serde_json::to_value(value)
        .map_err(|error| format!("{error}: write keys of maps as texts, in quotes"))
}

fn as_kubectl(text: &str) -> Cow<'_, str> {
    rewritten(text, meant)
}

/// The text with other words in place of its plain, untagged ones. From where it is no YAML
/// it is left as it is: whoever reads it says so.
fn rewritten(text: &str, replacement: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let words: Vec<(usize, Cow<'_, str>, String)> = Parser::new_from_str(text)
        .map_while(Result::ok)
        .filter_map(|(event, span)| match event {
            Event::Scalar(word, ScalarStyle::Plain, _, None) => {
                let replacement = replacement(&word)?;
                Some((span.start.index(), word, replacement))
            }
            _ => None,
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

/// Where an anchored scalar itself begins.
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

/// What `kubectl` takes a plain word for, where YAML 1.2 takes it for something else.
fn meant(word: &str) -> Option<String> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some("true".to_owned()),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some("false".to_owned()),
        _ => number(word),
    }
}

/// Numbers of YAML 1.1 alone: with underscores, octal ones that begin with `0`, and prefixes
/// in capitals.
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
        // `08` is no octal number, and so a decimal one.
        Err(_) => decimal(&plain)?.to_string(),
    };
    Some(format!("{sign}{magnitude}"))
}

/// Digits with a point or an exponent. (Rust reads words such as `inf` as numbers, too.)
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

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(as_kubectl(text), expected);
    }

    #[test]
    fn words_of_yaml_1_1() {
        check("a: yes\nb: no\n", "a: true\nb: false\n");
        check("[y, N, on, OFF]", "[true, false, true, false]");
        check("a: &x yes # on\nb: *x\n", "a: &x true # on\nb: *x\n");
        // As a key, too: its name is "true" then.
        check("on: [push]\n", "true: [push]\n");
        check("é: yes\n---\nü: off\n", "é: true\n---\nü: false\n");
    }

    /// What Go's reader makes of them, which is `kubectl`'s.
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
    fn everything_else_stays() {
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
    fn what_is_no_yaml_is_left_to_its_reader() {
        check("a: yes\n---\nb: [on\n}", "a: true\n---\nb: [true\n}");
        check("\t: {", "\t: {");
        check("", "");
    }

    /// Growth of the work: `e2e/growth`.
    #[test]
    fn deeply_nested_brackets_are_refused() {
        for piece in ["[", "{a: ", "[{a: "] {
            let read = documents(&piece.repeat(100_000));
            let [Err(error)] = &read[..] else {
                panic!("{read:?}");
            };
            assert!(error.contains("more than 128 brackets"), "{error}");
        }
        let closed = format!("{}{}", "[".repeat(300), "]".repeat(300));
        assert!(documents(&closed)[0].is_err());
    }

    #[test]
    fn brackets_in_texts_are_no_nesting() {
        let brackets = "[{".repeat(500);
        let text = format!("# {brackets}\na: '{brackets}'\nb: [1, 2]\n");
        let expected = json!({"a": brackets, "b": [1, 2]});
        assert_eq!(documents(&text), [Ok(expected)]);
    }

    #[test]
    fn what_is_written_reads_as_it_was() {
        let value = json!({
            "yes": ["no", "0777", "1_000", "plain", "two words", "a: b"],
            "y": {"of": "otter's", "text": "yes\nno\n", "on": true, "number": 7},
        });
        let text = to_string(&value).expect("plain data");
        assert!(text.contains("'yes':") && text.contains("- 'no'"), "{text}");
        assert_eq!(documents(&text), [Ok(value)], "{text}");
    }

    proptest! {
        #[test]
        fn any_text_reads_as_it_was_written(
            word in "[yYnNoOfFeEsSxXbB0-9_.+ :'#-]{0,6}|\\PC{0,8}",
        ) {
            let value = json!({ word.clone(): [word] });
            let text = to_string(&value).expect("plain data");
            prop_assert_eq!(documents(&text), [Ok(value)], "{}", text);
        }

        #[test]
        fn no_text_stops_it(text in "[ynosf0-7_&*!|>\\[\\]{}:,# \n\t'\"-]{0,40}|\\PC{0,40}") {
            let read = as_kubectl(&text);
            prop_assert_eq!(read.lines().count(), text.lines().count());
        }
    }
}
