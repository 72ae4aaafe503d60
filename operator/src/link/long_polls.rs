//! The requests that wait for an answer, at most one per pod.
//!
//! A second request of a pod ends the first, which an honest mediator has given up. So a pod occupies
//! at most one request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub struct LongPolls {
    pods: Mutex<HashMap<String, PollSlot>>,
    next: AtomicU64,
    gauge: Gauge,
}

#[derive(Debug)]
struct PollSlot {
    number: u64,
    _end: oneshot::Sender<std::convert::Infallible>,
}

/// A waiting request; it ends when this value is dropped.
#[derive(Debug)]
pub struct LongPoll {
    all: Arc<LongPolls>,
    pod: String,
    number: u64,
    superseded: oneshot::Receiver<std::convert::Infallible>,
}

impl LongPolls {
    /// `gauge` counts the waiting requests.
    pub fn new(gauge: Gauge) -> Arc<Self> {
        gauge.set(0);
        Arc::new(Self {
            pods: Mutex::default(),
            next: AtomicU64::new(0),
            gauge,
        })
    }

    /// Registers a waiting request of a pod, and ends an earlier one.
    pub fn begin(self: &Arc<Self>, pod: &str) -> LongPoll {
        let (sender, superseded) = oneshot::channel();
        let mut pods = self.pods();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        pods.insert(
            pod.to_owned(),
            PollSlot {
                number,
                _end: sender,
            },
        );
        self.count(&pods);
        LongPoll {
            all: Arc::clone(self),
            pod: pod.to_owned(),
            number,
            superseded,
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<String, PollSlot>> {
        self.pods.lock()
    }

    fn count(&self, pods: &HashMap<String, PollSlot>) {
        self.gauge
            .set(i64::try_from(pods.len()).unwrap_or(i64::MAX));
    }
}

impl LongPoll {
    /// Returns once a later request of the same pod waits.
    pub async fn superseded(&mut self) {
        if let Ok(never) = (&mut self.superseded).await {
            match never {}
        }
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        let mut pods = self.all.pods();
        if pods
            .get(&self.pod)
            .is_some_and(|waiting| waiting.number == self.number)
        {
            pods.remove(&self.pod);
        }
        self.all.count(&pods);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_later_request_of_a_pod_ends_the_earlier_one() {
        let gauge = Gauge::default();
        let long_polls = LongPolls::new(gauge.clone());
        let mut first = long_polls.begin("otter-1");
        let mut other = long_polls.begin("otter-2");
        assert_eq!(gauge.get(), 2);
        assert!(first.superseded().now_or_never().is_none());
        let mut second = long_polls.begin("otter-1");
        assert!(first.superseded().now_or_never().is_some());
        assert!(other.superseded().now_or_never().is_none());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert!(second.superseded().now_or_never().is_none(), "still held");
        assert_eq!(gauge.get(), 2);
        drop((second, other));
        assert_eq!(gauge.get(), 0);
        assert!(long_polls.pods().is_empty());
    }
}
