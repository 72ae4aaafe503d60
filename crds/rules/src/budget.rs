//! The periods of budgets, and the count of what is used in one of them.
//!
//! Invariant: a clock that is set back by at most a period frees nothing.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use toolcrib_manifest::{Budget, BudgetPeriod, BudgetUnit, BudgetUse};

const HOUR: i64 = 60 * 60;
/// Longest time that a client is asked to wait.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// An hour, day or month of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub start: Timestamp,
    /// The beginning of the next period.
    pub end: Timestamp,
}

impl Period {
    /// Whether the period with this beginning is that of `now`, or the one after it: the clock was set
    /// back, or that of another machine is ahead. A later one comes from a clock that was wrong.
    pub fn is_current(start: Timestamp, per: BudgetPeriod, now: Timestamp) -> bool {
        let current = Self::of(per, now);
        start == current.start || start == current.end
    }

    /// The period that has this time.
    pub fn of(per: BudgetPeriod, time: Timestamp) -> Self {
        let fixed = |seconds: i64| {
            let start = time.as_second().div_euclid(seconds) * seconds;
            let instant = |second| Timestamp::from_second(second).ok();
            (instant(start), instant(start + seconds))
        };
        let (start, end) = match per {
            BudgetPeriod::Hour => fixed(HOUR),
            BudgetPeriod::Day => fixed(24 * HOUR),
            BudgetPeriod::Month => {
                let first = time.to_zoned(TimeZone::UTC).date().first_of_month();
                let next = first.checked_add(Span::new().months(1));
                (midnight(first), next.ok().and_then(midnight))
            }
        };
        Self {
            // The first and the last period that a timestamp can have are incomplete.
            start: start.unwrap_or(Timestamp::MIN),
            end: end.unwrap_or(Timestamp::MAX),
        }
    }
}

fn midnight(date: Date) -> Option<Timestamp> {
    let midnight = date.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp())
}

/// The amount of one unit that was used in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodCount {
    /// The beginning of the period.
    pub start: Timestamp,
    pub used: u64,
}

impl PeriodCount {
    /// Reads a count of a file or a message. `None`: it does not begin with a period that counts now.
    pub fn read(written: &BudgetUse, now: Timestamp) -> Option<Self> {
        let count = Self {
            start: written.since.parse().ok()?,
            used: written.used,
        };
        Period::is_current(count.start, written.per, now).then_some(count)
    }

    pub fn write(&self, unit: BudgetUnit, per: BudgetPeriod) -> BudgetUse {
        BudgetUse {
            per,
            since: self.start.to_string(),
            unit,
            used: self.used,
        }
    }

    /// A count of zero for the period of `now`.
    pub fn new(per: BudgetPeriod, now: Timestamp) -> Self {
        Self {
            start: Period::of(per, now).start,
            used: 0,
        }
    }

    /// The amount that was used in the period of this time.
    pub fn used_at(&self, per: BudgetPeriod, now: Timestamp) -> u64 {
        match Period::is_current(self.start, per, now) {
            true => self.used,
            false => 0,
        }
    }

    pub fn add(&mut self, per: BudgetPeriod, now: Timestamp, amount: u64) {
        if !Period::is_current(self.start, per, now) {
            *self = Self::new(per, now);
        }
        self.used = self.used.saturating_add(amount);
    }
}

/// A budget of which nothing is left, and the time at which its next period begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget of {budget} is used up; the next {} begins at {until}", budget.per)]
pub struct Exhaustion {
    pub budget: Budget,
    pub until: Timestamp,
}

impl Exhaustion {
    /// Returns the exhaustion of a budget of which this much is used.
    pub fn of(budget: Budget, used: u64, now: Timestamp) -> Option<Self> {
        (used >= budget.limit).then(|| Self {
            budget,
            until: Period::of(budget.per, now).end,
        })
    }

    /// The time until the next period, if a client can be asked to wait for it.
    pub fn short_wait(&self, now: Timestamp) -> Option<Duration> {
        let wait = self.wait(now);
        (wait <= LONGEST_RETRY).then_some(wait)
    }

    /// The time until the next period.
    pub fn wait(&self, now: Timestamp) -> Duration {
        self.until
            .duration_since(now)
            .try_into()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn periods_are_those_of_the_calendar() {
        for (per, time, start, end) in [
            (
                BudgetPeriod::Hour,
                "2026-11-26T19:59:59.9Z",
                "2026-11-26T19:00:00Z",
                "2026-11-26T20:00:00Z",
            ),
            (
                BudgetPeriod::Day,
                "2026-11-26T00:00:00Z",
                "2026-11-26T00:00:00Z",
                "2026-11-27T00:00:00Z",
            ),
            (
                BudgetPeriod::Month,
                "2028-02-29T23:00:00Z",
                "2028-02-01T00:00:00Z",
                "2028-03-01T00:00:00Z",
            ),
            (
                BudgetPeriod::Month,
                "2026-12-31T23:59:59Z",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            (
                BudgetPeriod::Day,
                "1969-12-31T12:00:00Z",
                "1969-12-31T00:00:00Z",
                "1970-01-01T00:00:00Z",
            ),
        ] {
            let period = Period::of(per, at(time));
            assert_eq!(
                period,
                Period {
                    start: at(start),
                    end: at(end)
                },
                "{per} {time}"
            );
        }
    }

    #[test]
    fn a_new_period_begins_at_zero_and_a_clock_that_is_set_back_frees_nothing() {
        let day = BudgetPeriod::Day;
        let mut count = PeriodCount::new(day, at("2026-11-26T23:00:00Z"));
        count.add(day, at("2026-11-26T23:00:00Z"), 5);
        assert_eq!(count.used_at(day, at("2026-11-26T23:59:59Z")), 5);
        assert_eq!(count.used_at(day, at("2026-11-27T00:00:00Z")), 0);
        count.add(day, at("2026-11-27T00:00:00Z"), 2);
        // Set back across midnight: what is used after it is added to the later day.
        assert_eq!(count.used_at(day, at("2026-11-26T23:59:59Z")), 2);
        count.add(day, at("2026-11-26T23:59:59Z"), 1);
        assert_eq!(count.used_at(day, at("2026-11-27T00:00:01Z")), 3);
        // By more than a day: the other time was wrong.
        assert_eq!(count.used_at(day, at("2026-11-24T00:00:00Z")), 0);
    }

    #[test]
    fn only_a_count_of_this_period_or_the_next_is_read() {
        let now = at("2026-11-26T19:30:00Z");
        let written = |since: &str| BudgetUse {
            per: BudgetPeriod::Hour,
            since: since.to_owned(),
            unit: BudgetUnit::Calls,
            used: 3,
        };
        for (since, is_read) in [
            ("2026-11-26T19:00:00Z", true),
            ("2026-11-26T20:00:00Z", true),
            ("2026-11-26T21:00:00Z", false),
            ("2026-11-26T18:00:00Z", false),
            ("2026-11-26T19:00:01Z", false),
            ("yesterday", false),
        ] {
            let count = PeriodCount::read(&written(since), now);
            assert_eq!(count.is_some(), is_read, "{since}");
            if let Some(count) = count {
                assert_eq!(
                    count.write(BudgetUnit::Calls, BudgetPeriod::Hour),
                    written(since)
                );
            }
        }
    }

    #[test]
    fn a_budget_of_zero_is_used_up_from_the_beginning() {
        let budget = |limit| Budget {
            limit,
            per: BudgetPeriod::Month,
            unit: BudgetUnit::Tokens,
        };
        let now = at("2026-11-26T19:30:00Z");
        assert_eq!(Exhaustion::of(budget(1), 0, now), None);
        let exhaustion = Exhaustion::of(budget(0), 0, now).expect("nothing is left");
        assert_eq!(
            exhaustion.to_string(),
            "the budget of 0 tokens per month is used up; the next month begins at 2026-12-01T00:00:00Z"
        );
    }

    proptest! {
        /// Periods follow each other without a gap, and each has the times that it is the period of.
        #[test]
        fn each_time_is_in_one_period(second in -10_000_000_000_i64..100_000_000_000) {
            let time = Timestamp::from_second(second).expect("a time");
            for per in [BudgetPeriod::Hour, BudgetPeriod::Day, BudgetPeriod::Month] {
                let period = Period::of(per, time);
                prop_assert!(period.start <= time && time < period.end);
                prop_assert_eq!(Period::of(per, period.start), period);
                prop_assert_eq!(Period::of(per, period.end).start, period.end);
            }
        }
    }
}
