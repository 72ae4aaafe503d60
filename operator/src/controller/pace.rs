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
}

#[cfg(test)]
mod tests {
    use super::*;

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
