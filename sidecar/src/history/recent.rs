//! The calls that have ended lately, for the operator, without arguments and results.
//!
//! Invariant: a call is in reports until one of them is answered, unless newer calls take its place.

use std::collections::VecDeque;

use parking_lot::Mutex;
use toolcrib_bounds::cut;
use toolcrib_manifest::{MOST_RECENT_CALLS, RecentCall};
use toolcrib_record::TraceCall;

/// Most bytes of an id or a code.
const MAX_ID: usize = 128;
/// Most bytes of a name, which a model may have invented.
const MAX_NAME: usize = 256;

#[derive(Debug, Default)]
pub struct RecentCalls(Mutex<VecDeque<RecentCall>>);

impl RecentCalls {
    /// Adds a call whose request has ended at this time. `code`: its error code.
    pub fn add(&self, call: &TraceCall, code: Option<&str>, at: &str) {
        let short = |text: &str, most| cut(text, most).into_owned();
        let recent = RecentCall {
            call_id: short(&call.call_id, MAX_ID),
            at: at.to_owned(),
            tool: short(&call.name, MAX_NAME),
            code: code.map(|code| short(code, MAX_ID)),
            executed: call.executed,
            latency_ms: call.latency_ms,
            grant: call.grant.clone(),
            rule: call.rule.clone(),
        };
        let mut calls = self.0.lock();
        if calls.len() >= MOST_RECENT_CALLS {
            calls.pop_front();
        }
        calls.push_back(recent);
    }

    /// The calls for the next report.
    pub fn report(&self) -> Vec<RecentCall> {
        self.0.lock().iter().cloned().collect()
    }

    /// Forgets the calls of a report that was answered.
    pub fn reported(&self, reported: &[RecentCall]) {
        self.0.lock().retain(|call| !reported.contains(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: usize) -> TraceCall {
        let line = format!(
            r#"{{"call_id":"r-1-{number}","name":"desk.quote","arguments":{{"secret":1}},"result":{{"ok":true}},"latency_ms":7,"executed":true}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn calls_are_reported_until_a_report_is_answered() {
        let recent = RecentCalls::default();
        recent.add(&call(0), None, "now");
        let report = recent.report();
        assert_eq!(report, recent.report());
        recent.add(&call(1), None, "now");
        recent.reported(&report);
        let ids: Vec<String> = recent.report().into_iter().map(|it| it.call_id).collect();
        assert_eq!(ids, ["r-1-1"]);
        (0..MOST_RECENT_CALLS).for_each(|number| recent.add(&call(number), None, "later"));
        assert_eq!(recent.report().len(), MOST_RECENT_CALLS);
        assert_eq!(recent.report()[0].at, "later");
    }
}
