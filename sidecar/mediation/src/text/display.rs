//! A one-line summary of a call's result, for people.

use serde::Serialize;
use toolcrib_bounds::cut;

use crate::text::scrub::Scrubber;

/// Limits the bytes of the line. Log viewers and trace viewers show about as much of a line.
const MAX: usize = 200;

/// A tool's text for people: one line, without known secrets, at most 200 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Display(String);

impl Display {
    /// Scrubs before it cuts, so that no part of a secret remains at the end.
    pub fn new(text: &str, scrubber: &Scrubber) -> Self {
        let line: String = scrubber
            .scrub_text(text)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Self(cut(&line, MAX).into_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_text_is_one_short_line_without_secrets() {
        let scrubber = Scrubber::new(["sekrit-token"]);
        let check = |text: &str| Display::new(text, &scrubber).0;
        assert_eq!(check("pond.depth: 7 bytes"), "pond.depth: 7 bytes");
        assert_eq!(check("a\nb\u{1b}[2J"), "a b [2J");
        let long = check(&"ö".repeat(200));
        assert!(long.len() <= MAX && long.ends_with("ö …"), "{long}");
        // The secret crosses the cut.
        let across = check(&format!("{}sekrit-token", "x".repeat(MAX - 8)));
        assert!(!across.contains("sek"), "{across}");
    }
}
