use jiff::SignedDuration;
use proptest::prelude::*;
use toolcrib_manifest::RateCount as WrittenCount;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn otter() -> ObjectRef {
    ObjectRef::new("pond", "otter")
}

fn at(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

/// The calls of a rule with a rate per minute, whose slots are seconds.
fn calls(rule: &str, slots: &[(i64, u64)]) -> RateUse {
    RateUse {
        tool: "reed.cut".to_owned(),
        rule: rule.to_owned(),
        counts: vec![WrittenCount {
            calls: slots.iter().copied().collect(),
            per_ms: 60_000,
        }],
    }
}

#[test]
fn pods_are_summed_and_each_is_told_the_calls_of_the_others() {
    let mut sums = RateSums::default();
    let rule = |slots: &[(i64, u64)]| vec![calls("r1:a", slots)];
    assert_eq!(sums.of_others(&otter(), "a", at(10)), []);
    sums.merge(&otter(), "a", &[], at(10));
    assert!(sums.agents.is_empty() && sums.pods.is_empty());
    sums.merge(&otter(), "a", &rule(&[(1, 2), (4, 1)]), at(10));
    sums.merge(&otter(), "b", &rule(&[(4, 5)]), at(10));
    // A repeated and a late report.
    sums.merge(&otter(), "a", &rule(&[(1, 2), (4, 1)]), at(10));
    sums.merge(&otter(), "a", &rule(&[(1, 2)]), at(10));
    let others = |sums: &RateSums, pod, seconds| sums.of_others(&otter(), pod, at(seconds));
    assert_eq!(others(&sums, "a", 10), rule(&[(4, 5)]));
    assert_eq!(others(&sums, "b", 10), rule(&[(1, 2), (4, 1)]));
    assert_eq!(others(&sums, "new", 10), rule(&[(1, 2), (4, 6)]));
    // Calls of a deleted pod count until they are over.
    sums.remove_pod("b", at(20));
    assert_eq!(others(&sums, "a", 20), rule(&[(4, 5)]));
    assert_eq!(others(&sums, "new", 62), rule(&[(4, 6)]));
    assert_eq!(others(&sums, "a", 65), []);
    sums.merge(&otter(), "a", &[], at(65));
    assert!(sums.agents.is_empty() && sums.pods.is_empty());

    sums.merge(&otter(), "a", &rule(&[(70, 1)]), at(70));
    let another = ObjectRef::new("pond", "newt");
    assert_eq!(sums.of_others(&another, "b", at(70)), []);
    sums.forget_agent(&otter());
    assert!(sums.agents.is_empty() && sums.pods.is_empty());
}

#[test]
fn counts_of_other_periods_and_of_no_rate_are_not_added() {
    let mut sums = RateSums::default();
    let mut of_an_hour = calls("r1:a", &[(0, 7)]);
    of_an_hour.counts[0].per_ms = 3_600_000;
    let mut of_no_rate = calls("r1:b", &[(0, 7)]);
    of_no_rate.counts[0].per_ms = 0;
    let mut of_five_rates = calls("r1:c", &[(0, 7)]);
    of_five_rates.counts = vec![of_five_rates.counts[0].clone(); 5];
    let mut of_a_long_name = calls("r1:d", &[(0, 7)]);
    of_a_long_name.tool = "x".repeat(LONGEST_TEXT + 1);
    sums.merge(&otter(), "a", &[calls("r1:a", &[(0, 1)])], NOW);
    let hostile = [
        of_an_hour.clone(),
        of_no_rate,
        of_five_rates,
        of_a_long_name,
    ];
    sums.merge(&otter(), "b", &hostile, NOW);
    assert_eq!(sums.of_others(&otter(), "a", NOW), [of_an_hour]);
    assert_eq!(
        sums.of_others(&otter(), "b", NOW),
        [calls("r1:a", &[(0, 1)])]
    );
}

#[test]
fn hostile_counts_are_bounded() {
    let mut sums = RateSums::default();
    let slots: Vec<(i64, u64)> = (0..60).map(|slot| (slot, u64::MAX)).collect();
    // Each report has other rules: only the last one of each pod is kept.
    for pod in 0..20 {
        for report in 0..10 {
            let rules = (0..1_000).map(|rule| calls(&format!("{pod}.{report}.{rule}"), &slots));
            let rules: Vec<RateUse> = rules.collect();
            sums.merge(&otter(), &format!("pod-{pod}"), &rules, at(60));
        }
    }
    let kept = |counts: &Counts| -> usize { counts.values().map(|it| slots_of(it)).sum() };
    // Rules beyond the bound are in no pod's part either, so that the parts still add up.
    let agent = &sums.agents[&otter()];
    assert_eq!(agent.sum.len(), MOST_RULES);
    let mut whole = Counts::new();
    sums.pods
        .values()
        .for_each(|pod| add(&mut whole, &pod.counts));
    assert_eq!(agent.sum, whole);
    assert!(
        sums.pods
            .values()
            .all(|pod| kept(&pod.counts) <= MOST_RATE_SLOTS)
    );
    let answered: Vec<RateUse> = sums.of_others(&otter(), "new", at(60));
    assert_eq!(answered.len(), MOST_RATE_SLOTS * ANSWER_TO_REPORT / 60);
    for pod in 0..20 {
        sums.remove_pod(&format!("pod-{pod}"), at(60));
    }
    let agent = &sums.agents[&otter()];
    assert_eq!(agent.sum, agent.deleted);
    assert!(kept(&agent.sum) <= MOST_RATE_SLOTS * ANSWER_TO_REPORT);
}

/// An event of a random history: a pod's calls, a pod's report, or a pod's deletion.
#[derive(Clone, Debug)]
enum Event {
    Call { pod: usize, rule: usize },
    Report { pod: usize },
    Delete { pod: usize },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3_usize, 0..2_usize).prop_map(|(pod, rule)| Event::Call { pod, rule }),
        4 => (0..3_usize).prop_map(|pod| Event::Report { pod }),
        1 => (0..3_usize).prop_map(|pod| Event::Delete { pod }),
    ]
}

proptest! {
    /// The sum of an agent is always that of its pods and its deleted pods, and an answer has each call
    /// that another pod has reported and that counts, once.
    #[test]
    fn sums_are_those_of_all_pods(events in proptest::collection::vec((event(), 0..20_i64), 1..60)) {
        let mut sums = RateSums::default();
        // The calls of each pod by generation, rule and second; and which of them are reported.
        let mut called: Vec<Vec<(usize, i64)>> = vec![Vec::new(); 3];
        let mut reported: Vec<Vec<(usize, i64)>> = vec![Vec::new(); 3];
        let mut deleted: Vec<(usize, i64)> = Vec::new();
        let mut now = 1_000;
        for (event, step) in events {
            now += step;
            match event {
                Event::Call { pod, rule } => called[pod].push((rule, now)),
                Event::Report { pod } => {
                    reported[pod].clone_from(&called[pod]);
                    let uses: Vec<RateUse> = (0..2).filter_map(|rule| use_of(&called[pod], rule)).collect();
                    sums.merge(&otter(), &pod.to_string(), &uses, at(now));
                }
                Event::Delete { pod } => {
                    sums.remove_pod(&pod.to_string(), at(now));
                    deleted.append(&mut reported[pod]);
                    called[pod].clear();
                }
            }
            if let Some(agent) = sums.agents.get(&otter()) {
                let mut whole = agent.deleted.clone();
                sums.pods.values().for_each(|pod| add(&mut whole, &pod.counts));
                prop_assert_eq!(&agent.sum, &whole);
            }
            for pod in 0..3 {
                let others = (0..3).filter(|other| *other != pod).flat_map(|other| &reported[other]);
                let others: Vec<(usize, i64)> = others.chain(&deleted).copied().collect();
                let others: Vec<(usize, i64)> =
                    others.into_iter().filter(|(_, second)| *second >= now - 60).collect();
                let expected: Vec<RateUse> = (0..2).filter_map(|rule| use_of(&others, rule)).collect();
                let told = sums.of_others(&otter(), &pod.to_string(), at(now));
                prop_assert_eq!(told, expected);
            }
        }
    }
}

fn use_of(made: &[(usize, i64)], rule: usize) -> Option<RateUse> {
    let mut slots = BTreeMap::<i64, u64>::new();
    for (_, second) in made.iter().filter(|(of, _)| *of == rule) {
        *slots.entry(*second).or_default() += 1;
    }
    let slots: Vec<(i64, u64)> = slots.into_iter().collect();
    (!slots.is_empty()).then(|| calls(&format!("r1:{rule}"), &slots))
}
