//! Runs fuzz targets: functions of foreign bytes that must not panic, nor take long, whatever the
//! bytes are.
//!
//! By default a target runs a fixed number of inputs from a fixed seed, so that failures are
//! reproducible. `TOOLCRIB_FUZZ_SECONDS` and `TOOLCRIB_FUZZ_SEED` change that. A failure prints its
//! input: add it to the target's seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Number of inputs of a target besides its seeds, if no time is set.
const INPUTS: usize = 4000;

/// An input that takes longer than this in a debug build on a busy machine is a failure.
const MOST_TIME: Duration = Duration::from_secs(20);

/// Runs every seed as it is, then mutations of the seeds. `words` are pieces that a mutation
/// inserts: words that the readers look for, and syntax.
pub fn fuzz(target: &str, seeds: &[Vec<u8>], words: &[&str], run: impl Fn(&[u8], &mut Rng)) {
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let end = env("TOOLCRIB_FUZZ_SECONDS").map(|time| Instant::now() + Duration::from_secs(time));
    let mut rng = Rng(env("TOOLCRIB_FUZZ_SEED").unwrap_or(1));
    let mut inputs = 0;
    while match end {
        Some(end) => inputs < seeds.len() || Instant::now() < end,
        None => inputs < seeds.len() + INPUTS,
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
            taken < MOST_TIME,
            "{target} took {taken:?} for:\n{}",
            input.escape_ascii()
        );
        inputs += 1;
    }
    println!("{target}: {inputs} inputs");
}

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

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

/// Random numbers, by splitmix64.
pub struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a length");
        usize::try_from(self.next() % end).expect("below a length")
    }

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
    fn seeds_come_first_and_the_same_inputs_again() {
        let first = inputs();
        assert_eq!(first[..2], [b"otter".to_vec(), Vec::new()]);
        assert!(first.iter().any(|input| input.ends_with(b"reed")));
        assert!(first.len() >= 2 + INPUTS);
        if env("TOOLCRIB_FUZZ_SECONDS").is_none() {
            assert!(first == inputs());
        }
    }

    #[test]
    #[should_panic(expected = "it fails")]
    fn a_panic_is_a_failure() {
        fuzz("panic", &[vec![7]], &["a"], |_, _| panic!("it fails"));
    }
}
