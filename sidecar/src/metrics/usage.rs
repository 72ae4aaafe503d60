//! Sums since the mediator's start, for the operator's link.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use toolcrib_manifest::Usage;

/// The kind of a call that was dispatched or denied, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Succeeded,
    /// The call was permitted and failed, perhaps before it was sent.
    Failed,
    /// The call was not permitted, so it was not sent.
    Denied,
}

#[derive(Debug, Default)]
pub struct UsageCounters {
    requests: AtomicU64,
    rounds: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    denied: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    last_call: Mutex<Option<String>>,
}

impl UsageCounters {
    pub fn read(&self) -> Usage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let last_call = self.last_call.lock();
        Usage {
            requests: read(&self.requests),
            rounds: read(&self.rounds),
            calls: read(&self.calls),
            failed: read(&self.failed),
            denied: read(&self.denied),
            prompt_tokens: read(&self.prompt_tokens),
            completion_tokens: read(&self.completion_tokens),
            last_call: last_call.clone(),
        }
    }

    pub fn call(&self, kind: CallKind, at: String) {
        match kind {
            CallKind::Succeeded => {}
            CallKind::Failed => add(&self.failed, 1),
            CallKind::Denied => {
                add(&self.denied, 1);
                return;
            }
        }
        add(&self.calls, 1);
        let mut last = self.last_call.lock();
        *last = Some(at);
    }

    pub(super) fn request(&self) {
        add(&self.requests, 1);
    }

    pub(super) fn rounds(&self, rounds: u64) {
        add(&self.rounds, rounds);
    }

    pub(super) fn tokens(&self, prompt: u64, completion: u64) {
        add(&self.prompt_tokens, prompt);
        add(&self.completion_tokens, completion);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
