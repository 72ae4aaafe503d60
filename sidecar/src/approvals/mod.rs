//! Approvals: the questions of this pod about calls, and the decisions on them.
//!
//! [`question`] makes the question about a call; [`earlier`] reads what an earlier process of this pod
//! left in the record; [`taken`] is an approval that its call is using. Not here: the wait of a call
//! ([`crate::turn`]), the requests to the operator ([`crate::outbound`]), and the rules of what a decision
//! changes ([`toolcrib_mediation::Questions`]).
//!
//! Invariants: a question is on disk before the operator hears of it, so that a restart knows it. An
//! approval is given out once, and is used from the intent line on that names it. An approval whose question
//! is not known here is never used.

mod earlier;
mod question;
mod taken;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use toolcrib_bounds::chain;
use toolcrib_manifest::{
    AgentFile, ApprovalUse, Decision, LONGEST_REASON, OpenQuestion, Question, QuestionAnswer,
    QuestionRefusal, Verdict,
};
use toolcrib_mediation::{
    ApprovalNeed, Denial, Ending, ManagedCall, Questions, Refusal, ResultCode, Standing,
    ToolFailure, WaitingCall,
};
use toolcrib_record::{ApprovalName, DecisionLine, DecisionVerdict, Line};

use crate::config::CurrentConfig;
use crate::history::line::{LineContext, scrubbed};
use crate::history::{History, TurnLines};
use crate::metrics::Metrics;
pub use question::body as question_body;
use question::{NewQuestion, ReviewedCall};
pub use taken::TakenApproval;

/// Time for which a question stays open.
pub const OPEN_FOR: Duration = Duration::from_hours(1);

/// The questions of this pod. All requests share it.
#[derive(Debug)]
pub struct Approvals {
    /// `None`: without a link nobody can be asked.
    pod: Option<Pod>,
    state: Mutex<State>,
    /// Counts the changes of questions and their states.
    changes: watch::Sender<u64>,
    /// Counts the changes of [`Self::report`].
    reports: watch::Sender<u64>,
    began: Instant,
    history: Arc<History>,
    current: Arc<CurrentConfig>,
    metrics: Arc<Metrics>,
}

/// This pod, as the link's token names it.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub uid: Arc<str>,
}

/// The end of a question, or its approval.
struct End<'a> {
    verdict: DecisionVerdict,
    approval: Option<ApprovalName>,
    decided_by: &'a [String],
    reason: &'a str,
}

impl<'a> End<'a> {
    /// An end without a person.
    fn new(verdict: DecisionVerdict, reason: &'a str) -> Self {
        Self {
            verdict,
            approval: None,
            decided_by: &[],
            reason,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    questions: Questions,
    /// The open questions that the operator has not confirmed, by id.
    unconfirmed: BTreeMap<String, Question>,
}

impl Approvals {
    /// Opens the questions again that the record in `dir` shows as open.
    pub fn open(
        pod: Option<Pod>,
        dir: &Path,
        history: Arc<History>,
        current: Arc<CurrentConfig>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let mut state = State::default();
        if let Some(pod) = &pod {
            match earlier::read(dir, &pod.uid, Timestamp::now()) {
                Ok((earlier, mut unconfirmed)) => {
                    state.questions.restore(earlier, Duration::ZERO);
                    let mut standing = |id: &str| state.questions.standing(id, Duration::ZERO);
                    unconfirmed.retain(|id, _| matches!(standing(id), Standing::Open { .. }));
                    state.unconfirmed = unconfirmed;
                }
                // They are never used then, and the operator withdraws them.
                Err(error) => tracing::warn!(
                    error = error.to_string(),
                    "record not read, questions of an earlier process are dropped"
                ),
            }
        }
        Self {
            pod,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            reports: watch::Sender::new(0),
            began: Instant::now(),
            history,
            current,
            metrics,
        }
    }

    /// Returns a receiver that wakes when a question or its state changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns a receiver that wakes when the questions of the next report change from this side.
    pub fn subscribe_report(&self) -> watch::Receiver<u64> {
        self.reports.subscribe()
    }

    /// Number of questions that wait for a decision or a call.
    pub fn open_count(&self) -> usize {
        self.lock().questions.open_count(self.now())
    }

    /// Finds the question about this call, whatever its need, or asks a new one.
    pub fn meet(
        &self,
        who: LineContext<'_>,
        agent: &AgentFile,
        call: &ManagedCall,
        need: &ApprovalNeed,
    ) -> Result<WaitingCall, ToolFailure> {
        let Some(pod) = self.pod.as_ref().filter(|_| self.has_link()) else {
            let (tool, need) = (call.name().to_owned(), Box::new(need.clone()));
            return Err(Denial::NeedsApproval { tool, need }.into());
        };
        let reviewed = ReviewedCall::new(call, agent, &pod.uid)?;
        let mut state = self.lock();
        let found = state.questions.find(
            call.name(),
            call.digest(),
            |id| reviewed.digest(id),
            self.now(),
        );
        if let Some(found) = found {
            return Ok(found.clone());
        }
        if !state.questions.has_room(self.now()) {
            return Err(ToolFailure::refused(
                ResultCode::TooManyPending,
                format!(
                    "{} was not called: too many calls of this agent wait for approvals",
                    call.name()
                ),
            ));
        }
        let scrubber = self.current.scrubber();
        let need = need.for_question();
        let NewQuestion { question, line } =
            reviewed.ask(who, &need, &scrubber, Timestamp::now())?;
        // Under the lock, so that the line precedes every line of a call that uses the approval.
        self.history.intent(line).map_err(|error| {
            tracing::error!(
                tool = call.name(),
                error = chain(&error),
                "question not written, call refused"
            );
            ToolFailure::refused(
                ResultCode::RequestFailed,
                format!(
                    "{} was not called, since its question cannot be recorded",
                    call.name()
                ),
            )
        })?;
        let waiting = WaitingCall {
            id: question.id.clone(),
            digest: question.call_digest.clone(),
            tool: question.tool.clone(),
            entry: question.entry.clone(),
            need,
        };
        state
            .questions
            .open_one(waiting.clone(), OPEN_FOR, self.now());
        state.unconfirmed.insert(question.id.clone(), question);
        drop(state);
        self.report_changed();
        Ok(waiting)
    }

    pub fn standing(&self, id: &str) -> Standing {
        self.lock().questions.standing(id, self.now())
    }

    /// Gives out the approval of a question, once.
    pub fn take(self: &Arc<Self>, id: &str) -> Option<TakenApproval> {
        let approval = self.lock().questions.take(id, self.now())?;
        Some(TakenApproval::new(self, id, approval))
    }

    /// Returns at most `most` questions that the operator has not confirmed, without those `but`.
    pub fn unconfirmed(&self, most: usize, but: impl Fn(&str) -> bool) -> Vec<Question> {
        let state = self.lock();
        let unconfirmed = state.unconfirmed.values().filter(|it| !but(&it.id));
        unconfirmed.take(most).cloned().collect()
    }

    pub fn is_unconfirmed(&self, id: &str) -> bool {
        self.lock().unconfirmed.contains_key(id)
    }

    /// Takes the operator's answer to a question.
    pub fn answered(&self, id: &str, answer: QuestionAnswer) {
        let mut state = self.lock();
        if state.unconfirmed.remove(id).is_none() {
            return;
        }
        match answer {
            QuestionAnswer::Asked(approval) => state.questions.confirm(id, approval),
            QuestionAnswer::Refused { why, message } => {
                let message = toolcrib_bounds::cut(&message, LONGEST_REASON).into_owned();
                let ending = Ending::Refused(Refusal {
                    code: code(why),
                    message: message.clone(),
                });
                if let Some(call) = state.questions.end(id, ending, self.now()) {
                    self.record_end(&call, End::new(DecisionVerdict::Refused, &message));
                }
            }
        }
        drop(state);
        self.changed();
    }

    /// Ends an open question from this side.
    pub fn withdraw(&self, id: &str, reason: &str) {
        let mut state = self.lock();
        let ended = state.questions.withdraw(id, self.now());
        state.unconfirmed.remove(id);
        if let Some(call) = ended {
            self.record_end(&call, End::new(DecisionVerdict::Withdrawn, reason));
            drop(state);
            self.report_changed();
        }
    }

    /// The questions for the link's report.
    pub fn report(&self) -> Vec<OpenQuestion> {
        self.lock().questions.report(self.now())
    }

    /// Takes the decisions of the link's answer to a report.
    pub fn learn(&self, reported: &[OpenQuestion], decisions: &[Decision]) {
        let mut state = self.lock();
        let taken = state.questions.decide(decisions, self.now());
        for (call, decision) in &taken {
            state.unconfirmed.remove(&call.id);
            let verdict = match decision.verdict {
                Verdict::Approved => DecisionVerdict::Approved,
                Verdict::Denied => DecisionVerdict::Denied,
                Verdict::Expired => DecisionVerdict::Expired,
                Verdict::Withdrawn => DecisionVerdict::Withdrawn,
            };
            let approval = decision.approval.as_ref().map(|it| ApprovalName {
                name: it.name.clone(),
                uid: it.uid.clone(),
            });
            let reason = toolcrib_bounds::cut(&decision.reason, LONGEST_REASON);
            let end = End {
                approval,
                decided_by: &decision.decided_by,
                ..End::new(verdict, &reason)
            };
            self.record_end(call, end);
        }
        state.questions.acknowledged(reported, decisions);
        drop(state);
        if !taken.is_empty() {
            self.changed();
        }
    }

    fn used(&self, id: &str, used: ApprovalUse, code: Option<ResultCode>) {
        self.lock().questions.used(id, used, code, self.now());
        self.report_changed();
    }

    /// Locks the questions, and writes the ends of those whose time is up.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        for call in state.questions.take_expired(self.now()) {
            state.unconfirmed.remove(&call.id);
            self.record_end(&call, End::new(DecisionVerdict::Expired, ""));
        }
        state
    }

    /// Counts the end of a question, or its approval, and writes its line. Without the line a restart opens
    /// the question again, so an error is only logged.
    fn record_end(&self, call: &WaitingCall, end: End<'_>) {
        let End {
            verdict,
            approval,
            decided_by,
            reason,
        } = end;
        self.metrics.decided(verdict);
        let line = Line::Decision(DecisionLine {
            pod: self.pod.as_ref().map_or("", |pod| &pod.name).into(),
            pod_uid: self.pod.as_ref().map(|pod| (&*pod.uid).into()),
            timestamp: Timestamp::now().to_string().into(),
            question: call.id.as_str().into(),
            call_digest: call.digest.as_str().into(),
            name: call.tool.as_str().into(),
            verdict,
            approval,
            decided_by: decided_by.into(),
            reason: reason.into(),
            chain: None,
            seq: None,
        });
        let without = scrubbed(&line, &self.current.scrubber());
        let lines = TurnLines {
            without,
            bodies: Vec::new(),
        };
        if let Err(error) = self.history.turn(lines) {
            tracing::error!(
                error = chain(&error),
                "record line of a decision not written"
            );
        }
    }

    fn has_link(&self) -> bool {
        self.current.now().load_state.link().is_some()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn report_changed(&self) {
        self.reports.send_modify(|count| *count += 1);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

fn code(why: QuestionRefusal) -> ResultCode {
    match why {
        QuestionRefusal::TooManyPending => ResultCode::TooManyPending,
        QuestionRefusal::TooManyDenied => ResultCode::TooManyDenied,
        QuestionRefusal::NotGranted
        | QuestionRefusal::NotProtected
        | QuestionRefusal::NoTerminal => ResultCode::PermissionDenied,
    }
}
