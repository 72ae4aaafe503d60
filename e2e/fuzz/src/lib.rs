//! Runs fuzz targets. A target is a function that reads untrusted bytes; no input may make it panic
//! or run longer than [`TIME_LIMIT`].
//!
//! Here: the choice of inputs, and the two checks. Not here: the targets, which are tests of other
//! crates. By default a target runs a fixed number of inputs from a fixed seed, so that failures
//! are reproducible; `TOOLCRIB_FUZZ_SECONDS` and `TOOLCRIB_FUZZ_SEED` change that. A failure prints
//! its input, to be added to the target's seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Number of mutated inputs of a target, if no time is set.
const MUTATIONS: usize = 4000;

/// Limits the time of one input. Long, since debug builds run on busy machines.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Runs `run` on every seed, then on mutations of the seeds. A mutation may insert one of `words`:
/// syntax, and words that the target looks for.
pub fn fuzz(target: &str, seeds: &[Vec<u8>], words: &[&str], run: impl Fn(&[u8], &mut Rng)) {
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let end = env("TOOLCRIB_FUZZ_SECONDS").map(|time| Instant::now() + Duration::from_secs(time));
    let mut rng = Rng(env("TOOLCRIB_FUZZ_SEED").unwrap_or(1));
    let mut inputs = 0;
    while match end {
        Some(end) => inputs < seeds.len() || Instant::now() < end,
        None => inputs < seeds.len() + MUTATIONS,
    } {
        let input = match seeds.get(inputs) {
            Some(seed) => seed.clone(),
            None => mutated(seeds, words, &mut rng),
        };
        let start = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&input, &mut rng))) {
            eprintln!("{target} fails for:\n{}", input.escape_ascii());
            resume_unwind(panic);
        }
        let taken = start.elapsed();
        assert!(
            taken < TIME_LIMIT,
            "{target} took {taken:?} for:\n{}",
            input.escape_ascii()
        );
        inputs += 1;
    }
    println!("{target}: {inputs} inputs");
}

/// Reads a number from an environment variable.
fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Changes a seed in one to six places: cuts, repeats, flips a bit, or inserts a word or a piece of
/// another seed.
fn mutated(seeds: &[Vec<u8>], words: &[&str], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(6) {
        let range = rng.range(bytes.len());
        match rng.below(7) {
            0 => bytes.truncate(range.end),
            1 => drop(bytes.drain(range)),
            2 => {
                let again = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, again);
            }
            3 if !bytes.is_empty() => {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
            4 => {
                let other = &seeds[rng.below(seeds.len())];
                let piece = other[rng.range(other.len())].to_vec();
                bytes.splice(range, piece);
            }
            replaced => {
                let word = words[rng.below(words.len())].bytes();
                let end = if replaced == 5 {
                    range.end
                } else {
                    range.start
                };
                bytes.splice(range.start..end, word);
            }
        }
    }
    bytes
}

/// A generator of random numbers (splitmix64).
pub struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a length");
        usize::try_from(self.next() % end).expect("below a length")
    }

    /// Returns a range of less than 32 places within `len`.
    fn range(&mut self, len: usize) -> Range<usize> {
        let from = self.below(len + 1);
        from..(from + self.below(32)).min(len)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn inputs() -> Vec<Vec<u8>> {
        let seen = RefCell::new(Vec::new());
        let seeds = [b"otter".to_vec(), Vec::new()];
        fuzz("inputs", &seeds, &["reed", "é"], |bytes, _| {
            seen.borrow_mut().push(bytes.to_vec());
        });
        seen.into_inner()
    }

    #[test]
    fn a_run_begins_with_the_seeds_and_can_be_repeated() {
        let first = inputs();
        assert_eq!(first[..2], [b"otter".to_vec(), Vec::new()]);
        assert!(first.iter().any(|input| input.ends_with(b"reed")));
        assert!(first.len() >= 2 + MUTATIONS);
        if env("TOOLCRIB_FUZZ_SECONDS").is_none() {
            assert!(first == inputs());
        }
    }

    #[test]
    #[should_panic(expected = "it fails")]
    fn a_panic_of_the_target_fails_the_run() {
        fuzz("panic", &[vec![7]], &["a"], |_, _| panic!("it fails"));
    }
}
