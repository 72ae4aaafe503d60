//! Finds the tokens of a JSON text in one pass, without decoding them.
//!
//! Every text can be cut into tokens, but they are meaningful only if the text is JSON. Not here:
//! the scanner of model bodies in `toolcrib-dialect`, which skips strings in blocks, and the parser
//! in `toolcrib-compile`, which normalizes text that people wrote.

pub mod number;
pub mod pointer;

use std::ops::Range;

/// Cuts a text into strings with their quotes, other scalars, and the single bytes between values.
pub fn tokens(json: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let token = token(json.as_bytes(), at)?;
        at = token.end;
        // Each token ends next to an ASCII character or at the end of the text, so never inside a
        // character.
        Some(&json[token])
    })
}

/// Returns the token that begins at `start`, or `None` at the end of the text.
pub fn token(text: &[u8], start: usize) -> Option<Range<usize>> {
    let rest = text.get(start..)?;
    let length = match rest.first()? {
        b'"' => string_length(rest),
        byte if is_structure(*byte) => 1,
        _ => rest
            .iter()
            .position(|byte| is_structure(*byte) || *byte == b'"')
            .unwrap_or(rest.len()),
    };
    Some(start..start + length)
}

/// Returns true for a byte between values: a bracket, colon, comma or white space.
pub fn is_structure(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',') || byte.is_ascii_whitespace()
}

/// Returns true if lists and objects are nested at most `levels` deep.
pub fn nests_within(json: &str, levels: usize) -> bool {
    // Most texts have too few brackets to nest deeper, those in strings included.
    let openings = json.bytes().filter(|byte| matches!(byte, b'{' | b'['));
    if openings.count() <= levels {
        return true;
    }
    let mut depth = 0_usize;
    tokens(json).all(|token| {
        match token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth <= levels
    })
}

/// Returns the numbers in order; digits in strings are not numbers.
pub fn numbers(json: &str) -> impl Iterator<Item = &str> {
    tokens(json).filter(|token| token.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
}

/// Returns the length of the string at the beginning, with its quotes. An unterminated string takes
/// all bytes.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &[&str]) {
        let found: Vec<&str> = tokens(json).collect();
        assert_eq!(found, expected, "{json}");
        assert_eq!(found.concat(), json);
    }

    #[test]
    fn a_text_is_cut_into_strings_scalars_and_bytes() {
        check("", &[]);
        check(
            r#"{"a\"}": -1.5e3,"#,
            &["{", r#""a\"}""#, ":", " ", "-1.5e3", ","],
        );
        check(r#"["\\",[]]"#, &["[", r#""\\""#, ",", "[", "]", "]"]);
        check(r#"true"é\é"7"#, &["true", r#""é\é""#, "7"]);
        // Texts that are not JSON.
        check(r#""without end,"#, &[r#""without end,"#]);
        check(r#"["\"#, &["[", r#""\"#]);
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        for (json, levels) in [
            ("1", 0),
            (r#"{"a":[{"b":1}],"c":{}}"#, 3),
            (r#"{"a":"{[{[\"{["}"#, 1),
            (r#"["\\",[]]"#, 2),
            (r#"[{"a":"[[\"[{"}]"#, 2),
            ("]][", 1),
        ] {
            assert!(nests_within(json, levels), "{json}");
            assert!(levels == 0 || !nests_within(json, levels - 1), "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(nests_within(&deep, deep.len()) && !nests_within(&deep, deep.len() - 1));
    }

    #[test]
    fn digits_in_strings_are_not_numbers() {
        let found: Vec<&str> = numbers(r#"{"1": [-2.5E+3, "3", 4], "5": null}"#).collect();
        assert_eq!(found, ["-2.5E+3", "4"]);
    }
}
