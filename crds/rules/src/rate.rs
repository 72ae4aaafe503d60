//! How often a rule allows calls.
//!
//! Time is cut into slots of a sixtieth of the period, and calls are counted for each slot. A slot
//! counts until the whole of it is older than the period. So no period has more calls than the rate
//! allows, wherever it begins, and a call waits at most one slot too long.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolcrib_manifest as manifest;

/// Slots of a period.
const SLOTS: i64 = 60;
/// The longest period: a day.
const MAX_PERIOD_MS: u64 = 24 * 60 * 60 * 1000;

/// At most this many calls in any period of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    calls: u64,
    slot_ms: i64,
}

/// A rate without calls, or with a period that is zero or longer than a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a valid rate: write at least one call, and a period of at most 24h")]
pub struct InvalidRate;

/// The calls that a rate has counted, for each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallCount(BTreeMap<i64, u32>);

impl Rate {
    /// Reads a rate of the files.
    pub fn read(rate: manifest::Rate) -> Result<Self, InvalidRate> {
        let manifest::Rate { calls, per_ms } = rate;
        let is_valid = calls > 0 && (1..=MAX_PERIOD_MS).contains(&per_ms);
        let period = i64::try_from(per_ms).ok().filter(|_| is_valid);
        let period = period.ok_or(InvalidRate)?;
        Ok(Self {
            calls: calls.into(),
            // Rounded up: slots that are too short would not cover the period.
            slot_ms: (period + SLOTS - 1) / SLOTS,
        })
    }

    /// The slot that has this time.
    fn slot(&self, time: Timestamp) -> i64 {
        time.as_millisecond().div_euclid(self.slot_ms)
    }
}

impl CallCount {
    /// Counts a call.
    pub fn add(&mut self, rate: &Rate, now: Timestamp) {
        self.forget(rate, now);
        let count = self.0.entry(rate.slot(now)).or_default();
        *count = count.saturating_add(1);
    }

    /// Returns the time until the rate allows a call; `None`: it does now.
    pub fn wait(&self, rate: &Rate, now: Timestamp) -> Option<Duration> {
        let mut left: u64 = self.counted(rate, now).map(|(_, count)| count).sum();
        let mut counted = self.counted(rate, now);
        let mut last = None;
        while left >= rate.calls {
            let (slot, count) = counted.next()?;
            left -= count;
            last = Some(slot);
        }
        let free = last?.saturating_add(SLOTS + 1).saturating_mul(rate.slot_ms);
        let wait = free.saturating_sub(now.as_millisecond()).max(1);
        Some(Duration::from_millis(wait.unsigned_abs()))
    }

    /// The slots that count, the oldest first.
    fn counted(&self, rate: &Rate, now: Timestamp) -> impl Iterator<Item = (i64, u64)> {
        let slots = counting(rate.slot(now));
        self.0
            .range(slots)
            .map(|(slot, count)| (*slot, (*count).into()))
    }

    /// Removes expired slots, so that at most two periods of slots are kept.
    fn forget(&mut self, rate: &Rate, now: Timestamp) {
        let slots = counting(rate.slot(now));
        self.0.retain(|slot, _| slots.contains(slot));
    }
}

/// Returns the slots within one period before and after `slot`. There are slots after it if the clock
/// was set back; they count, since a clock that is set back must free no calls.
fn counting(slot: i64) -> std::ops::RangeInclusive<i64> {
    slot.saturating_sub(SLOTS)..=slot.saturating_add(SLOTS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(calls: u32, per_ms: u64) -> Rate {
        Rate::read(manifest::Rate { calls, per_ms }).expect("a rate")
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).expect("a time")
    }

    #[test]
    fn a_rate_needs_calls_and_a_period_of_at_most_a_day() {
        let read = |calls, per_ms| Rate::read(manifest::Rate { calls, per_ms }).is_ok();
        assert!(read(1, 1) && read(u32::MAX, 86_400_000));
        assert!(!read(0, 1000) && !read(1, 0) && !read(1, 86_400_001));
    }

    #[test]
    fn a_call_waits_until_an_earlier_one_is_older_than_the_period() {
        let (rate, mut count) = (rate(2, 60_000), CallCount::default());
        for ms in [500, 30_000] {
            assert_eq!(count.wait(&rate, at(ms)), None);
            count.add(&rate, at(ms));
        }
        // The slot of the first call is the second from 0 to 1.
        assert_eq!(
            count.wait(&rate, at(40_000)),
            Some(Duration::from_millis(21_000))
        );
        assert_eq!(count.wait(&rate, at(61_000)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_frees_nothing() {
        let (rate, mut count) = (rate(1, 60_000), CallCount::default());
        count.add(&rate, at(1_000_000));
        assert!(count.wait(&rate, at(970_000)).is_some());
        // By more than a period: the other time was wrong.
        assert_eq!(count.wait(&rate, at(900_000)), None);
    }

    proptest! {
        /// Calls at random times, made whenever the rate allows one: each period has at most as many as
        /// the rate says, and one is allowed when the wait is over.
        #[test]
        fn no_period_has_more_calls(
            calls in 1..4_u32,
            per_ms in 1..5_000_u64,
            steps in proptest::collection::vec(0..700_i64, 1..80),
        ) {
            let (rate, mut count) = (rate(calls, per_ms), CallCount::default());
            let mut made: Vec<i64> = Vec::new();
            let mut now = -2_000_i64;
            for step in steps {
                now += step;
                match count.wait(&rate, at(now)) {
                    None => {
                        count.add(&rate, at(now));
                        made.push(now);
                    }
                    Some(wait) => {
                        let wait = i64::try_from(wait.as_millis()).expect("a short wait");
                        prop_assert!(count.wait(&rate, at(now + wait)).is_none());
                        prop_assert!(count.wait(&rate, at(now + wait - 1)).is_some());
                        let slot = (i64::try_from(per_ms).expect("a short period") + SLOTS - 1) / SLOTS;
                        prop_assert!(wait <= slot * (SLOTS + 1));
                    }
                }
                let period = i64::try_from(per_ms).expect("a short period");
                let recent = made.iter().filter(|it| **it > now - period).count();
                prop_assert!(recent <= calls as usize);
                prop_assert!(count.0.len() <= 2 * usize::try_from(SLOTS).expect("a number") + 1);
            }
        }
    }
}
