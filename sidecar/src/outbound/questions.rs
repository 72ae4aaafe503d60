//! Asks the operator's leader about calls that need an approval.
//!
//! A question is repeated until it has an answer or is over: the operator makes one ToolApproval of it,
//! however often it is asked. The decision comes over the link.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use thiserror::Error;
use toolcrib_bounds::chain;
use toolcrib_manifest::{Question, QuestionAnswer, QuestionRefusal, names};
use toolcrib_serve::part_of;

use super::operator::{OperatorClient, OperatorError, OperatorRequest};
use crate::approvals::{Approvals, question_body};
use crate::config::CurrentConfig;

/// Limits the questions that are sent at the same time.
const AT_ONCE: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer: names and a message.
const MAX_ANSWER: usize = 64 * 1024;
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
enum AskError {
    #[error("the files name no operator")]
    NoLink,
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the operator's answer cannot be decoded")]
    Answer(#[source] serde_json::Error),
}

/// The task that asks.
#[derive(Debug)]
pub struct Asker {
    pub current: Arc<CurrentConfig>,
    pub approvals: Arc<Approvals>,
    pub operator: OperatorClient,
}

impl Asker {
    pub async fn run(self) {
        let mut changes = self.approvals.subscribe();
        let mut asking: BTreeSet<String> = BTreeSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            changes.mark_unchanged();
            let room = AT_ONCE.saturating_sub(asking.len());
            let next = self.approvals.unconfirmed(room, |id| asking.contains(id));
            for question in next {
                asking.insert(question.id.clone());
                running.push(self.ask(question));
            }
            tokio::select! {
                Some(id) = running.next(), if !running.is_empty() => {
                    asking.remove(&id);
                }
                // Err: no question can follow.
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Asks until there is an answer, or the question is over. Returns the question's id.
    async fn ask(&self, question: Question) -> String {
        let mut backoff = FIRST_BACKOFF;
        while self.approvals.is_unconfirmed(&question.id) {
            match self.post(&question).await {
                Ok(answer) => self.approvals.answered(&question.id, answer),
                Err(AskError::Operator(OperatorError::Status(
                    status @ (400 | 404 | 405 | 413),
                ))) => {
                    let answer = QuestionAnswer::Refused {
                        why: QuestionRefusal::NotGranted,
                        message: not_taken(status).to_owned(),
                    };
                    self.approvals.answered(&question.id, answer);
                }
                Err(error) => {
                    self.operator.reconnect();
                    let error = chain(&error);
                    tracing::warn!(
                        tool = question.tool,
                        error,
                        "question not asked, trying again"
                    );
                    tokio::time::sleep(backoff / 2 + part_of(backoff / 2)).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
        }
        question.id
    }

    async fn post(&self, question: &Question) -> Result<QuestionAnswer, AskError> {
        let now = self.current.now();
        let config = now.load_state.link().ok_or(AskError::NoLink)?;
        let request = OperatorRequest {
            path: names::QUESTIONS_PATH,
            body: question_body(question),
            timeout: TIMEOUT,
            max_answer: MAX_ANSWER,
        };
        let answer = self.operator.post(config, request).await?;
        serde_json::from_slice(&answer).map_err(AskError::Answer)
    }
}

/// The message about an operator of another release, which gives the same answer however often it is
/// asked.
fn not_taken(status: u16) -> &'static str {
    match status {
        400 | 413 => "the operator cannot read the question about this call",
        _ => "the operator takes no questions about calls",
    }
}
