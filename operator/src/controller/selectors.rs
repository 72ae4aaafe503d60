//! Whether grants may select agents by labels: only while the API server refuses such labels to users
//! who may not create ToolGrants.
//!
//! A user who may edit an Agent could otherwise give it any tool by a label. The chart has an admission
//! policy against that (`…-selectors`).
//!
//! Here: the state that follows from the answers of the API server. Not here: the questions ([`super::label_check`]), and
//! the selectors themselves (`toolcrib_compile`).
//!
//! Invariant: selectors are off unless the last answer was the policy's refusal, at most [`REFUSAL_VALID`]
//! ago.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_compile::AgentSelectors;

/// The time for which a refusal by the policy counts while later questions fail.
const REFUSAL_VALID: Duration = Duration::from_secs(60);

/// Whether selectors are in force, by the last answers of the API server.
#[derive(Debug)]
pub struct Selectors {
    state: Mutex<State>,
    /// Notified when a grant with a selector is reconciled before an answer is known.
    wanted: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was asked, since no grant had a selector.
    NotAsked,
    /// The policy refused the label at this time.
    Guarded(Instant),
    Off(String),
}

/// The result of one dry run.
#[derive(Debug)]
pub enum DryRunResult {
    /// The policy refused the label.
    Refused,
    /// The policy is not in force, or it cannot be asked about.
    NotRefused(String),
    /// The API server did not answer.
    Failed(String),
}

impl Default for Selectors {
    fn default() -> Self {
        Self {
            state: Mutex::new(State::NotAsked),
            wanted: Notify::new(),
        }
    }
}

impl Selectors {
    /// The setting for compilations.
    pub fn setting(&self) -> AgentSelectors {
        match &*self.state.lock() {
            State::Guarded(_) => AgentSelectors::Guarded,
            State::NotAsked => AgentSelectors::Off("the API server was not asked yet".to_owned()),
            State::Off(why) => AgentSelectors::Off(why.clone()),
        }
    }

    /// True while no answer is known. Then it also requests one.
    pub fn is_open(&self) -> bool {
        let is_open = *self.state.lock() == State::NotAsked;
        if is_open {
            self.wanted.notify_one();
        }
        is_open
    }

    /// Waits until [`Self::is_open`] has requested an answer.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Forgets the answers, as a new leader begins, or the last grant with a selector is gone.
    pub fn forget(&self) {
        *self.state.lock() = State::NotAsked;
    }

    /// Takes an answer; returns whether the setting for compilations changed.
    pub fn answered(&self, answer: DryRunResult, now: Instant) -> bool {
        let before = self.setting();
        let mut state = self.state.lock();
        *state = match (answer, &*state) {
            (DryRunResult::Refused, _) => State::Guarded(now),
            (DryRunResult::NotRefused(why), _) => State::Off(why),
            (DryRunResult::Failed(_), State::Guarded(at))
                if now.duration_since(*at) < REFUSAL_VALID =>
            {
                State::Guarded(*at)
            }
            (DryRunResult::Failed(why), _) => State::Off(format!(
                "the API server did not say whether an admission policy protects the labels: {why}"
            )),
        };
        drop(state);
        before != self.setting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes answers at seconds; checks whether selectors are on, and whether that changed.
    #[track_caller]
    fn check(answers: Vec<(u64, DryRunResult, bool, bool)>) {
        let selectors = Selectors::default();
        let begun = Instant::now();
        assert_ne!(selectors.setting(), AgentSelectors::Guarded);
        for (second, answer, is_on, changed) in answers {
            let what = format!("{answer:?} after {second} s");
            let now = begun + Duration::from_secs(second);
            assert_eq!(selectors.answered(answer, now), changed, "{what}");
            let found = selectors.setting() == AgentSelectors::Guarded;
            assert_eq!(found, is_on, "{what}");
            assert!(!selectors.is_open(), "{what}");
        }
        selectors.forget();
        assert!(selectors.is_open());
        assert_ne!(selectors.setting(), AgentSelectors::Guarded);
    }

    #[test]
    fn only_the_policys_refusal_turns_selectors_on() {
        let not_refused = || DryRunResult::NotRefused("x".to_owned());
        let failed = || DryRunResult::Failed("x".to_owned());
        check(vec![
            (0, failed(), false, true),
            (1, not_refused(), false, true),
            (6, not_refused(), false, false),
        ]);
        check(vec![
            (0, not_refused(), false, true),
            (5, DryRunResult::Refused, true, true),
            (10, DryRunResult::Refused, true, false),
            (15, not_refused(), false, true),
        ]);
        // Failed questions keep the last refusal for a minute.
        check(vec![
            (0, DryRunResult::Refused, true, true),
            (30, DryRunResult::Refused, true, false),
            (89, failed(), true, false),
            (90, failed(), false, true),
            (91, DryRunResult::Refused, true, true),
        ]);
    }
}
