//! Names that models and the compiler accept.

use std::collections::BTreeMap;

/// Used names, each with the number to try next for another item of this name.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, usize>);

impl Names {
    /// Uses this name, or the first unused one that `numbered` makes of 2, 3 and so on.
    pub fn unused(&mut self, plain: &str, numbered: impl Fn(usize) -> String) -> String {
        let mut name = plain.to_owned();
        let mut number = self.0.get(plain).copied().unwrap_or(2);
        while self.0.contains_key(&name) {
            name = numbered(number);
            number += 1;
        }
        self.0.insert(plain.to_owned(), number);
        self.0.entry(name.clone()).or_insert(2);
        name
    }
}

/// Converts to snake case: `listForOrg`, `repos/list-for-org` → `list_for_org`,
/// `repos_list_for_org`.
pub fn snake_case(written: &str) -> String {
    let mut name = String::new();
    let characters: Vec<char> = written.chars().collect();
    for (index, c) in characters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| characters.get(index));
        let after = characters.get(index + 1);
        let begins_word = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    // In `HTMLPage` the P begins a word.
                    || (before.is_ascii_uppercase()
                        && after.is_some_and(char::is_ascii_lowercase))
            });
        if (begins_word || !c.is_ascii_alphanumeric()) && !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        }
    }
    name.trim_matches('_').to_owned()
}

/// Cuts a name to `length` characters, between words if enough of it remains.
pub fn cut(name: &str, length: usize) -> String {
    if name.len() <= length {
        return name.to_owned();
    }
    let short = name.get(..length).unwrap_or(name);
    if name.as_bytes().get(length) == Some(&b'_') {
        return short.trim_end_matches('_').to_owned();
    }
    match short.rfind('_') {
        Some(at) if at > length / 2 => short.get(..at).unwrap_or(short).to_owned(),
        _ => short.trim_end_matches('_').to_owned(),
    }
}

/// Whether every provider accepts the text as a property's name.
pub fn is_property(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_name_gets_the_first_unused_number() {
        let mut names = Names::default();
        let mut unused = |plain: &str| names.unused(plain, |number| format!("{plain}_{number}"));
        let given = ["a", "a_3", "a", "a", "a_3", "a"].map(&mut unused);
        assert_eq!(given, ["a", "a_3", "a_2", "a_4", "a_3_2", "a_5"]);
    }

    #[test]
    fn operation_ids_become_names() {
        for (written, name) in [
            ("getPetById", "get_pet_by_id"),
            ("repos/list-for-org", "repos_list_for_org"),
            ("getHTMLPage2Now", "get_html_page2_now"),
            ("Pets_List__all", "pets_list_all"),
            ("üñ", ""),
        ] {
            assert_eq!(snake_case(written), name);
        }
        assert_eq!(cut("list_all_the_fish", 12), "list_all_the");
        assert_eq!(cut("list_all_the_fish", 14), "list_all_the");
        assert_eq!(cut("abcdefghij", 4), "abcd");
    }
}
