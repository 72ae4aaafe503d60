//! Random waits, so that many clients do not come back at once.

use std::time::Duration;

/// A random part of a duration. Without randomness all of it, which is right too.
pub fn part_of(whole: Duration) -> Duration {
    let mut random = [0u8; 2];
    match getrandom::fill(&mut random) {
        Ok(()) => whole.mul_f64(f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX)),
        Err(_) => whole,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn parts_differ_and_are_no_longer_than_the_whole() {
        let whole = Duration::from_secs(4);
        let parts: BTreeSet<Duration> = (0..100).map(|_| part_of(whole)).collect();
        assert!(parts.len() > 10 && parts.iter().all(|part| *part <= whole));
        assert_eq!(part_of(Duration::ZERO), Duration::ZERO);
    }
}
