//! Names that different readers may take for the same name.
//!
//! `encoding/json` of Go and the web defaults of .NET find a field without regard to case, and the
//! last one wins. PHP turns `claw.id` and `claw id` into `claw_id`, and `claw_id[0]` into an
//! element of it. Go's `encoding/json/v2` can ignore `_` and `-`, and Protobuf's JSON takes
//! `clawId` for `claw_id`. If only one of two readers takes a name for another, an attacker can
//! evade the check of the other reader.
//!
//! Not here: the names that matter, and the handling of a name that reads as another.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Folds the case of a name. Names that are equal under Unicode's simple case folding are equal
/// here; so are names that are equal only in upper case (`ß` and `SS`, `ı` and `I`).
pub fn folded(name: &str) -> Cow<'_, str> {
    if name
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        return Cow::Borrowed(name);
    }
    // Lower case first: `ẞ` has no other upper case, but its lower case `ß` has one, which is two
    // letters.
    let folded = name
        .chars()
        .flat_map(|c| small(c).to_uppercase())
        .map(small);
    Cow::Owned(folded.collect())
}

/// Returns the first character of the lower case. Only `İ` has a second one, a dot that readers
/// drop.
fn small(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// Returns true if two names are equal without case.
pub fn is_same_without_case(one: &str, other: &str) -> bool {
    match one.is_ascii() && other.is_ascii() {
        true => one.eq_ignore_ascii_case(other),
        false => folded(one) == folded(other),
    }
}

/// Number of names up to which each is compared with each: a map of so few takes longer.
const FEW: usize = 8;

/// Returns the first two of these names, in their order, that are equal without case. Identical
/// names count too.
pub fn same_without_case<'n>(
    names: impl IntoIterator<Item = &'n str>,
) -> Option<(&'n str, &'n str)> {
    let mut first: Vec<&str> = Vec::with_capacity(FEW);
    let mut names = names.into_iter();
    for name in names.by_ref().take(FEW) {
        if let Some(other) = first.iter().find(|it| is_same_without_case(it, name)) {
            return Some((other, name));
        }
        first.push(name);
    }
    let mut seen: HashMap<Cow<'_, str>, &str> = HashMap::new();
    for name in names {
        if seen.is_empty() {
            seen.extend(first.iter().map(|it| (folded(it), *it)));
        }
        if let Some(other) = seen.insert(folded(name), name) {
            return Some((other, name));
        }
    }
    None
}

/// Returns true if `name` is not `meant`, but some reader takes it for `meant`: the two differ only
/// in case, in characters that are neither letters nor digits, or in the text from a `[` or NUL on.
pub fn reads_as(name: &str, meant: &str) -> bool {
    if name == meant {
        return false;
    }
    let start = name.split(['[', '\0']).next().unwrap_or(name);
    has_same_letters(name, meant) || has_same_letters(start, meant)
}

fn has_same_letters(one: &str, other: &str) -> bool {
    if !one.is_ascii() || !other.is_ascii() {
        return letters(one) == letters(other);
    }
    fn small(name: &str) -> impl Iterator<Item = u8> {
        let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
        letters.map(|byte| byte.to_ascii_lowercase())
    }
    small(one).eq(small(other))
}

/// A set of names that one reader looks for. It finds the names that another reader takes for them.
#[derive(Clone, Debug)]
pub struct KnownNames {
    exact: HashSet<&'static str>,
    by_letters: HashMap<String, &'static str>,
}

impl KnownNames {
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let exact: HashSet<_> = names.into_iter().collect();
        Self {
            by_letters: exact.iter().map(|name| (letters(name), *name)).collect(),
            exact,
        }
    }

    /// Returns the known name that some reader takes `name` for, unless `name` itself is known (see
    /// [`reads_as`]).
    pub fn read_as(&self, name: &str) -> Option<&'static str> {
        if self.exact.contains(name) {
            return None;
        }
        let start = name.split(['[', '\0']).next().unwrap_or(name);
        let known = |name: &str| self.by_letters.get(&letters(name)).copied();
        let cut = Some(start).filter(|start| start.len() < name.len());
        known(name).or_else(|| known(cut?))
    }
}

fn letters(name: &str) -> String {
    let folded = folded(name);
    folded.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character that Go 1.26 folds, with its folded form: `foldRune` of `encoding/json`,
    /// over all characters (`tests/go-folds.txt` says how it was made).
    #[test]
    fn every_name_that_go_folds_is_folded() {
        let pairs: Vec<(&str, &str)> = include_str!("../tests/go-folds.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once(' ').expect("two characters"))
            .collect();
        assert_eq!(pairs.len(), 1454);
        for (to, from) in pairs {
            let char = |hex: &str| {
                char::from_u32(u32::from_str_radix(hex, 16).expect("hex")).expect("a character")
            };
            let [to, from] = [to, from].map(|hex| format!("x{}_Y", char(hex)));
            assert_eq!(folded(&to), folded(&from));
        }
    }

    #[test]
    fn folding_is_idempotent() {
        for c in '\0'..=char::MAX {
            let name = c.to_string();
            let once = folded(&name).into_owned();
            assert_eq!(folded(&once), once, "{c:?}");
        }
        assert!(matches!(folded("claw_id-2"), Cow::Borrowed("claw_id-2")));
    }

    #[test]
    fn names_that_differ_only_in_case_are_found() {
        let same = |names: &[&'static str]| same_without_case(names.iter().copied());
        assert_eq!(same(&["a", "b", "A"]), Some(("a", "A")));
        assert_eq!(same(&["ſide", "amount", "SIDE"]), Some(("ſide", "SIDE")));
        assert_eq!(same(&["K", "\u{212a}"]), Some(("K", "\u{212a}")));
        assert_eq!(same(&["a", "a"]), Some(("a", "a")));
        assert_eq!(same(&["a_b", "a.b", "ab"]), None);
        let many: Vec<String> = (0..20).map(|at| format!("n{at}")).collect();
        let with = |at: usize, name: &'static str| {
            let mut names: Vec<&str> = many.iter().map(String::as_str).collect();
            names.insert(at, name);
            same_without_case(names).map(|(one, other)| (one.to_owned(), other.to_owned()))
        };
        assert_eq!(with(20, "n20"), None);
        for (name, other) in [("N3", "n3"), ("N12", "n12")] {
            let found = Some((other.to_owned(), name.to_owned()));
            assert_eq!(with(20, name), found);
            let found = Some((name.to_owned(), other.to_owned()));
            assert_eq!(with(0, name), found);
        }
    }

    #[test]
    fn names_are_matched_as_lax_readers_match_them() {
        for name in [
            "CLAW_ID",
            "Claw_Id",
            "clawId",
            "ClawID",
            "claw-id",
            "claw.id",
            "claw id",
            " claw_id",
            "claw[id",
            "claw_id[]",
            "claw_id[0]",
            "claw_id[x][y]",
            "claw_id\0x",
            "claw_id\0",
            "_claw_id",
            "claw_id_",
            "claw__id",
            "claw_\u{131}d",
            "clawid",
            "claw\u{200b}_id",
        ] {
            assert!(reads_as(name, "claw_id"), "{name:?}");
            let known = KnownNames::new(["model", "claw_id"]);
            assert_eq!(known.read_as(name), Some("claw_id"), "{name:?}");
        }
        for name in [
            "claw_id",
            "claw_ids",
            "claw_id2",
            "my_claw_id",
            "claw",
            "id",
            "",
        ] {
            assert!(!reads_as(name, "claw_id"), "{name:?}");
            assert_eq!(KnownNames::new(["claw_id"]).read_as(name), None, "{name:?}");
        }
    }
}
