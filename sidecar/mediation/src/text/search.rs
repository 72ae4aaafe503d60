//! Searches a text for many strings at once.
//!
//! Not here: strings that are written with escapes ([`super::scrub`]).

use std::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};

/// Up to this size, all needles together get the fastest automaton, which takes half a KiB for each
/// of their bytes; larger sets get one of a few bytes each.
const SMALL: usize = 4 * 1024;

/// Finds the first of several strings.
#[derive(Clone)]
pub(crate) enum FirstOf {
    /// Compares many places at once. For few needles, on processors that can.
    Vector(packed::Searcher),
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
        if let Some(searcher) = packed::Searcher::new(needles) {
            return Self::Vector(searcher);
        }
        let size: usize = needles.iter().map(Vec::len).sum();
        let kind = match size {
            ..=SMALL => None,
            _ => Some(AhoCorasickKind::ContiguousNFA),
        };
        AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .kind(kind)
            .build(needles)
            .map_or(Self::Unknown, Self::Automaton)
    }

    /// Returns a place before which no needle begins. `None` if the text contains none.
    pub(crate) fn first(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Vector(searcher) => Some(searcher.find(text)?.start()),
            Self::Automaton(automaton) => Some(automaton.find(text)?.start()),
            Self::Unknown => Some(0),
        }
    }
}
