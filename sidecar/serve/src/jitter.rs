//! Random waits, so that many clients do not reconnect at the same time.

use std::time::Duration;

/// Returns a random part of a duration. Without randomness, the whole duration, which is safe too.
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
    fn random_waits_differ_and_never_exceed_the_duration() {
        let whole = Duration::from_secs(4);
        let parts: BTreeSet<Duration> = (0..100).map(|_| part_of(whole)).collect();
        assert!(parts.len() > 10 && parts.iter().all(|part| *part <= whole));
        assert_eq!(part_of(Duration::ZERO), Duration::ZERO);
    }
}
