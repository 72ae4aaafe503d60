//! Tests of merging reports: late and repeated ones, epochs, deleted pods and Agents, and bounds.

use std::time::Duration;

use toolcrib_manifest::{LoadedVersion, ProviderOutage, ProviderRefusal, ServiceOutage};

use super::*;

fn otter() -> ObjectRef {
    ObjectRef::new("pond", "otter")
}

fn sender(uid: &str, older_than_leader: bool) -> Sender {
    Sender {
        uid: uid.into(),
        pod: format!("pod-{uid}"),
        agent: otter(),
        older_than_leader,
    }
}

fn up(epoch: &str, calls: u64) -> LinkUp {
    LinkUp {
        epoch: epoch.into(),
        version: "1".into(),
        understands: Vec::new(),
        loaded: Some(LoadedVersion {
            manifest: "m1".into(),
            credentials: "c1".into(),
            at: "2026-01-01T00:00:00Z".into(),
        }),
        error: None,
        seen: 0,
        hold_ms: 0,
        withheld: Vec::new(),
        providers: Vec::new(),
        outages: Vec::new(),
        provider_outages: Vec::new(),
        runner: None,
        usage: Usage {
            calls,
            ..Usage::default()
        },
        budgets: Vec::new(),
        rates: Vec::new(),
        record: None,
        calls: Vec::new(),
        questions: Vec::new(),
    }
}

impl Reports {
    /// Merges a report that comes now.
    fn take(&mut self, sender: &Sender, up: &LinkUp) -> ReportChange {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        self.merge(sender, up, now, Instant::now())
    }
}

/// The reports of an Agent that has just begun.
fn begun() -> Reports {
    let mut reports = Reports::default();
    reports.begin(&otter(), None, &Usage::default());
    reports
}

fn calls(reports: &Reports) -> u64 {
    reports.usage(&otter()).calls
}

#[test]
fn late_and_repeated_messages_count_once() {
    let mut reports = begun();
    assert_eq!(
        reports.take(&sender("a", false), &up("e1", 3)),
        ReportChange {
            state: true,
            usage: true
        }
    );
    assert_eq!(
        reports.take(&sender("a", false), &up("e1", 5)),
        ReportChange {
            state: false,
            usage: true
        }
    );
    assert_eq!(
        reports.take(&sender("a", false), &up("e1", 3)),
        ReportChange::default()
    );
    assert_eq!(calls(&reports), 5);
}

#[test]
fn counters_outlive_restarts_and_deleted_pods() {
    let mut reports = begun();
    reports.take(&sender("a", false), &up("e1", 5));
    reports.take(&sender("a", false), &up("e2", 2));
    reports.take(&sender("b", false), &up("e1", 10));
    assert_eq!(calls(&reports), 17);
    reports.remove_pod("a");
    reports.remove_pod("b");
    assert_eq!((calls(&reports), reports.pods()), (17, 0));
}

#[test]
fn a_new_leader_counts_on_from_the_status() {
    let mut reports = Reports::default();
    reports.begin(
        &otter(),
        None,
        &Usage {
            calls: 100,
            ..Usage::default()
        },
    );
    // The pod's 40 calls are among the 100 of the status.
    assert!(!reports.take(&sender("old", true), &up("e1", 40)).usage);
    reports.take(&sender("new", false), &up("e1", 7));
    assert_eq!(calls(&reports), 107);
    reports.take(&sender("old", true), &up("e1", 45));
    assert_eq!(calls(&reports), 112);
}

#[test]
fn a_recreated_agent_counts_from_zero_what_its_surviving_pods_do() {
    let mut reports = begun();
    let at = |time: &str, calls: u64| {
        let mut up = up("e1", calls);
        up.usage.last_call = Some(time.to_owned());
        up
    };
    let old = at("2026-01-01T10:00:00Z", 40);
    reports.take(&sender("a", false), &old);
    reports.forget_agent(&otter());
    assert_eq!(reports.usage(&otter()), Usage::default());
    assert_eq!((reports.pod("a"), reports.pods()), (None, 1));
    // Between the two Agents, the pod reports the earlier Agent's calls again and more of them.
    let change = reports.take(&sender("a", false), &at("2026-01-01T11:00:00Z", 41));
    assert_eq!((change.state, change.usage), (true, false));

    let created = "2026-01-01T12:00:00Z".parse().ok();
    reports.begin(&otter(), created, &Usage::default());
    let change = reports.take(&sender("a", false), &at("2026-01-01T11:00:00Z", 41));
    assert_eq!(change, ReportChange::default());
    assert_eq!(reports.usage(&otter()), Usage::default());
    reports.take(&sender("a", false), &at("2026-01-01T13:00:00Z", 43));
    let usage = reports.usage(&otter());
    let last_call = Some("2026-01-01T13:00:00Z".to_owned());
    assert_eq!((usage.calls, usage.last_call), (2, last_call));
    // Its mediator starts again, and then the pod ends.
    reports.take(&sender("a", false), &up("e2", 5));
    reports.remove_pod("a");
    assert_eq!((calls(&reports), reports.pods()), (7, 0));
}

/// Pods may have the label of an Agent that does not exist.
#[test]
fn no_counters_are_kept_without_an_agent() {
    let mut reports = Reports::default();
    reports.take(&sender("a", true), &up("e1", 5));
    reports.remove_pod("a");
    assert_eq!((reports.agents.len(), reports.pods()), (0, 0));
}

#[test]
fn a_status_with_a_call_before_the_agent_does_not_keep_it() {
    let mut reports = Reports::default();
    let created = "2026-01-01T12:00:00Z".parse().ok();
    let usage = Counters([1; 7]).usage(Some("2026-01-01T11:59:59Z".to_owned()));
    reports.begin(&otter(), created, &usage);
    assert_eq!(reports.usage(&otter()), Counters([1; 7]).usage(None));
}

#[test]
fn a_pod_that_stops_reporting_is_silent_until_it_reports_again() {
    let mut reports = begun();
    let (begin, second) = (Instant::now(), Duration::from_secs(1));
    let now = Timestamp::UNIX_EPOCH;
    let limit = 100 * second;
    let mut at = |pod: &str, seconds: u32| {
        let at = begin + seconds * second;
        let change = reports.merge(&sender(pod, false), &up("e1", 1), now, at);
        (change.state, reports.is_silent(pod))
    };
    assert_eq!((at("a", 0), at("b", 0)), ((true, false), (true, false)));
    // A report in time changes nothing.
    assert_eq!(at("b", 90), (false, false));

    let mut find = |seconds: u32| {
        let found = reports.find_silent(begin + seconds * second - limit);
        let silent = ["a", "b", "c"].map(|pod| reports.is_silent(pod));
        (found.into_iter().collect::<Vec<_>>(), silent)
    };
    assert_eq!(find(100), (vec![], [false, false, false]));
    assert_eq!(find(101), (vec![otter()], [true, false, false]));
    // The agent is told once.
    assert_eq!(find(190), (vec![], [true, false, false]));
    assert_eq!(find(191), (vec![otter()], [true, true, false]));

    let mut at = |pod: &str, seconds: u32| {
        let at = begin + seconds * second;
        let change = reports.merge(&sender(pod, false), &up("e1", 1), now, at);
        (change.state, reports.is_silent(pod))
    };
    assert_eq!(at("a", 200), (true, false));
    assert_eq!(at("a", 201), (false, false));
    reports.remove_pod("b");
    assert_eq!(reports.find_silent(begin + 200 * second), BTreeSet::new());
}

#[test]
fn a_refused_key_is_a_change_of_state_until_it_is_gone() {
    let mut reports = begun();
    let sender = sender("a", false);
    reports.take(&sender, &up("e1", 0));
    let mut refused = up("e1", 0);
    let refusal = ProviderRefusal {
        provider: "reef".into(),
        reason: "refused its key with status 401".into(),
    };
    refused.providers = vec![refusal; 2 * MOST_PROVIDERS];
    assert!(reports.take(&sender, &refused).state);
    assert!(!reports.take(&sender, &refused).state);
    let said = &reports.pod("a").unwrap().providers;
    assert_eq!(said.len(), MOST_PROVIDERS);
    assert_eq!(said[0], "reef refused its key with status 401");
    assert!(reports.take(&sender, &up("e1", 0)).state);
    assert!(reports.pod("a").unwrap().providers.is_empty());
}

#[test]
fn an_outage_is_a_change_of_state_until_it_is_over() {
    let mut reports = begun();
    let sender = sender("a", false);
    reports.take(&sender, &up("e1", 0));
    let mut silent = up("e1", 0);
    let outage = ServiceOutage {
        service: "desk".into(),
        reason: "connection refused".into(),
    };
    silent.outages = vec![outage; 2 * MOST_OUTAGES];
    let outage = ProviderOutage {
        provider: "reef".into(),
        reason: "timed out".into(),
    };
    silent.provider_outages = vec![outage; 2 * MOST_PROVIDERS];
    assert!(reports.take(&sender, &silent).state);
    assert!(!reports.take(&sender, &silent).state);
    let outages = &reports.pod("a").unwrap().outages;
    assert_eq!(outages.len(), MOST_OUTAGES);
    assert_eq!(outages[0], "desk (connection refused)");
    let outages = &reports.pod("a").unwrap().provider_outages;
    assert_eq!(outages.len(), MOST_PROVIDERS);
    assert_eq!(outages[0], "reef (timed out)");
    assert!(reports.take(&sender, &up("e1", 0)).state);
}

#[test]
fn hostile_texts_are_cut() {
    let mut reports = begun();
    let mut hostile = up(&"e".repeat(10_000), 1);
    hostile.error = Some(format!("\u{1b}[2J{}", "x".repeat(10_000)));
    reports.take(&sender("a", false), &hostile);
    let report = reports.pod("a").unwrap();
    assert!(report.error.as_ref().unwrap().chars().count() <= LONGEST_TEXT);
    assert!(!report.error.as_ref().unwrap().contains('\u{1b}'));
}

/// Past 2^63 the API server would refuse every later status of the Agent.
#[test]
fn counters_stay_within_what_a_status_can_hold() {
    let mut reports = begun();
    let all = |usage: &Usage| Counters::of(usage).0.iter().sum::<u64>();
    for (uid, epoch) in [("a", "e1"), ("a", "e2"), ("b", "e1")] {
        let mut hostile = up(epoch, u64::MAX);
        hostile.usage = Counters([u64::MAX; 7]).usage(None);
        reports.take(&sender(uid, false), &hostile);
        assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
    }
    reports.remove_pod("a");
    reports.remove_pod("b");
    assert_eq!(all(&reports.usage(&otter())), 7 * MOST);
    // Counters of a status that an earlier release wrote.
    let heron = ObjectRef::new("pond", "heron");
    reports.begin(&heron, None, &Counters([u64::MAX; 7]).usage(None));
    assert_eq!(all(&reports.usage(&heron)), 7 * MOST);
}

#[test]
fn an_impossible_time_of_the_last_call_is_ignored() {
    let mut reports = begun();
    let mut say = |at: &str| {
        let mut up = up("e1", 1);
        up.usage.last_call = Some(at.to_owned());
        reports.take(&sender("a", false), &up);
        reports.usage(&otter()).last_call
    };
    for never in [
        "",
        "soon",
        "-009999-01-01T00:00:00Z",
        "9999-01-01T00:00:00Z",
    ] {
        assert_eq!(say(never), None, "{never}");
    }
    let real = Some("2026-01-01T22:00:00Z".to_owned());
    assert_eq!(say("2026-01-02T00:00:00+02:00"), real);
    assert_eq!(say("2031-01-01T00:00:00Z"), real);
}
