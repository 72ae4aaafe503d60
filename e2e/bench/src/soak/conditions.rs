//! The state of the upstream and of the revocable tool, so that a request knows what held while it ran.
//!
//! Invariant: a state is announced before a change that ends it begins, and after a change that leads
//! to it is confirmed. So a request that saw one state at both ends ran under it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the changes. Even counts of `upstream`: it serves. Counts of `grant` modulo four: given, being
/// taken, taken, being given.
#[derive(Debug, Default)]
pub struct Conditions {
    upstream: AtomicU64,
    grant: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    upstream: u64,
    grant: u64,
}

/// The state of the revocable tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Given,
    Taken,
    /// It changed, or may have changed.
    Changing,
}

impl Conditions {
    pub fn now(&self) -> Moment {
        Moment {
            upstream: self.upstream.load(Ordering::SeqCst),
            grant: self.grant.load(Ordering::SeqCst),
        }
    }

    /// Announces that the upstream stops to serve, or that it serves again.
    pub fn turn_upstream(&self) {
        self.upstream.fetch_add(1, Ordering::SeqCst);
    }

    /// Announces that the tool is about to be taken or given, or that the change is confirmed.
    pub fn turn_grant(&self) {
        self.grant.fetch_add(1, Ordering::SeqCst);
    }
}

/// The time of one request.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub begin: Moment,
    pub end: Moment,
}

impl Span {
    pub fn upstream_served(self) -> bool {
        self.begin.upstream == self.end.upstream && self.begin.upstream.is_multiple_of(2)
    }

    pub fn grant(self) -> Grant {
        match (self.begin.grant == self.end.grant, self.begin.grant % 4) {
            (true, 0) => Grant::Given,
            (true, 2) => Grant::Taken,
            _ => Grant::Changing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_holds_only_for_requests_within_it() {
        let conditions = Conditions::default();
        let mut moments = Vec::new();
        for _ in 0..4 {
            moments.push(conditions.now());
            conditions.turn_grant();
            conditions.turn_upstream();
        }
        let span = |begin: usize, end: usize| Span {
            begin: moments[begin],
            end: moments[end],
        };
        let grants = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 2)].map(|(begin, end)| {
            let span = span(begin, end);
            (span.grant(), span.upstream_served())
        });
        assert_eq!(
            grants,
            [
                (Grant::Given, true),
                (Grant::Changing, false),
                (Grant::Taken, true),
                (Grant::Changing, false),
                (Grant::Changing, false),
            ]
        );
    }
}
