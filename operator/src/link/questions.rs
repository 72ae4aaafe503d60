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
pub enum NotAsked {
    Malformed,
    NotLeading,
    NotSynced,
    NotCompiled,
    /// Too many questions wait for their turn.
    Busy,
    /// The API server does not answer, or refuses.
    Unavailable,
}

impl From<NotAsked> for Refusal {
    fn from(why: NotAsked) -> Self {
        match why {
            NotAsked::Malformed => Refusal::Malformed,
            NotAsked::NotLeading => Refusal::NotLeading,
            NotAsked::NotSynced => Refusal::NotSynced,
            NotAsked::NotCompiled => Refusal::NotCompiled,
            NotAsked::Busy => Refusal::Busy,
            NotAsked::Unavailable => Refusal::Unavailable,
        }
    }
}

/// Makes a ToolApproval of a question.
pub type Ask =
    dyn Fn(Asker, Question) -> BoxFuture<'static, Result<QuestionAnswer, NotAsked>> + Send + Sync;

/// The number of questions in work, by pod.
#[derive(Debug, Default)]
pub struct Asking(Mutex<HashMap<String, usize>>);

/// A question in work; it ends when this value is dropped.
struct Turn<'a> {
    asking: &'a Asking,
    pod: String,
}

impl Asking {
    fn begin(&self, pod: &str) -> Result<Turn<'_>, Refusal> {
        let mut pods = self.0.lock();
        let count = pods.entry(pod.to_owned()).or_default();
        if *count >= AT_ONCE {
            return Err(Refusal::Busy);
        }
        *count += 1;
        Ok(Turn {
            asking: self,
            pod: pod.to_owned(),
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut pods = self.asking.0.lock();
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
    asking: &Asking,
    bodies: &Semaphore,
    ask: &Ask,
    request: Request,
) -> Result<QuestionAnswer, Refusal> {
    let (sender, body) = door.identify(request).await?;
    let _turn = asking.begin(&sender.bearer.uid)?;
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
        let asking = Asking::default();
        let (first, second) = (asking.begin("p"), asking.begin("p"));
        assert!(first.is_ok() && second.is_ok() && asking.begin("q").is_ok());
        assert!(asking.begin("p").is_err());
        drop(first);
        assert!(asking.begin("p").is_ok());
        drop(second);
        assert!(asking.0.lock().is_empty());
    }
}
