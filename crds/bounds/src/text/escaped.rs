//! JSON for people who decide by it: no character looks like another one.
//!
//! A person approves a call by its arguments. Letters of two alphabets in one word, or a word of letters
//! that all look like Latin ones, could make them see another call than the one that runs. The result is
//! JSON with the same value.

use std::fmt::Write as _;

/// An alphabet that is shown. Those that are written from right to left change the order of what stands
/// beside them, and are escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    /// With the kana of Japanese.
    Han,
    Hangul,
}

impl Script {
    /// Returns `None` for letters that are not shown.
    fn of(c: char) -> Option<Self> {
        match c {
            'a'..='z' | 'A'..='Z' => Some(Self::Latin),
            // Without a dotless i, a long s and the like.
            '\u{0131}' | '\u{0138}' | '\u{013f}' | '\u{0140}' | '\u{0149}' => None,
            '\u{00c0}'..='\u{017e}' if c.is_alphabetic() => Some(Self::Latin),
            '\u{0386}'..='\u{03ce}' if c.is_alphabetic() => Some(Self::Greek),
            '\u{0400}'..='\u{045f}' => Some(Self::Cyrillic),
            '\u{3041}'..='\u{3096}'
            | '\u{30a1}'..='\u{30fa}'
            | '\u{3005}'
            | '\u{30fc}'
            | '\u{4e00}'..='\u{9fff}' => Some(Self::Han),
            '\u{ac00}'..='\u{d7a3}' => Some(Self::Hangul),
            _ => None,
        }
    }
}

/// Returns whether a letter of another alphabet looks like a Latin one.
fn looks_latin(c: char) -> bool {
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγικνορυχϲϳАВЕЅІЈКМНОРСТУХавекѕіјмнорстухгпԁ".contains(c)
}

/// Returns JSON text with `\u` escapes for every character that is neither printable ASCII nor a letter of
/// a word that can be told from others. At most six times as long: `\u007f` stands for one byte.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let is_letter = first.is_alphanumeric();
        let end = rest.find(|c: char| c.is_alphanumeric() != is_letter);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if is_letter && is_plain(part) {
            text.push_str(part);
        } else {
            part.chars().for_each(|c| push(&mut text, c));
        }
    }
    text
}

/// Returns whether the word has letters of one alphabet alone, and is none of look-alikes.
fn is_plain(word: &str) -> bool {
    if word.is_ascii() {
        return true;
    }
    let mut letters = word.chars().filter(|c| !c.is_ascii_digit()).peekable();
    let Some(script) = letters.peek().copied().and_then(Script::of) else {
        return false;
    };
    let mut is_apart = matches!(script, Script::Latin | Script::Han | Script::Hangul);
    for letter in letters {
        if Script::of(letter) != Some(script) {
            return false;
        }
        is_apart |= !looks_latin(letter);
    }
    is_apart
}

fn push(text: &mut String, c: char) {
    if c == ' ' || c.is_ascii_graphic() {
        text.push(c);
        return;
    }
    let mut units = [0; 2];
    for unit in c.encode_utf16(&mut units) {
        write!(text, "\\u{unit:04x}").expect("a string takes all text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let json = serde_json::to_string(text).expect("JSON");
        let shown = escaped(&json);
        assert_eq!(shown, format!("\"{expected}\""));
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), text);
        assert!(shown.len() <= 6 * json.len());
    }

    #[test]
    fn words_of_one_alphabet_are_shown() {
        check("buy 100 ACME!", "buy 100 ACME!");
        check("Größe Œuvre", "Größe Œuvre");
        check("привет 42", "привет 42");
        check("λόγος", "λόγος");
        check("注文する 株式", "注文する 株式");
        check("주문", "주문");
    }

    #[test]
    fn characters_that_could_be_mistaken_are_escaped() {
        // Cyrillic а in a Latin word, and a word of look-alikes alone.
        check("p\u{0430}y", "p\\u0430y");
        check(
            "\u{0410}\u{0421}\u{041c}\u{0415}",
            "\\u0410\\u0421\\u041c\\u0415",
        );
        check("\u{0391}\u{0392}", "\\u0391\\u0392");
        // Hidden, reordering, combining, wide, and other spaces.
        check("1\u{200b}0", "1\\u200b0");
        check("\u{202e}001", "\\u202e001");
        check("e\u{0301}", "e\\u0301");
        check("\u{ff21}\u{ff11}", "\\uff21\\uff11");
        check("a\u{00a0}b", "a\\u00a0b");
        check("\u{0661}", "\\u0661");
        check("שלום", "\\u05e9\\u05dc\\u05d5\\u05dd");
        check("\u{1f4b6}", "\\ud83d\\udcb6");
        check("\u{7f}", "\\u007f");
        check("l\u{0131}st", "l\\u0131st");
    }

    #[test]
    fn escapes_of_json_stay() {
        check("a\n\"b\\", "a\\n\\\"b\\\\");
    }
}
