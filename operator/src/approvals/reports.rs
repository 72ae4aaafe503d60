//! What pods report about their questions. Pure.
//!
//! A report names each question that the mediator holds open, and those whose approvals it has used. So a
//! question that is not named is withdrawn, unless the report may be older than the question.
//!
//! Bounded: a pod has [`MOST_REPORTED`] questions at most, whatever it reports.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_manifest::{ApprovalUse, LONGEST_CODE, OpenQuestion};

use super::plan::{CallResult, QuestionState};

/// Limits the questions that are read from a report. A mediator has fewer: 8 open ones, those in a call, and
/// 64 used ones that the operator has not noted yet.
const MOST_REPORTED: usize = 128;
/// Limits the bytes of an id.
const LONGEST_ID: usize = 64;
/// A report that arrives so soon after a question may have been sent before it.
const OVERTAKEN: Duration = Duration::from_secs(10);
/// The time after which a reported question without a ToolApproval is withdrawn. Until then the mediator
/// may be about to ask.
const MISSING: Duration = Duration::from_secs(30);
/// Interval between two answers with the same decision, while the mediator reports the question as open.
const REPEATED: Duration = Duration::from_secs(1);

/// The last report of each pod, as far as it is about questions.
#[derive(Debug, Default)]
pub struct QuestionReports {
    pods: HashMap<String, PodQuestions>,
}

/// The questions of one pod.
#[derive(Debug, Default)]
struct PodQuestions {
    /// Time of the last report; `None`: it has only asked.
    reported: Option<Instant>,
    /// The questions of the last report, by id.
    questions: BTreeMap<String, QuestionReport>,
    /// The last time at which the pod asked a question, by id.
    asked: BTreeMap<String, Instant>,
    /// Wakes the pod's request that waits for an answer.
    wake: Arc<Notify>,
}

/// What the last report of a pod says about a question.
#[derive(Clone, Debug)]
struct QuestionReport {
    used: Option<CallResult>,
    /// The first report that named it.
    since: Instant,
    /// The last answer that had a decision on it.
    answered: Option<Instant>,
}

/// A question that the last report named.
#[derive(Clone, Copy, Debug)]
pub struct ReportedQuestion<'a> {
    pub id: &'a str,
    /// The approval was used.
    pub is_used: bool,
    /// No ToolApproval can be expected any more, if there is none.
    pub is_missing: bool,
    /// An answer with a decision on it is due; `None`: now.
    pub due: Option<Instant>,
}

impl QuestionReports {
    /// Notes that the pod asks a question.
    pub fn note_question(&mut self, pod: &str, id: &str, now: Instant) {
        let pod = self.pods.entry(pod.to_owned()).or_default();
        pod.asked
            .retain(|_, at| now.saturating_duration_since(*at) < MISSING);
        if pod.asked.len() < MOST_REPORTED {
            pod.asked.insert(id.to_owned(), now);
        }
    }

    /// Replaces what a pod has reported before. Nothing is kept for a pod that never had a question.
    pub fn merge(&mut self, pod: &str, questions: &[OpenQuestion], now: Instant) {
        if questions.is_empty() && !self.pods.contains_key(pod) {
            return;
        }
        let pod = self.pods.entry(pod.to_owned()).or_default();
        pod.reported = Some(now);
        let before = std::mem::take(&mut pod.questions);
        let questions = questions.iter().filter(|it| it.id.len() <= LONGEST_ID);
        let questions = questions.take(MOST_REPORTED).map(|it| {
            let before = before.get(&it.id);
            let report = QuestionReport {
                used: it.used.map(|used| result(used, it.code.as_deref())),
                since: before.map_or(now, |before| before.since),
                answered: before.and_then(|before| before.answered),
            };
            (it.id.clone(), report)
        });
        pod.questions = questions.collect();
    }

    pub fn remove_pod(&mut self, pod: &str) {
        if let Some(pod) = self.pods.remove(pod) {
            pod.wake.notify_waiters();
        }
    }

    /// Returns what the pod's last report says about a question.
    pub fn question_state(&self, pod: &str, id: &str) -> QuestionState {
        let Some((pod, reported)) = self
            .pods
            .get(pod)
            .and_then(|pod| Some((pod, pod.reported?)))
        else {
            return QuestionState::Unknown;
        };
        match pod.questions.get(id) {
            Some(QuestionReport {
                used: Some(used), ..
            }) => QuestionState::Used(used.clone()),
            Some(QuestionReport { used: None, .. }) => QuestionState::Open,
            None => {
                let asked = pod.asked.get(id);
                match asked.is_some_and(|asked| reported < *asked + OVERTAKEN) {
                    true => QuestionState::Unknown,
                    false => QuestionState::Gone,
                }
            }
        }
    }

    /// Returns the questions that the pod's last report named.
    pub fn questions(&self, pod: &str, now: Instant) -> Vec<ReportedQuestion<'_>> {
        let Some(pod) = self.pods.get(pod) else {
            return Vec::new();
        };
        let old = |at: &Instant| now.saturating_duration_since(*at) >= MISSING;
        let questions = pod.questions.iter().map(|(id, report)| ReportedQuestion {
            id,
            is_used: report.used.is_some(),
            is_missing: old(&report.since) && pod.asked.get(id).is_none_or(old),
            due: report.answered.map(|at| at + REPEATED),
        });
        questions.collect()
    }

    /// Notes that an answer has decisions on these questions.
    pub fn note_answer<'a>(&mut self, pod: &str, ids: impl Iterator<Item = &'a str>, now: Instant) {
        if let Some(pod) = self.pods.get_mut(pod) {
            for id in ids {
                if let Some(report) = pod.questions.get_mut(id) {
                    report.answered = Some(now);
                }
            }
        }
    }

    /// Returns what wakes the pod's waiting request; `None` for a pod without questions.
    pub fn wake(&self, pod: &str) -> Option<Arc<Notify>> {
        self.pods.get(pod).map(|pod| Arc::clone(&pod.wake))
    }
}

/// The result of a call for which an approval was used. A code that is none is left out.
fn result(used: ApprovalUse, code: Option<&str>) -> CallResult {
    match used {
        ApprovalUse::Succeeded => CallResult::Succeeded,
        ApprovalUse::Failed => CallResult::Failed,
        ApprovalUse::Unknown => CallResult::Unknown,
        ApprovalUse::Refused => {
            let is_code = |code: &&str| {
                let mut chars = code.chars();
                (1..=LONGEST_CODE).contains(&code.len())
                    && chars.all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
            };
            // It is shown to people.
            CallResult::Refused(code.filter(is_code).map(Arc::from))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(id: &str) -> OpenQuestion {
        OpenQuestion {
            id: id.to_owned(),
            used: None,
            code: None,
        }
    }

    struct World {
        reports: QuestionReports,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                reports: QuestionReports::default(),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn note_question(&mut self, id: &str, second: u64) {
            let now = self.at(second);
            self.reports.note_question("p", id, now);
        }

        fn gets(&mut self, questions: &[OpenQuestion], second: u64) {
            let now = self.at(second);
            self.reports.merge("p", questions, now);
        }
    }

    #[test]
    fn a_question_that_is_not_named_is_gone_unless_the_report_may_be_older() {
        let mut world = World::new();
        assert_eq!(
            world.reports.question_state("p", "q"),
            QuestionState::Unknown
        );
        world.gets(&[], 0);
        assert_eq!(
            world.reports.question_state("p", "q"),
            QuestionState::Unknown,
            "nothing is kept"
        );
        world.note_question("q", 1);
        assert_eq!(
            world.reports.question_state("p", "q"),
            QuestionState::Unknown
        );
        world.gets(&[], 10);
        assert_eq!(
            world.reports.question_state("p", "q"),
            QuestionState::Unknown
        );
        world.gets(&[open("q")], 12);
        assert_eq!(world.reports.question_state("p", "q"), QuestionState::Open);
        world.gets(&[], 13);
        assert_eq!(world.reports.question_state("p", "q"), QuestionState::Gone);
        // A later question about the same pod, to an earlier leader.
        assert_eq!(world.reports.question_state("p", "r"), QuestionState::Gone);
        let used = Some(ApprovalUse::Failed);
        world.gets(&[OpenQuestion { used, ..open("q") }], 14);
        assert_eq!(
            world.reports.question_state("p", "q"),
            QuestionState::Used(CallResult::Failed)
        );
        let mut refused = |code: &str, expected: Option<&str>| {
            let code = Some(code.to_owned());
            let used = Some(ApprovalUse::Refused);
            let id = "q".to_owned();
            world.gets(&[OpenQuestion { id, used, code }], 15);
            let expected = CallResult::Refused(expected.map(Arc::from));
            assert_eq!(
                world.reports.question_state("p", "q"),
                QuestionState::Used(expected)
            );
        };
        refused("rate_limited", Some("rate_limited"));
        refused("http_403", Some("http_403"));
        // It is no code, and people would read it.
        refused("approved by heron", None);
        refused("", None);
        refused(&"x".repeat(LONGEST_CODE + 1), None);
    }

    #[test]
    fn a_named_question_without_an_object_is_missing_after_a_while() {
        let mut world = World::new();
        let missing = |world: &World, second| {
            let named = world.reports.questions("p", world.at(second));
            named.iter().map(|it| it.is_missing).collect::<Vec<_>>()
        };
        world.gets(&[open("q")], 0);
        world.gets(&[open("q")], 20);
        assert_eq!(missing(&world, 29), [false]);
        assert_eq!(missing(&world, 30), [true]);
        // It asks again.
        world.note_question("q", 31);
        assert_eq!(missing(&world, 60), [false]);
        assert_eq!(missing(&world, 61), [true]);
    }

    #[test]
    fn a_decision_is_repeated_once_a_second() {
        let mut world = World::new();
        world.gets(&[open("q")], 0);
        let due = |world: &World| world.reports.questions("p", world.at(5))[0].due;
        assert_eq!(due(&world), None);
        let now = world.at(5);
        world.reports.note_answer("p", ["q", "r"].into_iter(), now);
        world.gets(&[open("q")], 5);
        assert_eq!(due(&world), Some(world.at(6)));
        world.gets(&[], 6);
        world.gets(&[open("q")], 7);
        assert_eq!(due(&world), None, "it was closed between");
    }

    #[test]
    fn a_hostile_report_is_cut() {
        let mut world = World::new();
        let many: Vec<OpenQuestion> = (0..10_000).map(|it| open(&format!("{it}"))).collect();
        world.gets(&many, 0);
        let now = world.at(0);
        assert_eq!(world.reports.questions("p", now).len(), MOST_REPORTED);
        world.gets(&[open(&"x".repeat(LONGEST_ID + 1))], 1);
        assert_eq!(world.reports.questions("p", now).len(), 0);
        for id in 0..10_000 {
            world.note_question(&format!("{id}"), 2);
        }
        assert_eq!(world.reports.pods["p"].asked.len(), MOST_REPORTED);
        world.reports.remove_pod("p");
        assert!(world.reports.pods.is_empty());
    }
}
