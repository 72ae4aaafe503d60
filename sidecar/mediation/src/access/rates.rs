//! The calls that rules with rates have counted.
//!
//! They are not part of [`Authority`](super::authority::Authority), which is rebuilt whenever the
//! files or the link's allowlist change. A rule is identified by its tool and its digest, which
//! covers its rates: a changed rule begins at zero, and a rule that comes back within its period
//! keeps its count. Not here: the file that keeps the counts over a restart.
//!
//! Invariant: a call is counted against every rule that it meets, whichever allows it. So removing
//! a rule never gives another one more calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolcrib_rules::{CallCount, Rule};

/// Most rules whose counts are kept. An agent has at most 1,024 rules at a time.
const MAX_KEPT: usize = 4096;
/// The age from which the last call of a rule is in no period.
const OVER: SignedDuration = SignedDuration::from_hours(25);

/// The counts of one agent in this process.
#[derive(Debug, Default)]
pub struct RateCounts {
    kept: Mutex<BTreeMap<Key, Counts>>,
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
        let counts = Counts { last, counts };
        self.kept.lock().insert((tool, rule), counts);
    }

    /// The counts that are not over at this time.
    pub fn all(&self, now: Timestamp) -> Vec<RuleCounts> {
        let mut kept = self.kept.lock();
        kept.retain(|_, counts| !counts.are_over(now));
        kept.iter().map(rule_counts).collect()
    }

    /// The counts of some rules of a tool.
    pub fn of(&self, tool: &str, rules: &BTreeSet<String>) -> Vec<RuleCounts> {
        let kept = self.kept.lock();
        let entry = |rule: &String| kept.get_key_value(&(tool.to_owned(), rule.clone()));
        rules.iter().filter_map(entry).map(rule_counts).collect()
    }

    /// Finds the first of these rules that has room for a call, and counts the call against all of
    /// them, once for each digest. Without room nothing is counted, unless the call runs anyway
    /// (`is_audit`); the error is the shortest wait.
    pub(crate) fn count(
        &self,
        tool: &str,
        rules: &[&Rule],
        is_audit: bool,
        now: Timestamp,
    ) -> Result<usize, Duration> {
        let mut kept = self.kept.lock();
        let key = |rule: &Rule| (tool.to_owned(), rule.digest().to_owned());
        let wait = |rule: &&Rule| match rule.rates() {
            [] => None,
            _ => kept.get(&key(rule))?.wait(rule, now),
        };
        let waits: Vec<Option<Duration>> = rules.iter().map(wait).collect();
        let free = waits.iter().position(Option::is_none);
        if free.is_some() || is_audit {
            let rated = rules.iter().filter(|rule| !rule.rates().is_empty());
            let rated: BTreeMap<&str, &Rule> = rated.map(|it| (it.digest(), *it)).collect();
            for rule in rated.into_values() {
                let key = key(rule);
                if !kept.contains_key(&key) {
                    make_room(&mut kept, now);
                }
                let counts = kept.entry(key).or_insert_with(|| Counts {
                    last: now,
                    counts: Vec::new(),
                });
                counts.add(rule, now);
            }
        }
        let wait = waits.into_iter().flatten().min();
        free.ok_or(wait.unwrap_or_default())
    }
}

impl Counts {
    fn are_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) > OVER
    }

    /// The longest wait of the rule's rates; `None`: all allow a call.
    fn wait(&self, rule: &Rule, now: Timestamp) -> Option<Duration> {
        let rates = rule.rates().iter().zip(&self.counts);
        rates
            .filter_map(|(rate, count)| count.wait(rate, now))
            .max()
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

fn rule_counts(((tool, rule), counts): (&Key, &Counts)) -> RuleCounts {
    RuleCounts {
        tool: tool.clone(),
        rule: rule.clone(),
        last: counts.last,
        counts: counts.counts.clone(),
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

    #[test]
    fn a_call_counts_against_every_rule_that_it_meets() {
        let counts = RateCounts::default();
        let (one, two) = (rule("one", 1), rule("two", 2));
        let both = [&one, &two];
        assert_eq!(counts.count("a.b", &both, false, NOW), Ok(0));
        assert_eq!(counts.count("a.b", &both, false, NOW), Ok(1));
        let wait = Duration::from_secs(61);
        assert_eq!(counts.count("a.b", &both, false, NOW), Err(wait));
        assert_eq!(counts.count("a.b", &[&two], false, NOW), Err(wait));
        // Two grants with the same rule are one.
        let twins = [&two, &rule("two", 2)];
        for expected in [Ok(0), Ok(0), Err(wait)] {
            assert_eq!(counts.count("a.d", &twins, false, NOW), expected);
        }
        // Tools are counted apart.
        assert_eq!(counts.count("a.c", &[&two], false, NOW), Ok(0));
        // A call that runs anyway is counted.
        let before = counts.of("a.b", &BTreeSet::from(["one".to_owned()]));
        assert_eq!(counts.count("a.b", &both, true, NOW), Err(wait));
        assert_ne!(
            counts.of("a.b", &BTreeSet::from(["one".to_owned()])),
            before
        );
    }

    #[test]
    fn counts_are_taken_over_as_text() {
        let (counts, later) = (RateCounts::default(), RateCounts::default());
        let one = rule("one", 1);
        assert_eq!(counts.count("a.b", &[&one], false, NOW), Ok(0));
        for counts in counts.all(NOW) {
            let text = serde_json::to_string(&counts).unwrap();
            later.restore(serde_json::from_str(&text).unwrap());
        }
        assert!(later.count("a.b", &[&one], false, NOW).is_err());
        assert_eq!(later.all(NOW), counts.all(NOW));
        assert_eq!(later.all(NOW + SignedDuration::from_hours(26)), []);
    }

    #[test]
    fn the_rules_that_are_kept_have_a_bound() {
        let counts = RateCounts::default();
        for number in 0..MAX_KEPT + 10 {
            let now = NOW + SignedDuration::from_millis(number as i64);
            let rule = rule(&format!("r{number}"), 1);
            assert_eq!(counts.count("a.b", &[&rule], false, now), Ok(0));
        }
        // The oldest that is left is called again: it needs no room, so it keeps its count.
        let oldest = rule("r10", 1);
        assert!(counts.count("a.b", &[&oldest], false, NOW).is_err());
        assert!(counts.count("a.b", &[&oldest], true, NOW).is_err());
        let kept = counts.all(NOW);
        assert_eq!(kept.len(), MAX_KEPT);
        assert!(kept.iter().all(|it| it.rule != "r9"));
        assert!(kept.iter().any(|it| it.rule == "r10"));
    }
}
