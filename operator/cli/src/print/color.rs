//! Colors: on a terminal only, and never if NO_COLOR is set.

use std::io::IsTerminal as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    On,
    Off,
}

impl Color {
    pub const GREEN: &'static str = "32";
    pub const RED: &'static str = "31";

    pub fn of_stdout() -> Self {
        let on = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        if on { Self::On } else { Self::Off }
    }

    /// Colors a word that is alone in its column. Columns must be aligned before.
    pub fn words(self, text: &str, words: &[(&str, &str)]) -> String {
        match self {
            Self::Off => text.to_owned(),
            Self::On => words.iter().fold(text.to_owned(), |text, (word, code)| {
                let column = format!("   {word}   ");
                text.replace(&column, &format!("   \x1b[{code}m{word}\x1b[0m   "))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_column_of_its_own_is_colored() {
        let line = "pond/otter   loses   tool loses.all   it loses it\n";
        assert_eq!(Color::Off.words(line, &[("loses", Color::RED)]), line);
        assert_eq!(
            Color::On.words(line, &[("loses", Color::RED)]),
            "pond/otter   \x1b[31mloses\x1b[0m   tool loses.all   it loses it\n"
        );
    }
}
