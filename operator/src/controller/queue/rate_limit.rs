//! A rate limiter that hands out time slots at a fixed interval.
//!
//! Pure. A caller keeps its reserved slot, so it reserves only once.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct RateLimit {
    apart: Duration,
    next: Option<Instant>,
}

impl RateLimit {
    pub fn new(apart: Duration) -> Self {
        Self { apart, next: None }
    }

    /// Returns the next free slot; `now` if no slot was reserved within the interval.
    pub fn next(&self, now: Instant) -> Instant {
        self.next.map_or(now, |next| next.max(now))
    }

    /// Reserves the next free slot.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let at = self.next(now);
        self.next = Some(at + self.apart);
        at
    }

    /// Takes a slot if one is free within the next `burst`. Slots taken early delay later ones.
    pub fn try_take(&mut self, now: Instant, burst: Duration) -> bool {
        let is_free = self.next.is_none_or(|next| next <= now + burst);
        if is_free {
            self.reserve(now);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let start = Instant::now();
        let (apart, burst) = (Duration::from_millis(50), Duration::from_millis(100));
        let mut limit = RateLimit::new(apart);
        let taken =
            |limit: &mut RateLimit, at| (0..10).filter(|_| limit.try_take(at, burst)).count();
        assert_eq!(taken(&mut limit, start), 3);
        assert_eq!(taken(&mut limit, start + apart), 1);
        assert_eq!(taken(&mut limit, start + Duration::from_secs(60)), 3);
    }

    #[test]
    fn slots_are_an_interval_apart_and_idle_time_accumulates_none() {
        let start = Instant::now();
        let apart = Duration::from_millis(50);
        let mut limit = RateLimit::new(apart);
        let slots: Vec<Instant> = (0..3).map(|_| limit.reserve(start)).collect();
        assert_eq!(slots, [start, start + apart, start + 2 * apart]);
        let later = start + Duration::from_secs(60);
        assert_eq!(limit.reserve(later), later);
        assert_eq!(limit.reserve(later), later + apart);
    }
}
