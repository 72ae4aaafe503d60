//! A call about which a person decides.
//!
//! Invariant: arguments are shown as they are given, escaped, and never shortened.

/// Width of the labels.
const LABEL: usize = 12;

/// A line with a label.
pub fn labelled(label: &str, text: &str) -> String {
    format!("{label:LABEL$}{text}")
}

/// The lines of a call's arguments, and of the places in which a secret was replaced.
pub fn call_arguments(arguments: &str, redacted: &[String]) -> Vec<String> {
    let mut lines = vec!["arguments".to_owned()];
    let text = indented(arguments);
    lines.extend(text.lines().map(|line| format!("  {line}")));
    if !redacted.is_empty() {
        let places = redacted.join(", ");
        let text = format!("{places}: a known secret is not shown");
        lines.push(labelled("redacted", &text));
    }
    lines
}

/// JSON with a line for each member and element. All other bytes stay: digits of numbers, and escapes of
/// characters that could be mistaken. A text that is no JSON is shown as it is.
fn indented(text: &str) -> String {
    if serde_json::from_str::<&serde_json::value::RawValue>(text).is_err() {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    let mut last = ' ';
    for c in text.chars() {
        if in_text {
            shown.push(c);
            in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            last = c;
            continue;
        }
        match c {
            ' ' | '\n' | '\r' | '\t' => continue,
            '{' | '[' => {
                start_line(&mut shown, depth, last);
                shown.push(c);
                depth += 1;
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !matches!(last, '{' | '[') {
                    shown.push('\n');
                    indent(&mut shown, depth);
                }
                shown.push(c);
            }
            ':' => shown.push_str(": "),
            ',' => shown.push(c),
            _ => {
                start_line(&mut shown, depth, last);
                shown.push(c);
                in_text = c == '"';
            }
        }
        last = c;
    }
    shown
}

/// Begins a line before a member or an element.
fn start_line(shown: &mut String, depth: usize, last: char) {
    if matches!(last, '{' | '[' | ',') {
        shown.push('\n');
        indent(shown, depth);
    }
}

/// Deeper levels than a screen has are not told apart, so that the text stays linear in the arguments.
fn indent(shown: &mut String, depth: usize) {
    const DEEPEST: usize = 16;
    for _ in 0..depth.min(DEEPEST) {
        shown.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_a_line_each_and_keep_their_bytes() {
        let text = r#"{"a":12345678901234567890123.50,"b":{},"c":[1,{"d":"x,{\"\u0430"}],"e":[]}"#;
        let expected = r#"{
  "a": 12345678901234567890123.50,
  "b": {},
  "c": [
    1,
    {
      "d": "x,{\"\u0430"
    }
  ],
  "e": []
}"#;
        assert_eq!(indented(text), expected);
        assert_eq!(indented("{}"), "{}");
        assert_eq!(indented("{no json"), "{no json");
    }
}
