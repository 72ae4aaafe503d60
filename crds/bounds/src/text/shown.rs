//! Invisible characters in a text.
//!
//! A reviewer reads a description on a screen; a model reads all of it. Characters that no screen
//! shows, or that change the order of others, carry text that only the model reads.

/// Removes hidden characters, and counts them.
pub fn shown(text: &str) -> (String, usize) {
    let mut hidden = 0;
    let kept = text
        .chars()
        .filter(|c| {
            let is_hidden = is_hidden(*c);
            hidden += usize::from(is_hidden);
            !is_hidden
        })
        .collect();
    (kept, hidden)
}

/// Returns true for control characters (except line ends and tabs), joiners, direction marks, tags
/// and variation selectors.
pub fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_removed() {
        assert_eq!(shown("o\u{200b}tt\u{202e}er\n"), ("otter\n".into(), 2));
        assert_eq!(shown("tag\u{e0041}"), ("tag".into(), 1));
        assert_eq!(shown("\u{1b}[2Kred\u{9b}"), ("[2Kred".into(), 2));
        assert_eq!(shown("Größe 3 m"), ("Größe 3 m".into(), 0));
    }
}
