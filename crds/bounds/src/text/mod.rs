//! Texts for people: cutting long ones, and counting nouns.

pub mod shown;

use std::borrow::Cow;

/// Marks the end of a text that was cut.
const MARK: &str = " …";

/// Returns the text, or its beginning with a mark: at most `bytes` bytes, cut between characters.
pub fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(MARK.len()));
    let mark = if bytes < MARK.len() { "" } else { MARK };
    Cow::Owned(format!("{}{mark}", &text[..end]))
}

/// A number with its noun: "1 tool", "2 tools", "2 losses".
pub fn count(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, bytes: usize, expected: &str) {
        let shown = cut(text, bytes);
        assert_eq!(shown, expected);
        assert!(shown.len() <= bytes.max(text.len().min(bytes)));
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_visibly_between_characters() {
        check("otter", 5, "otter");
        check("otters", 5, "o …");
        check("ééééé", 9, "éé …");
        check("ééééé", 10, "ééééé");
        check("otter", 4, " …");
        check("otter", 3, "");
        check("", 0, "");
    }

    #[test]
    fn a_noun_agrees_with_its_number() {
        for (number, noun, expected) in [
            (0, "tool", "0 tools"),
            (1, "tool", "1 tool"),
            (2, "tool", "2 tools"),
            (1, "loss", "1 loss"),
            (7, "loss", "7 losses"),
        ] {
            assert_eq!(count(number, noun), expected);
        }
    }
}
