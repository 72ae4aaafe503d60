//! Formats texts for people: cuts long texts, ends long lists in a count, makes nouns agree with
//! their number, shows an error with its causes, and escapes what could be mistaken.

pub mod escaped;
pub mod shown;

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::iter;

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

/// Formats a number with its noun: "1 tool", "2 tools", "2 losses".
pub fn count(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Formats at most `most` names, and the number of the others: "a, b and 3 more".
pub fn listed<T, N>(names: N, most: usize) -> String
where
    T: Display,
    N: IntoIterator<Item = T>,
    // With a known length, the names that are not shown are never formatted.
    N::IntoIter: ExactSizeIterator,
{
    let names = names.into_iter();
    let more = names.len().saturating_sub(most);
    let shown: Vec<String> = names.take(most).map(|name| name.to_string()).collect();
    let shown = shown.join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats an error with all its causes: "the record cannot be written: No space left on device". A
/// log line shows an error with this function, since `to_string` omits the causes.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let errors = iter::successors(Some(error), |error| (*error).source());
    let texts: Vec<String> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_in_a_count() {
        for (names, expected) in [
            (&[][..], ""),
            (&["otter"][..], "otter"),
            (&["otter", "heron"][..], "otter, heron"),
            (
                &["otter", "heron", "newt", "pike"][..],
                "otter, heron and 2 more",
            ),
        ] {
            assert_eq!(listed(names, 2), expected);
        }
    }

    #[test]
    fn an_error_is_shown_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the pond cannot be read")]
        struct Unreadable(#[source] std::io::Error);
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let expected = format!("the pond cannot be read: {full}");
        assert_eq!(chain(&Unreadable(full)), expected);
        let alone = std::io::Error::other("dry");
        assert_eq!(chain(&alone), "dry");
    }

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
