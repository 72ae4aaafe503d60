//! The requests that wait for an answer: at most one of each pod.
//!
//! A second request of the same pod ends the first, which an honest sender has given up. So no pod
//! holds more of this process than one request.

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
    held: Gauge,
}

#[derive(Debug)]
struct PollSlot {
    number: u64,
    _ends_with_this: oneshot::Sender<std::convert::Infallible>,
}

/// A request that waits, until it is dropped.
#[derive(Debug)]
pub struct LongPoll {
    holds: Arc<LongPolls>,
    pod: String,
    number: u64,
    superseded: oneshot::Receiver<std::convert::Infallible>,
}

impl LongPolls {
    /// `held` says how many there are.
    pub fn new(held: Gauge) -> Arc<Self> {
        held.set(0);
        Arc::new(Self {
            pods: Mutex::default(),
            next: AtomicU64::new(0),
            held,
        })
    }

    pub fn hold(self: &Arc<Self>, pod: &str) -> LongPoll {
        let (sender, superseded) = oneshot::channel();
        let mut pods = self.pods();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        pods.insert(
            pod.to_owned(),
            PollSlot {
                number,
                _ends_with_this: sender,
            },
        );
        self.count(&pods);
        LongPoll {
            holds: Arc::clone(self),
            pod: pod.to_owned(),
            number,
            superseded,
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<String, PollSlot>> {
        self.pods.lock()
    }

    fn count(&self, pods: &HashMap<String, PollSlot>) {
        self.held.set(i64::try_from(pods.len()).unwrap_or(i64::MAX));
    }
}

impl LongPoll {
    /// Returns when a later request of the same pod waits.
    pub async fn superseded(&mut self) {
        if let Ok(never) = (&mut self.superseded).await {
            match never {}
        }
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        let mut pods = self.holds.pods();
        if pods
            .get(&self.pod)
            .is_some_and(|holding| holding.number == self.number)
        {
            pods.remove(&self.pod);
        }
        self.holds.count(&pods);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_latest_request_of_a_pod_waits_and_no_other() {
        let gauge = Gauge::default();
        let holds = LongPolls::new(gauge.clone());
        let mut first = holds.hold("otter-1");
        let mut other = holds.hold("otter-2");
        assert_eq!(gauge.get(), 2);
        assert!(first.superseded().now_or_never().is_none());
        let mut second = holds.hold("otter-1");
        assert!(first.superseded().now_or_never().is_some());
        assert!(other.superseded().now_or_never().is_none());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert!(second.superseded().now_or_never().is_none(), "still held");
        assert_eq!(gauge.get(), 2);
        drop((second, other));
        assert_eq!(gauge.get(), 0);
        assert!(holds.pods().is_empty());
    }
}
