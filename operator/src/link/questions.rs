//! Takes a mediator's question to persons.
//!
//! Here: the request, its bounds, and the words for its outcome. Not here: what becomes of a question (the
//! controller's `approvals`).
//!
//! Invariant: a question is of the pod that the token names, whatever it says.

use std::collections::HashMap;

use axum::extract::Request;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{LONGEST_QUESTION, Question, QuestionAnswer, QuestionRefusal};

use super::request::{Door, Refusal, read};

/// Limits the questions of one pod that are in work.
const AT_ONCE: usize = 2;

/// The pod that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub pod: String,
    pub pod_uid: String,
    pub agent: ObjectRef,
}

/// Reasons why nothing became of a question. The mediator may ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    Malformed,
    NotLeading,
    NotSynced,
    NotCompiled,
    /// Too many questions wait for their turn.
    Busy,
    /// The API server does not answer, or refuses.
    Unavailable,
}

impl From<AskError> for Refusal {
    fn from(why: AskError) -> Self {
        match why {
            AskError::Malformed => Refusal::Malformed,
            AskError::NotLeading => Refusal::NotLeading,
            AskError::NotSynced => Refusal::NotSynced,
            AskError::NotCompiled => Refusal::NotCompiled,
            AskError::Busy => Refusal::Busy,
            AskError::Unavailable => Refusal::Unavailable,
        }
    }
}

/// Makes a ToolApproval of a question.
pub type Ask =
    dyn Fn(Asker, Question) -> BoxFuture<'static, Result<QuestionAnswer, AskError>> + Send + Sync;

/// The number of questions in work, by pod.
#[derive(Debug, Default)]
pub struct QuestionsInWork(Mutex<HashMap<String, usize>>);

/// A question in work; it ends when this value is dropped.
struct QuestionInWork<'a> {
    in_work: &'a QuestionsInWork,
    pod: String,
}

impl QuestionsInWork {
    fn begin(&self, pod: &str) -> Result<QuestionInWork<'_>, Refusal> {
        let mut pods = self.0.lock();
        let count = pods.entry(pod.to_owned()).or_default();
        if *count >= AT_ONCE {
            return Err(Refusal::Busy);
        }
        *count += 1;
        Ok(QuestionInWork {
            in_work: self,
            pod: pod.to_owned(),
        })
    }
}

impl Drop for QuestionInWork<'_> {
    fn drop(&mut self) {
        let mut pods = self.in_work.0.lock();
        if let Some(count) = pods.get_mut(&self.pod) {
            *count -= 1;
            if *count == 0 {
                pods.remove(&self.pod);
            }
        }
    }
}

pub(super) async fn answer(
    door: Door<'_>,
    in_work: &QuestionsInWork,
    bodies: &Semaphore,
    ask: &Ask,
    request: Request,
) -> Result<QuestionAnswer, Refusal> {
    let (sender, body) = door.identify(request).await?;
    let _turn = in_work.begin(&sender.bearer.uid)?;
    let question: Question = read(bodies, body, LONGEST_QUESTION).await?;
    let asker = Asker {
        pod: sender.bearer.pod.clone(),
        pod_uid: sender.bearer.uid.clone(),
        agent: sender.agent,
    };
    let answer = ask(asker, question).await?;
    // The pod may have been deleted while its question waited.
    door.pod(&sender.bearer)?;
    Ok(answer)
}

/// The word for an answer in the metrics.
pub(super) fn outcome(answer: &QuestionAnswer) -> &'static str {
    match answer {
        QuestionAnswer::Asked(_) => "asked",
        QuestionAnswer::Refused { why, .. } => match why {
            QuestionRefusal::TooManyPending => "too_many_pending",
            QuestionRefusal::TooManyDenied => "too_many_denied",
            QuestionRefusal::NotGranted => "not_granted",
            QuestionRefusal::NotProtected => "not_protected",
            QuestionRefusal::NoTerminal => "no_terminal",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_two_questions_in_work() {
        let in_work = QuestionsInWork::default();
        let (first, second) = (in_work.begin("p"), in_work.begin("p"));
        assert!(first.is_ok() && second.is_ok() && in_work.begin("q").is_ok());
        assert!(in_work.begin("p").is_err());
        drop(first);
        assert!(in_work.begin("p").is_ok());
        drop(second);
        assert!(in_work.0.lock().is_empty());
    }
}
