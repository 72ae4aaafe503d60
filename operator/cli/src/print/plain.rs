//! Makes foreign texts safe to print on a terminal.

use std::borrow::Cow;

/// Longest quotation of a server's text in a message, in bytes: a sentence or two.
const BRIEF: usize = 300;

/// Escapes control characters, so the text stays on one line. Objects hold texts of all authors,
/// and a text could otherwise clear a line above it, or forge one.
pub fn plain(text: &str) -> Cow<'_, str> {
    let speaks = |c: char| c.is_control() || toolcrib_bounds::is_hidden(c);
    if !text.contains(speaks) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match c {
        c if speaks(c) => c.escape_default().to_string(),
        c => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// Returns the beginning of a server's text, on one line.
pub fn brief(text: &str) -> String {
    plain(&toolcrib_bounds::cut(text, BRIEF)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(brief("no \"token\"\n"), "no \"token\"\\n");
        assert!(brief(&"ö".repeat(BRIEF)).len() <= BRIEF);
    }

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(plain("tölt → 1"), "tölt → 1");
        assert_eq!(plain("a\n\u{1b}[2Kb\u{9b}c"), "a\\n\\u{1b}[2Kb\\u{9b}c");
        assert_eq!(plain("a\u{202e}b"), "a\\u{202e}b");
    }
}
