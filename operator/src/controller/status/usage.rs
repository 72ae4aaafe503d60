//! The usage counters of an Agent's status, and the time since which they count.
//!
//! Not here: counting, and the interval of writes.
//!
//! Invariant: `counted` is the inverse of `usage`, so a new leader continues the counters.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use toolcrib_crds::UsageStatus;
use toolcrib_manifest::Usage;

use super::condition::whole_second;

/// The counters, which count since `began`; those of `before` while nothing is counted.
pub(super) fn usage(
    before: Option<&UsageStatus>,
    counted: Option<&Usage>,
    began: Timestamp,
) -> Option<UsageStatus> {
    let Some(counted) = counted.filter(|counted| **counted != Usage::default()) else {
        return before.cloned();
    };
    let began = whole_second(began);
    let since = before
        .and_then(|before| before.since.as_ref())
        // Earlier releases wrote the time of the first report, after calls had been counted.
        .map_or(began, |since| since.0.min(began));
    let last_call = counted
        .last_call
        .as_ref()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map(|at| Time(whole_second(at)));
    Some(UsageStatus {
        requests: counted.requests,
        rounds: counted.rounds,
        calls: counted.calls,
        failed: counted.failed,
        denied: counted.denied,
        prompt_tokens: counted.prompt_tokens,
        completion_tokens: counted.completion_tokens,
        last_call,
        since: Some(Time(since)),
    })
}

/// The counters in a status, from which a new leader continues.
pub fn counted(status: Option<&UsageStatus>) -> Usage {
    status.map_or_else(Usage::default, |usage| Usage {
        requests: usage.requests,
        rounds: usage.rounds,
        calls: usage.calls,
        failed: usage.failed,
        denied: usage.denied,
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        last_call: usage.last_call.as_ref().map(|at| at.0.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_usage_is_omitted_and_counters_continue_from_the_status() {
        let now = Timestamp::from_second(10).unwrap();
        assert_eq!(usage(None, Some(&Usage::default()), now), None);
        let counted_usage = Usage {
            requests: 1,
            rounds: 2,
            calls: 3,
            failed: 4,
            denied: 5,
            prompt_tokens: 6,
            completion_tokens: 7,
            last_call: Some("2026-01-02T03:04:05Z".into()),
        };
        let shown = usage(None, Some(&counted_usage), now).unwrap();
        assert_eq!(counted(Some(&shown)), counted_usage);
        assert_eq!(usage(Some(&shown), None, now), Some(shown));
    }
}
