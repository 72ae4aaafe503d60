//! How often a rule allows calls.
//!
//! Time is cut into slots of a sixtieth of the period, and calls are counted for each slot. A slot
//! counts until the whole of it is older than the period. So no period has more calls than the rate
//! allows, wherever it begins, and a call waits at most one slot too long. Slots are numbered from the Unix
//! epoch, so the counts of several pods are added slot by slot.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolcrib_manifest as manifest;

/// Slots of a period.
const SLOTS: i64 = 60;
/// The longest period: a day.
const MAX_PERIOD_MS: i64 = 24 * 60 * 60 * 1000;
/// Of this number of counted calls, one is counted ahead. A larger number makes a busy rule write more often.
const AHEAD: u64 = 16;
/// Most calls of a slot in a message. So sums over pods do not overflow, and can be subtracted from.
const MAX_CALLS: u64 = u32::MAX as u64;

/// At most this many calls in any period of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    calls: u64,
    period: RatePeriod,
}

/// The length of a rate's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RatePeriod {
    per_ms: i64,
}

/// A rate without calls, or with a period that is zero or longer than a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a valid rate: write at least one call, and a period of at most 24h")]
pub struct InvalidRate;

/// The calls that a rate has counted, for each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallCount(BTreeMap<i64, u64>);

/// The calls that one rate of a rule has counted, as pods tell each other over the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateCount {
    pub period: RatePeriod,
    pub calls: CallCount,
}

impl RatePeriod {
    fn read(per_ms: u64) -> Result<Self, InvalidRate> {
        let per_ms = i64::try_from(per_ms).map_err(|_| InvalidRate)?;
        match (1..=MAX_PERIOD_MS).contains(&per_ms) {
            true => Ok(Self { per_ms }),
            false => Err(InvalidRate),
        }
    }

    fn slot_ms(self) -> i64 {
        // Rounded up: slots that are too short would not cover the period.
        (self.per_ms + SLOTS - 1) / SLOTS
    }

    /// The slot that has this time.
    fn slot(self, time: Timestamp) -> i64 {
        time.as_millisecond().div_euclid(self.slot_ms())
    }
}

impl Rate {
    /// Reads a rate of the files.
    pub fn read(rate: manifest::Rate) -> Result<Self, InvalidRate> {
        if rate.calls == 0 {
            return Err(InvalidRate);
        }
        Ok(Self {
            calls: rate.calls.into(),
            period: RatePeriod::read(rate.per_ms)?,
        })
    }

    pub fn period(&self) -> RatePeriod {
        self.period
    }

    /// Returns the time until the rate allows a call beside those of all `counts`; `None`: it does now.
    pub fn wait(&self, counts: &[&CallCount], now: Timestamp) -> Option<Duration> {
        let sums = counts.iter().map(|count| count.sum(self.period, now));
        let mut left = sums.fold(0, u64::saturating_add);
        if left < self.calls {
            return None;
        }
        let mut all = CallCount::default();
        for count in counts {
            all.add_all(count);
        }
        let mut counted = all.counted(self.period, now);
        let mut last = None;
        while left >= self.calls {
            let (slot, count) = counted.next()?;
            left = left.saturating_sub(count);
            last = Some(slot);
        }
        let slots = last?.saturating_add(SLOTS + 1);
        let free = slots.saturating_mul(self.period.slot_ms());
        let wait = free.saturating_sub(now.as_millisecond()).max(1);
        Some(Duration::from_millis(wait.unsigned_abs()))
    }
}

impl CallCount {
    /// Counts a call.
    pub fn add(&mut self, rate: &Rate, now: Timestamp) {
        self.forget(rate.period, now);
        let count = self.0.entry(rate.period.slot(now)).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds the calls of other pods.
    pub fn add_all(&mut self, others: &Self) {
        for (slot, calls) in &others.0 {
            let count = self.0.entry(*slot).or_default();
            *count = count.saturating_add(*calls);
        }
    }

    /// Removes the calls of one pod from those of several.
    pub fn subtract(&mut self, of_one: &Self) {
        for (slot, calls) in &of_one.0 {
            if let Some(count) = self.0.get_mut(slot) {
                *count = count.saturating_sub(*calls);
            }
        }
        self.0.retain(|_, count| *count > 0);
    }

    /// Takes over later counts of the same calls: no slot falls.
    pub fn raise(&mut self, later: &Self) {
        for (slot, calls) in &later.0 {
            let count = self.0.entry(*slot).or_default();
            *count = (*count).max(*calls);
        }
    }

    /// Adds a sixteenth of all counted calls to the last slot. A file with this count covers that many more
    /// calls without a write, and a restart that reads it takes at most as many.
    pub fn count_ahead(&mut self) {
        let calls = self.0.values().copied().fold(0, u64::saturating_add);
        if let Some(mut last) = self.0.last_entry() {
            *last.get_mut() = last.get().saturating_add(calls / AHEAD);
        }
    }

    /// Returns whether no slot has fewer calls than that of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        let mut slots = other.0.iter();
        slots.all(|(slot, calls)| self.0.get(slot).is_some_and(|ours| ours >= calls))
    }

    /// The slots with calls.
    pub fn slots(&self) -> usize {
        self.0.len()
    }

    fn sum(&self, period: RatePeriod, now: Timestamp) -> u64 {
        let counts = self.counted(period, now).map(|(_, count)| count);
        counts.fold(0, u64::saturating_add)
    }

    /// The slots that count, the oldest first.
    fn counted(&self, period: RatePeriod, now: Timestamp) -> impl Iterator<Item = (i64, u64)> {
        let slots = self.0.range(counting(period.slot(now)));
        slots.map(|(slot, count)| (*slot, *count))
    }

    /// Removes expired slots, so that at most two periods of slots are kept.
    fn forget(&mut self, period: RatePeriod, now: Timestamp) {
        let slots = counting(period.slot(now));
        self.0.retain(|slot, _| slots.contains(slot));
    }
}

impl RateCount {
    pub fn new(period: RatePeriod) -> Self {
        Self {
            period,
            calls: CallCount::default(),
        }
    }

    /// Reads a count of a message, without slots that do not count now. `None`: its period is that of
    /// no rate.
    pub fn read(written: &manifest::RateCount, now: Timestamp) -> Option<Self> {
        let period = RatePeriod::read(written.per_ms).ok()?;
        let slots = written.calls.range(counting(period.slot(now)));
        let slots = slots.filter(|(_, calls)| **calls > 0);
        let slots = slots.map(|(slot, calls)| (*slot, (*calls).min(MAX_CALLS)));
        Some(Self {
            period,
            calls: CallCount(slots.collect()),
        })
    }

    /// The count for a message, without slots that do not count now.
    pub fn write(&self, now: Timestamp) -> manifest::RateCount {
        manifest::RateCount {
            calls: self.calls.counted(self.period, now).collect(),
            per_ms: self.period.per_ms.unsigned_abs(),
        }
    }

    /// Removes expired slots.
    pub fn forget(&mut self, now: Timestamp) {
        self.calls.forget(self.period, now);
    }

    /// The beginning of the last slot with calls that count now; `None`: there are none.
    pub fn last_call(&self, now: Timestamp) -> Option<Timestamp> {
        let current = counting(self.period.slot(now));
        let (slot, _) = self.calls.0.range(current).next_back()?;
        let ms = slot.saturating_mul(self.period.slot_ms());
        Some(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX))
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
            assert_eq!(rate.wait(&[&count], at(ms)), None);
            count.add(&rate, at(ms));
        }
        // The slot of the first call is the second from 0 to 1.
        assert_eq!(
            rate.wait(&[&count], at(40_000)),
            Some(Duration::from_millis(21_000))
        );
        assert_eq!(rate.wait(&[&count], at(61_000)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_frees_nothing() {
        let (rate, mut count) = (rate(1, 60_000), CallCount::default());
        count.add(&rate, at(1_000_000));
        assert!(rate.wait(&[&count], at(970_000)).is_some());
        // By more than a period: the other time was wrong.
        assert_eq!(rate.wait(&[&count], at(900_000)), None);
    }

    #[test]
    fn a_count_ahead_covers_some_calls() {
        let (rate, mut count) = (rate(1000, 60_000), CallCount::default());
        for _ in 0..15 {
            count.add(&rate, at(0));
        }
        let mut kept = count.clone();
        kept.count_ahead();
        assert_eq!(kept, count, "each of few calls is written");
        count.add(&rate, at(0));
        assert!(!kept.covers(&count));
        for _ in 0..16 {
            count.add(&rate, at(30_000));
        }
        kept = count.clone();
        kept.count_ahead();
        for _ in 0..2 {
            count.add(&rate, at(30_000));
            assert!(kept.covers(&count));
        }
        count.add(&rate, at(30_000));
        assert!(!kept.covers(&count));
        kept.count_ahead();
        // Another slot.
        count.add(&rate, at(31_000));
        assert!(!kept.covers(&count));
    }

    fn written(count: &CallCount, rate: &Rate, now: Timestamp) -> manifest::RateCount {
        let count = RateCount {
            period: rate.period(),
            calls: count.clone(),
        };
        count.write(now)
    }

    #[test]
    fn calls_of_other_pods_count_slot_by_slot() {
        let (rate, mut here, mut there) =
            (rate(3, 60_000), CallCount::default(), CallCount::default());
        here.add(&rate, at(10_000));
        there.add(&rate, at(5_500));
        assert_eq!(rate.wait(&[&here, &there], at(20_000)), None);
        there.add(&rate, at(10_900));
        // The oldest of the three is at 5 s, in the other pod.
        let wait = Some(Duration::from_millis(46_000));
        assert_eq!(rate.wait(&[&here, &there], at(20_000)), wait);
        assert_eq!(rate.wait(&[&there, &here], at(20_000)), wait);
        assert_eq!(rate.wait(&[&here, &there], at(66_000)), None);
        // All pods have the same slots.
        let now = at(20_000);
        let mut sum = here.clone();
        sum.add_all(&there);
        assert_eq!(
            written(&sum, &rate, now).calls,
            BTreeMap::from([(5, 1), (10, 2)])
        );
        sum.subtract(&here);
        assert_eq!(sum, there);
        sum.raise(&here);
        assert_eq!(sum, there);
    }

    #[test]
    fn a_message_has_only_what_counts() {
        let (rate, mut count) = (rate(3, 60_000), CallCount::default());
        count.add(&rate, at(0));
        count.add(&rate, at(30_000));
        let now = at(62_000);
        let message = written(&count, &rate, now);
        assert_eq!(message.calls, BTreeMap::from([(30, 1)]));
        let read = RateCount::read(&message, now).expect("a count");
        assert_eq!(
            (read.period, read.last_call(now)),
            (rate.period(), Some(at(30_000)))
        );
        assert_eq!(read.write(now), message);
        // What a hostile pod may write.
        let calls: BTreeMap<i64, u64> =
            [(i64::MIN, 1), (i64::MAX, 1), (30, 0), (31, u64::MAX)].into();
        let hostile = |per_ms| manifest::RateCount {
            calls: calls.clone(),
            per_ms,
        };
        let read = RateCount::read(&hostile(60_000), now).expect("a count");
        assert_eq!(read.calls.0, BTreeMap::from([(31, MAX_CALLS)]));
        assert!(rate.wait(&[&read.calls, &read.calls], now).is_some());
        for per_ms in [0, 86_400_001, u64::MAX] {
            assert_eq!(RateCount::read(&hostile(per_ms), now), None);
        }
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
                match rate.wait(&[&count], at(now)) {
                    None => {
                        count.add(&rate, at(now));
                        made.push(now);
                    }
                    Some(wait) => {
                        let wait = i64::try_from(wait.as_millis()).expect("a short wait");
                        prop_assert!(rate.wait(&[&count], at(now + wait)).is_none());
                        prop_assert!(rate.wait(&[&count], at(now + wait - 1)).is_some());
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
