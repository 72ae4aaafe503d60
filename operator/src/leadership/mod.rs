//! Tells whether this replica is the leader and its lease still holds.

pub mod lease;

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

/// The outcome of the last election, and the tenure of the lease.
#[derive(Debug, Default)]
pub struct Leadership {
    elected: AtomicBool,
    tenure: lease::SharedTenure,
    gauge: Gauge,
}

impl Leadership {
    /// A replica that does not lead. `gauge` is 1 while it leads.
    pub fn new(gauge: Gauge) -> Self {
        Self {
            gauge,
            ..Self::default()
        }
    }

    /// Whether the replica was elected and its lease has not expired. A process that was paused may
    /// have lost the lease without noticing.
    pub fn holds(&self) -> bool {
        self.elected.load(Ordering::Acquire)
            && self
                .current()
                .is_some_and(|tenure| tenure.until > Instant::now())
    }

    /// Begins or ends the replica's work as leader.
    pub fn set(&self, elected: bool) {
        self.elected.store(elected, Ordering::Release);
        self.gauge.set(i64::from(elected));
    }

    /// The tenure, which the candidate renews.
    pub fn tenure(&self) -> lease::SharedTenure {
        lease::SharedTenure::clone(&self.tenure)
    }

    /// The first number of this tenure, above all numbers of earlier ones. A tenure has a thousand
    /// numbers per millisecond, more than it can use.
    pub fn first_number(&self) -> u64 {
        let since = self
            .current()
            .map_or(0, |tenure| tenure.since.as_millisecond());
        u64::try_from(since).unwrap_or(0).saturating_mul(1_000)
    }

    /// The start of this tenure; `None` if the replica does not lead.
    pub fn since(&self) -> Option<jiff::Timestamp> {
        self.current().map(|tenure| tenure.since)
    }

    fn current(&self) -> Option<lease::Tenure> {
        *self.tenure.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_with_the_lease_or_the_election() {
        let leadership = Leadership::default();
        let lease = leadership.tenure();
        let tenure = lease::Tenure {
            since: Timestamp::from_millisecond(7).unwrap(),
            until: Instant::now() + Duration::from_secs(3),
        };
        assert_eq!(leadership.first_number(), 0);
        *lease.lock() = Some(tenure);
        assert!(!leadership.holds());
        assert_eq!(leadership.first_number(), 7_000);
        leadership.set(true);
        assert!(leadership.holds());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!leadership.holds());

        let until = Instant::now() + Duration::from_secs(3);
        *lease.lock() = Some(lease::Tenure { until, ..tenure });
        assert!(leadership.holds());
        leadership.set(false);
        assert!(!leadership.holds());
    }
}
