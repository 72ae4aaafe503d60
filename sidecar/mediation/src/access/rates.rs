//! The calls that rules with rates have counted: this pod's, exact until a restart
//! ([`CallCount::count_ahead`]), and those of the agent's other pods as the operator says.
//!
//! They are not part of [`Authority`](super::authority::Authority), which is rebuilt whenever the
//! files or the link's allowlist change. A rule is identified by its tool and its digest, which
//! covers its rates: a changed rule begins at zero, and a rule that comes back within its period
//! keeps its count. Not here: the file that keeps the counts over a restart, and the link.
//!
//! Invariants: no slot's count falls. A call is counted against every rule that it meets, whichever
//! allows it, so removing a rule never gives another one more calls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolcrib_manifest::{ANSWER_TO_REPORT, MOST_RATE_SLOTS, MOST_RATED_RULES, RateUse};
use toolcrib_rules::{CallCount, RateCount, Rule};

/// Most rules whose counts are kept. An agent has at most 1,024 rules at a time.
const MAX_KEPT: usize = 4096;
/// The age from which the last call of a rule is in no period.
const OVER: SignedDuration = SignedDuration::from_hours(25);

/// Most rules of which the calls of other pods are kept.
const MAX_OTHERS: usize = MOST_RATED_RULES * ANSWER_TO_REPORT;

/// The counts of one agent in this pod.
#[derive(Debug, Default)]
pub struct RateCounts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    own: BTreeMap<Key, Counts>,
    others: BTreeMap<Key, Vec<RateCount>>,
}

/// Tool, and digest of the rule.
type Key = (String, String);

/// The counts of one rule for one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    pub tool: String,
    /// Digest of the rule.
    pub rule: String,
    last: Timestamp,
    counts: Vec<CallCount>,
}

#[derive(Clone, Debug)]
struct Counts {
    /// The last call.
    last: Timestamp,
    /// One for each rate of the rule, in the order of the rule.
    counts: Vec<CallCount>,
    /// The counts in the last line of the file. Empty: there is no line, or it is not known.
    kept: Vec<CallCount>,
}

impl RateCounts {
    /// Takes counts over from an earlier process.
    pub fn restore(&self, earlier: RuleCounts) {
        let RuleCounts {
            tool,
            rule,
            last,
            counts,
        } = earlier;
        let counts = Counts {
            last,
            kept: counts.clone(),
            counts,
        };
        self.0.lock().own.insert((tool, rule), counts);
    }

    /// Takes the lines that are due for some rules of a tool: of those with calls that the file does not
    /// have. A line has some calls more than were made ([`CallCount::count_ahead`]).
    pub fn take_due(&self, tool: &str, rules: &BTreeSet<String>) -> Vec<RuleCounts> {
        let own = &mut self.0.lock().own;
        let lines = rules.iter().filter_map(|rule| {
            let key = (tool.to_owned(), rule.clone());
            let counts = own.get_mut(&key)?;
            counts.keep().then(|| rule_counts((&key, counts)))
        });
        lines.collect()
    }

    /// Takes the lines of a new file: of the counts that are not over at this time.
    pub fn take_all(&self, now: Timestamp) -> Vec<RuleCounts> {
        let own = &mut self.0.lock().own;
        own.retain(|_, counts| !counts.are_over(now));
        let lines = own.iter_mut().map(|(key, counts)| {
            counts.keep();
            rule_counts((key, counts))
        });
        lines.collect()
    }

    /// Makes the line of each rule due again, after a failed write.
    pub fn forget_kept(&self) {
        let own = &mut self.0.lock().own;
        own.values_mut().for_each(|counts| counts.kept.clear());
    }

    /// Returns this pod's calls that these rules of tools count now, for a report: those of the rules
    /// that were called last, within the limits of a report.
    pub fn own<'r>(
        &self,
        rules: impl Iterator<Item = (&'r str, &'r Rule)>,
        now: Timestamp,
    ) -> Vec<RateUse> {
        let own = &self.0.lock().own;
        let rules: BTreeMap<Key, &Rule> =
            rules.map(|(tool, rule)| (key(tool, rule), rule)).collect();
        let called = rules.into_iter().filter_map(|(key, rule)| {
            let counts = own.get(&key)?;
            Some((counts.last, counts.report(key, rule, now)?))
        });
        let mut called: Vec<(Timestamp, RateUse)> = called.collect();
        called.sort_by_key(|(last, _)| Reverse(*last));
        let mut slots = 0;
        let called = called.into_iter().map(|(_, used)| used).take_while(|used| {
            slots += used.counts.iter().map(|it| it.calls.len()).sum::<usize>();
            slots <= MOST_RATE_SLOTS
        });
        called.take(MOST_RATED_RULES).collect()
    }

    /// Notes the calls of the agent's other pods. A leader that has just begun may know of fewer than the
    /// one before it, so the higher count of each slot stands.
    pub fn learn(&self, others: &[RateUse], now: Timestamp) {
        let known = &mut self.0.lock().others;
        for counts in known.values_mut() {
            counts.iter_mut().for_each(|count| count.forget(now));
        }
        known.retain(|_, counts| counts.iter().any(|count| count.calls.slots() > 0));
        for other in others {
            let counts = other.counts.iter().map(|it| RateCount::read(it, now));
            let Some(told) = counts.collect::<Option<Vec<RateCount>>>() else {
                continue;
            };
            let key = (other.tool.clone(), other.rule.clone());
            if known.len() >= MAX_OTHERS && !known.contains_key(&key) {
                continue;
            }
            let known = known.entry(key).or_default();
            if !known
                .iter()
                .map(|it| it.period)
                .eq(told.iter().map(|it| it.period))
            {
                *known = told;
                continue;
            }
            for (known, told) in known.iter_mut().zip(&told) {
                known.calls.raise(&told.calls);
            }
        }
    }

    /// Returns for each of these rules the time until it has room for a call; `None`: it has room.
    pub(crate) fn waits(
        &self,
        tool: &str,
        rules: &[&Rule],
        now: Timestamp,
    ) -> Vec<Option<Duration>> {
        waits(&self.0.lock(), tool, rules, now)
    }

    /// Counts a call that `permit` permits, by the waits of these rules ([`Self::waits`]), against all
    /// of them, once for each digest.
    pub(crate) fn count<T, E>(
        &self,
        tool: &str,
        rules: &[&Rule],
        now: Timestamp,
        permit: impl FnOnce(&[Option<Duration>]) -> Result<T, E>,
    ) -> Result<T, E> {
        let state = &mut *self.0.lock();
        let permitted = permit(&waits(state, tool, rules, now))?;
        let own = &mut state.own;
        let rated = rules.iter().filter(|rule| !rule.rates().is_empty());
        let rated: BTreeMap<&str, &Rule> = rated.map(|it| (it.digest(), *it)).collect();
        for rule in rated.into_values() {
            let key = key(tool, rule);
            if !own.contains_key(&key) {
                make_room(own, now);
            }
            let counts = own.entry(key).or_insert_with(|| Counts {
                last: now,
                counts: Vec::new(),
                kept: Vec::new(),
            });
            counts.add(rule, now);
        }
        Ok(permitted)
    }
}

fn waits(state: &State, tool: &str, rules: &[&Rule], now: Timestamp) -> Vec<Option<Duration>> {
    let wait = |rule: &&Rule| match rule.rates() {
        [] => None,
        _ => {
            let key = key(tool, rule);
            wait(rule, state.own.get(&key), state.others.get(&key), now)
        }
    };
    rules.iter().map(wait).collect()
}

impl Counts {
    fn are_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) > OVER
    }

    /// The calls that the rule's rates count now; `None`: they count none.
    fn report(&self, (tool, digest): Key, rule: &Rule, now: Timestamp) -> Option<RateUse> {
        let rates = rule.rates().iter().zip(&self.counts);
        let counts = rates.map(|(rate, calls)| {
            let mut count = RateCount::new(rate.period());
            count.calls.clone_from(calls);
            count.write(now)
        });
        let used = RateUse {
            tool,
            rule: digest,
            counts: counts.collect(),
        };
        let has_calls = used.counts.iter().any(|count| !count.calls.is_empty());
        has_calls.then_some(used)
    }

    /// Counts ahead if the line in the file does not cover the calls. Returns true then: a line is due.
    fn keep(&mut self) -> bool {
        let mut pairs = self.kept.iter().zip(&self.counts);
        let is_kept =
            self.kept.len() == self.counts.len() && pairs.all(|(kept, count)| kept.covers(count));
        if !is_kept {
            self.kept.clone_from(&self.counts);
            self.kept.iter_mut().for_each(CallCount::count_ahead);
        }
        !is_kept
    }

    fn add(&mut self, rule: &Rule, now: Timestamp) {
        self.last = self.last.max(now);
        self.counts
            .resize_with(rule.rates().len(), CallCount::default);
        for (rate, count) in rule.rates().iter().zip(&mut self.counts) {
            count.add(rate, now);
        }
    }
}

fn key(tool: &str, rule: &Rule) -> Key {
    (tool.to_owned(), rule.digest().to_owned())
}

/// The longest wait of the rule's rates; `None`: all allow a call.
fn wait(
    rule: &Rule,
    own: Option<&Counts>,
    others: Option<&Vec<RateCount>>,
    now: Timestamp,
) -> Option<Duration> {
    let waits = rule.rates().iter().enumerate().filter_map(|(at, rate)| {
        let own = own.and_then(|own| own.counts.get(at));
        let others = others.and_then(|others| others.get(at));
        let others = others.filter(|others| others.period == rate.period());
        let others = others.map(|others| &others.calls);
        match (own, others) {
            (Some(own), Some(others)) => rate.wait(&[own, others], now),
            (Some(calls), None) | (None, Some(calls)) => rate.wait(&[calls], now),
            (None, None) => None,
        }
    });
    waits.max()
}

/// Makes room for another rule: evicts the counts whose periods are over; if there are none, evicts
/// the least recently called rules.
fn make_room(kept: &mut BTreeMap<Key, Counts>, now: Timestamp) {
    if kept.len() < MAX_KEPT {
        return;
    }
    kept.retain(|_, counts| !counts.are_over(now));
    while kept.len() >= MAX_KEPT {
        let oldest = kept.iter().min_by_key(|(_, counts)| counts.last);
        let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
            return;
        };
        kept.remove(&oldest);
    }
}

/// The line of a rule for the file.
fn rule_counts(((tool, rule), counts): (&Key, &Counts)) -> RuleCounts {
    RuleCounts {
        tool: tool.clone(),
        rule: rule.clone(),
        last: counts.last,
        counts: counts.kept.clone(),
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest as manifest;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn rule(digest: &str, calls: u32) -> Rule {
        let text = format!(
            r#"{{"digest": "{digest}", "grant": {{"namespace": "pond", "name": "a"}},
                "rate": [{{"calls": {calls}, "per_ms": 60000}}]}}"#
        );
        let rule: manifest::Rule = serde_json::from_str(&text).unwrap();
        Rule::read(&rule).unwrap()
    }

    /// Counts a call if one of the rules has room for it, or if it runs anyway. The index of the first
    /// rule with room, or the shortest wait.
    fn count(
        counts: &RateCounts,
        tool: &str,
        rules: &[&Rule],
        is_audit: bool,
        now: Timestamp,
    ) -> Result<usize, Duration> {
        let permit = |waits: &[Option<Duration>]| {
            let free = waits.iter().position(Option::is_none);
            let wait = waits.iter().flatten().min().copied();
            match free.ok_or(wait.unwrap_or_default()) {
                Err(wait) if !is_audit => Err(wait),
                permitted => Ok(permitted),
            }
        };
        counts.count(tool, rules, now, permit)?
    }

    #[test]
    fn a_call_counts_against_every_rule_that_it_meets() {
        let counts = RateCounts::default();
        let (one, two) = (rule("one", 1), rule("two", 2));
        let both = [&one, &two];
        assert_eq!(count(&counts, "a.b", &both, false, NOW), Ok(0));
        assert_eq!(count(&counts, "a.b", &both, false, NOW), Ok(1));
        let wait = Duration::from_secs(61);
        assert_eq!(count(&counts, "a.b", &both, false, NOW), Err(wait));
        assert_eq!(count(&counts, "a.b", &[&two], false, NOW), Err(wait));
        // Two grants with the same rule are one.
        let twins = [&two, &rule("two", 2)];
        for expected in [Ok(0), Ok(0), Err(wait)] {
            assert_eq!(count(&counts, "a.d", &twins, false, NOW), expected);
        }
        // Tools are counted apart.
        assert_eq!(count(&counts, "a.c", &[&two], false, NOW), Ok(0));
        // A call that runs anyway is counted.
        let one = BTreeSet::from(["one".to_owned()]);
        assert_eq!(counts.take_due("a.b", &one).len(), 1);
        assert_eq!(counts.take_due("a.b", &one), []);
        assert_eq!(count(&counts, "a.b", &both, true, NOW), Err(wait));
        assert_eq!(counts.take_due("a.b", &one).len(), 1);
    }

    #[test]
    fn counts_are_taken_over_as_text() {
        let (counts, later) = (RateCounts::default(), RateCounts::default());
        let one = rule("one", 1);
        assert_eq!(count(&counts, "a.b", &[&one], false, NOW), Ok(0));
        for counts in counts.take_all(NOW) {
            let text = serde_json::to_string(&counts).unwrap();
            later.restore(serde_json::from_str(&text).unwrap());
        }
        assert!(count(&later, "a.b", &[&one], false, NOW).is_err());
        assert_eq!(later.take_all(NOW), counts.take_all(NOW));
        assert_eq!(later.take_all(NOW + SignedDuration::from_hours(26)), []);
    }

    /// A kill at any time gives no call back, and takes at most a sixteenth of the calls.
    #[test]
    fn the_file_never_has_fewer_calls_than_were_made() {
        let counts = RateCounts::default();
        let many = rule("many", 400);
        let rules = BTreeSet::from(["many".to_owned()]);
        let (mut file, mut lines) = (Vec::new(), 0);
        for made in 1..=400_usize {
            assert_eq!(count(&counts, "a.b", &[&many], false, NOW), Ok(0));
            match made {
                // The file was full, and was written anew.
                200 => file = counts.take_all(NOW),
                // It could not be written, and then could.
                300 => counts.forget_kept(),
                _ => {}
            }
            let due = counts.take_due("a.b", &rules);
            lines += due.len();
            file.extend(due);
            let later = RateCounts::default();
            file.iter().cloned().for_each(|it| later.restore(it));
            let mut left = 0;
            while count(&later, "a.b", &[&many], false, NOW).is_ok() {
                left += 1;
            }
            let lost = (400 - made).checked_sub(left).unwrap();
            assert!(lost <= made / 16, "{lost} of {made}");
        }
        assert!((16..100).contains(&lines), "{lines}");
    }

    fn told(rule: &str, slots: &[(i64, u64)]) -> RateUse {
        RateUse {
            tool: "a.b".to_owned(),
            rule: rule.to_owned(),
            counts: vec![manifest::RateCount {
                calls: slots.iter().copied().collect(),
                per_ms: 60_000,
            }],
        }
    }

    fn at(seconds: i64) -> Timestamp {
        NOW + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn calls_of_other_pods_count_and_no_slot_falls() {
        let counts = RateCounts::default();
        let three = rule("three", 3);
        let of_three = |now| count(&counts, "a.b", &[&three], false, now);
        counts.learn(&[told("three", &[(0, 1), (10, 1)])], at(20));
        // A new leader that has not heard of all pods yet, and messages that cannot be used.
        counts.learn(&[told("three", &[(10, 1)])], at(20));
        counts.learn(&[], at(20));
        let mut wrong = told("three", &[(20, 9)]);
        wrong.counts[0].per_ms = 0;
        counts.learn(&[wrong, told("four", &[(20, 9)])], at(20));
        assert_eq!(of_three(at(20)), Ok(0));
        let refused = Err(Duration::from_secs(41));
        assert_eq!(of_three(at(20)), refused);
        // They are no calls of this pod.
        let own = || counts.own([("a.b", &three)].into_iter(), at(20));
        assert_eq!(own(), [told("three", &[(20, 1)])]);
        // They are over in time without a message, and in other pods' slots alone.
        assert_eq!(of_three(at(61)), Ok(0));
        assert!(of_three(at(61)).is_err());
        assert_eq!(of_three(at(71)), Ok(0));
        // A rule that this pod has not called.
        counts.learn(&[told("one", &[(60, 1)])], at(71));
        let one = rule("one", 1);
        assert!(count(&counts, "a.b", &[&one], false, at(71)).is_err());
        assert_eq!(count(&counts, "a.c", &[&one], false, at(71)), Ok(0));
    }

    #[test]
    fn a_report_has_the_rules_that_were_called_last() {
        let counts = RateCounts::default();
        let rules: Vec<Rule> = (0..100).map(|at| rule(&format!("r{at:03}"), 9)).collect();
        for (second, rule) in rules.iter().enumerate() {
            let second = i64::try_from(second).unwrap();
            assert_eq!(count(&counts, "a.b", &[rule], false, at(second)), Ok(0));
        }
        let asked = || rules.iter().map(|rule| ("a.b", rule));
        // Those of the last minute; the same rule of two grants is one.
        let own = counts.own(asked().chain(asked()), at(99));
        assert_eq!(own.len(), 61);
        assert_eq!(own[0], told("r099", &[(99, 1)]));
        assert_eq!(own[60].rule, "r039");
        for rule in &rules {
            assert_eq!(count(&counts, "a.b", &[rule], false, at(100)), Ok(0));
        }
        let own = counts.own(asked(), at(100));
        assert_eq!(own.len(), MOST_RATED_RULES);
        // A report holds fewer rules that are busy.
        let busy = RateCounts::default();
        for rule in &rules {
            for second in 0..40 {
                count(&busy, "a.b", &[rule], true, at(second)).ok();
            }
        }
        let own = busy.own(asked(), at(40));
        assert_eq!(own.len(), MOST_RATE_SLOTS / 40);
    }

    #[test]
    fn what_is_kept_of_other_pods_has_a_bound() {
        let counts = RateCounts::default();
        for number in 0..MAX_OTHERS + 10 {
            counts.learn(&[told(&format!("r{number}"), &[(0, 1)])], NOW);
        }
        assert_eq!(counts.0.lock().others.len(), MAX_OTHERS);
        counts.learn(&[told("later", &[(61, 1)])], at(61));
        assert_eq!(counts.0.lock().others.len(), 1);
    }

    #[test]
    fn the_rules_that_are_kept_have_a_bound() {
        let counts = RateCounts::default();
        for number in 0..MAX_KEPT + 10 {
            let now = NOW + SignedDuration::from_millis(number as i64);
            let rule = rule(&format!("r{number}"), 1);
            assert_eq!(count(&counts, "a.b", &[&rule], false, now), Ok(0));
        }
        // The oldest that is left is called again: it needs no room, so it keeps its count.
        let oldest = rule("r10", 1);
        assert!(count(&counts, "a.b", &[&oldest], false, NOW).is_err());
        assert!(count(&counts, "a.b", &[&oldest], true, NOW).is_err());
        let kept = counts.take_all(NOW);
        assert_eq!(kept.len(), MAX_KEPT);
        assert!(kept.iter().all(|it| it.rule != "r9"));
        assert!(kept.iter().any(|it| it.rule == "r10"));
    }
}
