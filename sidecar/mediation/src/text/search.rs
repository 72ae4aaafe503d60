//! Searches a text for many strings at once.
//!
//! Not here: strings that are written with escapes ([`super::scrub`]).
//!
//! Invariant: a search is linear in the text, however long the strings are and whatever they repeat.

use std::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};

/// Up to this size, all needles together get the fastest automaton, which takes half a KiB for each
/// of their bytes; larger sets get one of a few bytes each.
const SMALL: usize = 4 * 1024;

/// The vector search compares at most this many bytes of a needle. It compares at each place that may
/// begin one, so with whole needles its work on some texts would be their length for each byte.
const PREFIX: usize = 16;

/// Finds the first of several strings.
#[derive(Clone)]
pub(crate) enum FirstOf {
    /// Compares many places at once. For few needles, on processors that can.
    Vector {
        prefixes: packed::Searcher,
        /// Searches from the first prefix on, if a needle is longer than its prefix.
        whole: Option<AhoCorasick>,
    },
    /// Examines byte by byte.
    Automaton(AhoCorasick),
    /// There are no needles, or too many for an automaton.
    Unknown,
}

/// Without the needles, which may be secrets.
impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstOf")
    }
}

impl FirstOf {
    pub(crate) fn new(needles: &[Vec<u8>]) -> Self {
        if needles.is_empty() {
            return Self::Unknown;
        }
        let mut automaton = AhoCorasick::builder();
        automaton.match_kind(MatchKind::LeftmostFirst);
        let prefixes = needles.iter().map(|it| &it[..it.len().min(PREFIX)]);
        let Some(prefixes) = packed::Searcher::new(prefixes) else {
            let size: usize = needles.iter().map(Vec::len).sum();
            let kind = (size > SMALL).then_some(AhoCorasickKind::ContiguousNFA);
            let automaton = automaton.kind(kind).build(needles);
            return automaton.map_or(Self::Unknown, Self::Automaton);
        };
        if needles.iter().all(|it| it.len() <= PREFIX) {
            return Self::Vector {
                prefixes,
                whole: None,
            };
        }
        automaton
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            // Its prefilter is a vector search for whole needles.
            .prefilter(false)
            .build(needles)
            .map_or(Self::Unknown, |whole| Self::Vector {
                prefixes,
                whole: Some(whole),
            })
    }

    /// Returns a place before which no needle begins. `None` if the text contains none.
    pub(crate) fn first(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Vector { prefixes, whole } => {
                let at = prefixes.find(text)?.start();
                match whole {
                    Some(whole) => Some(at + whole.find(&text[at..])?.start()),
                    None => Some(at),
                }
            }
            Self::Automaton(automaton) => Some(automaton.find(text)?.start()),
            Self::Unknown => Some(0),
        }
    }
}
