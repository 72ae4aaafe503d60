//! How often something is done in all: each gets a time, so far apart.
//!
//! Pure. Whoever has been given a time keeps it, so waiting costs nobody a second look.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct Pace {
    apart: Duration,
    next: Option<Instant>,
}

impl Pace {
    pub fn new(apart: Duration) -> Self {
        Self { apart, next: None }
    }

    /// The next free time; `now` if nobody has been given one lately.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let at = self.next.map_or(now, |next| next.max(now));
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
    fn a_burst_is_taken_at_once_and_then_the_rate_holds() {
        let start = Instant::now();
        let (apart, burst) = (Duration::from_millis(50), Duration::from_millis(100));
        let mut pace = Pace::new(apart);
        let taken = |pace: &mut Pace, at| (0..10).filter(|_| pace.try_take(at, burst)).count();
        assert_eq!(taken(&mut pace, start), 3);
        assert_eq!(taken(&mut pace, start + apart), 1);
        assert_eq!(taken(&mut pace, start + Duration::from_secs(60)), 3);
    }

    #[test]
    fn times_are_apart_and_idleness_saves_none_up() {
        let start = Instant::now();
        let apart = Duration::from_millis(50);
        let mut pace = Pace::new(apart);
        let given: Vec<Instant> = (0..3).map(|_| pace.reserve(start)).collect();
        assert_eq!(given, [start, start + apart, start + 2 * apart]);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.reserve(later), later);
        assert_eq!(pace.reserve(later), later + apart);
    }
}
