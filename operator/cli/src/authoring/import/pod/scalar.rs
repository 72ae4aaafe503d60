//! Parses the small formats within a pod file's texts: durations, service names, commands.

/// Parses `30`, `30s`, `5m` or `1h` to seconds.
pub fn duration_seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns the service of `service://x` or `x`, in a field that allows only a service.
pub fn service_name(written: &str) -> String {
    written
        .strip_prefix("service://")
        .unwrap_or(written)
        .to_owned()
}

/// Splits a command like a shell, without substitutions. `None`: a quote is not closed.
pub fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_like_in_a_shell() {
        let split = |text| split_words(text).map(|words| words.join("|"));
        assert_eq!(
            split("run --at 'a b' \"c d\""),
            Some("run|--at|a b|c d".into())
        );
        assert_eq!(split(r"a\ b ''"), Some("a b|".into()));
        assert_eq!(split("open 'quote"), None);
    }
}
