//! Checks that a message to a user says what to do.

/// Verbs that begin the part of a message that says what to do.
const VERBS: &str = "add allow annotate ask begin build choose close confirm copy correct create \
    declare delete give grant have install keep label leave look lower make mark move name narrow open pin \
    quote raise reduce remove rename repair repeat replace review rewrite run save say set \
    shorten simplify spell split take try turn update upgrade use wait write";

/// Phrases that say what to do without such a verb: a suggestion, a list to choose from, the
/// owner's task, a note that no action is needed, a command.
const PHRASES: [&str; 12] = [
    "did you mean ",
    "is it spelt right?",
    "there are: ",
    "there is ",
    "must be ",
    "must begin ",
    " write ",
    "its owner must ",
    "its surface's owner can ",
    "it is read again by itself",
    "kubectl ",
    "`",
];

/// Returns whether a message to a user says what to do: a part of it begins with a known verb.
pub fn says_what_to_do(message: &str) -> bool {
    let is_verb = |word: &str| VERBS.split_whitespace().any(|verb| verb == word);
    let mut begins = true;
    for word in message.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if begins && is_verb(bare) {
            return true;
        }
        begins = word.ends_with([':', ';', ',', '.', ')'])
            || word.starts_with('(')
            || ["or", "and", "then"].contains(&bare);
    }
    PHRASES.iter().any(|phrase| message.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_a_cure_is_known() {
        for message in [
            "spec.a: is missing: write it",
            "is 3, but should be 4, or remove it",
            "did you mean otter?",
            "If it may be, its owner runs: kubectl label secret a",
        ] {
            assert!(says_what_to_do(message), "{message}");
        }
        for message in [
            "spec.a: is missing",
            "a name that nobody can write",
            "is set there",
        ] {
            assert!(!says_what_to_do(message), "{message}");
        }
    }
}
