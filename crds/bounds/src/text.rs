//! Texts that are shown to people: cut where they are too long, and visibly so.

use std::borrow::Cow;

/// Stands at the end of a text that was cut.
const MARK: &str = " …";

/// The text, or its beginning with a mark: at most `bytes` bytes, and never half a character.
pub fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(MARK.len()));
    let mark = if bytes < MARK.len() { "" } else { MARK };
    Cow::Owned(format!("{}{mark}", &text[..end]))
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
}
