//! Finds strings in a text, with each of their bytes plain or escaped.

use std::fmt;
use std::ops::Range;

use super::escapes::{Each, backslash_readings, begins_escape, each_reading};
use crate::text::search::FirstOf;

/// Steps that a search may take for each byte of the text. Texts of escapes alone take up to 2.
const STEPS_PER_BYTE: usize = 8;
/// Additional steps, so that searches of short texts never reach their bound.
const STEPS_AT_LEAST: usize = 64 * 1024;

/// The needles in byte order. Needles with a common prefix are neighbours, so that a walk through
/// the text follows them all at once, like a trie.
#[derive(Clone)]
pub(super) struct Needles {
    sorted: Vec<Vec<u8>>,
    /// Range of needles by their first byte.
    by_first: Vec<Range<usize>>,
    /// True for each byte that occurs in a needle.
    anywhere: [bool; 256],
    /// A backslash with each letter that may begin an escape of a byte of a needle.
    backslashes: FirstOf,
    plain: FirstOf,
}

/// Counts the steps of one search: each byte that a walk examines, and each backslash of a run.
/// Between walks, a bounded number of bytes is examined for each byte of the text.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) taken: usize,
    most: usize,
}

/// The search has used up its steps.
struct StepLimit;

/// One way to read the text up to this place.
struct Walk {
    at: usize,
    /// The needles that still match.
    needles: Range<usize>,
    /// Number of bytes of these needles that the text has matched.
    matched: usize,
}

/// State of a search between places.
struct Search<'t> {
    text: &'t [u8],
    walks: Vec<Walk>,
    /// The last run of backslashes that was examined.
    run: Range<usize>,
}

impl Needles {
    pub(super) fn new(mut needles: Vec<Vec<u8>>) -> Self {
        needles.sort_unstable();
        needles.dedup();
        let mut anywhere = [false; 256];
        for byte in needles.iter().flatten() {
            anywhere[usize::from(*byte)] = true;
        }
        let letters = (0..=u8::MAX).filter(|letter| {
            // After these two, digits decide.
            matches!(letter, b'u' | b'x')
                || reads_any(&anywhere, &|each| backslash_readings(&[*letter], 0, each))
        });
        let backslashes: Vec<Vec<u8>> = letters.map(|letter| vec![b'\\', letter]).collect();
        let by_first = (0..=u8::MAX).map(|byte| {
            let start = needles.partition_point(|it| it[0] < byte);
            start..needles.partition_point(|it| it[0] <= byte)
        });
        Self {
            by_first: by_first.collect(),
            anywhere,
            backslashes: FirstOf::new(&backslashes),
            plain: FirstOf::new(&needles),
            sorted: needles,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the places of the needles, in order and disjoint; of those that begin at one place,
    /// the longest. If the steps are used up, the last place extends to the end of the text.
    pub(super) fn found(&self, text: &[u8], steps: &mut Steps) -> Vec<Range<usize>> {
        let Some(mut at) = self.begins_after(text) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut search = Search {
            text,
            walks: Vec::new(),
            run: 0..0,
        };
        while let Some(&byte) = text.get(at) {
            if !begins_escape(byte) && self.by_first[usize::from(byte)].is_empty() {
                at += 1;
                continue;
            }
            match self.longest_at(at, &mut search, steps) {
                Ok(Some(end)) => {
                    found.push(at..end);
                    at = end;
                }
                // If the first backslash of a run begins no needle, no later one does.
                Ok(None) if byte == b'\\' => at = search.run_end(at, steps),
                Ok(None) => at += 1,
                Err(StepLimit) => {
                    found.push(at..text.len());
                    break;
                }
            }
        }
        found
    }

    /// Returns a place before which no needle begins. `None` if the text contains none.
    fn begins_after(&self, text: &[u8]) -> Option<usize> {
        if self.sorted.is_empty() {
            return None;
        }
        if self.escaped_in(text) {
            return Some(0);
        }
        self.plain.first(text)
    }

    /// Returns true if the text may contain an escape that stands for a byte of a needle. May
    /// return true without one.
    fn escaped_in(&self, text: &[u8]) -> bool {
        // The text may have `escape` where a needle has `byte`.
        let may_be = |byte: u8, escape: u8| {
            self.anywhere[usize::from(byte)] && memchr::memchr(escape, text).is_some()
        };
        if may_be(b' ', b'+') || may_be(b'\\', b'\\') {
            return true;
        }
        let reads = |read: &dyn Fn(Each<'_>)| reads_any(&self.anywhere, read);
        let mut others = memchr::memchr2_iter(b'%', b'&', text);
        if others.any(|at| reads(&|each| each_reading(text, at, each))) {
            return true;
        }
        let mut from = 0;
        while let Some(at) = text.get(from..).and_then(|it| self.backslashes.first(it)) {
            from += at + 1;
            // The search may also stop before other bytes.
            if text.get(from - 1) == Some(&b'\\')
                && reads(&|each| backslash_readings(text, from, each))
            {
                return true;
            }
        }
        false
    }

    /// Returns the end of the longest needle that begins here.
    fn longest_at(
        &self,
        start: usize,
        search: &mut Search<'_>,
        steps: &mut Steps,
    ) -> Result<Option<usize>, StepLimit> {
        let mut longest = None;
        search.walks.clear();
        search.walks.push(Walk {
            at: start,
            needles: 0..self.sorted.len(),
            matched: 0,
        });
        while let Some(mut walk) = search.walks.pop() {
            loop {
                steps.take(1)?;
                if self.sorted[walk.needles.start].len() == walk.matched {
                    longest = longest.max(Some(walk.at));
                    walk.needles.start += 1;
                }
                let Some(&byte) = search.text.get(walk.at) else {
                    break;
                };
                if walk.needles.is_empty() {
                    break;
                }
                if begins_escape(byte) {
                    self.push_escaped(&walk, search, steps)?;
                }
                // A backslash is read as part of its run.
                let next = (byte != b'\\').then(|| self.followed(&walk, &[byte], walk.at + 1));
                match next.flatten() {
                    Some(next) => walk = next,
                    None => break,
                }
            }
        }
        Ok(longest)
    }

    /// Adds all continuations that begin with an escape.
    fn push_escaped(
        &self,
        walk: &Walk,
        search: &mut Search<'_>,
        steps: &mut Steps,
    ) -> Result<(), StepLimit> {
        let text = search.text;
        if text[walk.at] != b'\\' {
            let walks = &mut search.walks;
            each_reading(text, walk.at, &mut |bytes, end| {
                walks.extend(self.followed(walk, bytes, end));
            });
            return Ok(());
        }
        let end = search.run_end(walk.at, steps);
        // Encoders add backslashes and never remove any.
        let mut run = Some(Walk {
            needles: walk.needles.clone(),
            ..*walk
        });
        for _ in walk.at..end {
            run = run.and_then(|run| self.followed(&run, b"\\", end));
            let Some(Walk {
                needles, matched, ..
            }) = &run
            else {
                break;
            };
            steps.take(1)?;
            search.walks.push(Walk {
                at: end,
                needles: needles.clone(),
                matched: *matched,
            });
            if self.sorted[needles.start].len() == *matched && needles.len() == 1 {
                break;
            }
        }
        let walks = &mut search.walks;
        backslash_readings(text, end, &mut |bytes, end| {
            walks.extend(self.followed(walk, bytes, end));
        });
        Ok(())
    }

    /// Returns the walk after these bytes too. `None` if no needle continues like this.
    fn followed(&self, walk: &Walk, bytes: &[u8], at: usize) -> Option<Walk> {
        let mut needles = walk.needles.clone();
        let mut matched = walk.matched;
        for byte in bytes {
            needles = match matched {
                0 => self.by_first[usize::from(*byte)].clone(),
                _ => {
                    // A needle that ends here sorts before all longer ones.
                    let next = |needle: &Vec<u8>| needle.get(matched).copied();
                    let these = &self.sorted[needles.clone()];
                    let below = these.partition_point(|it| next(it) < Some(*byte));
                    let above = these.partition_point(|it| next(it) <= Some(*byte));
                    needles.start + below..needles.start + above
                }
            };
            matched += 1;
            if needles.is_empty() {
                return None;
            }
        }
        Some(Walk {
            at,
            needles,
            matched,
        })
    }
}

/// Returns true if a reading of an escape has one of these bytes.
fn reads_any(bytes: &[bool; 256], read: &dyn Fn(Each<'_>)) -> bool {
    let mut found = false;
    read(&mut |reading, _| found |= reading.iter().any(|byte| bytes[usize::from(*byte)]));
    found
}

impl Default for Needles {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Needles({})", self.len())
    }
}

impl Search<'_> {
    /// Returns the end of the run of backslashes at `at`.
    fn run_end(&mut self, at: usize, steps: &mut Steps) -> usize {
        if !self.run.contains(&at) {
            let rest = self.text[at..].iter();
            let length = rest.take_while(|byte| **byte == b'\\').count();
            steps.taken += length;
            self.run = at..at + length;
        }
        self.run.end
    }
}

impl Steps {
    pub(super) fn for_text(text: &[u8]) -> Self {
        Self {
            taken: 0,
            most: text.len() * STEPS_PER_BYTE + STEPS_AT_LEAST,
        }
    }

    fn take(&mut self, count: usize) -> Result<(), StepLimit> {
        self.taken += count;
        if self.taken > self.most {
            return Err(StepLimit);
        }
        Ok(())
    }
}
