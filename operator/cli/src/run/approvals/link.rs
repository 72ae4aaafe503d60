//! The operator's side of the link, for the mediator of this run: takes its reports and questions, and
//! gives it the decisions.
//!
//! Level-triggered, as the operator's: an answer has each decision until a report confirms an answer that
//! had it. Nothing is ever revoked, since the files of a run do not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use toolcrib_compile::{CallRequirements, Compilation, ToolRequirements, tool_requirements};
use toolcrib_manifest::{
    AgentPresence, LONGEST_REPORT, LinkDown, LinkUp, Question, QuestionAnswer, QuestionRefusal,
    SecretText, names,
};

use super::person;
use super::terminal::Terminal;
use super::{Decisions, WaitingQuestion};

/// Limits the time for which a report is held, whatever the mediator asks for.
const LONGEST_HOLD: Duration = Duration::from_secs(30);

pub struct Link {
    /// SHA-256 of the header with the token.
    header: [u8; 32],
    /// The tools whose calls may need an approval, by canonical name.
    tools: BTreeMap<String, ToolRequirements>,
    /// The ids of the questions so far. The mediator repeats a question whose answer it did not get.
    known: Mutex<BTreeSet<String>>,
    asked: mpsc::Sender<WaitingQuestion>,
    decisions: Arc<watch::Sender<Decisions>>,
}

impl Link {
    pub fn new(
        token: &SecretText,
        compilation: &Compilation,
        asked: mpsc::Sender<WaitingQuestion>,
        decisions: Arc<watch::Sender<Decisions>>,
    ) -> Self {
        Self {
            header: Sha256::digest(format!("Bearer {}", token.expose())).into(),
            tools: tool_requirements(compilation),
            known: Mutex::default(),
            asked,
            decisions,
        }
    }

    pub async fn serve(self, listener: TcpListener) {
        let link = Arc::new(self);
        let router = Router::new()
            .route(names::LINK_PATH, post(report))
            .route(names::QUESTIONS_PATH, post(question))
            .layer(DefaultBodyLimit::max(LONGEST_REPORT))
            .layer(middleware::from_fn_with_state(link.clone(), authenticate))
            .with_state(link);
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("warning: nobody can be asked for approvals any more: {error}");
        }
    }

    /// Puts a question into the queue of the terminal.
    fn take(&self, question: Question) -> QuestionAnswer {
        // A set of texts stays usable, whatever panicked.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let approval = person::approval(&question);
        if known.contains(&question.id) {
            return QuestionAnswer::Asked(approval);
        }
        let Some(requirements) = self.requirements(&question) else {
            return refused(
                QuestionRefusal::NotGranted,
                "it is not given to the agent with an approval",
            );
        };
        if let Err(why) = Terminal::open() {
            let message = format!("it needs an approval, and {why}");
            return refused(QuestionRefusal::NoTerminal, &message);
        }
        let id = question.id.clone();
        match self
            .asked
            .try_send(WaitingQuestion::new(question, requirements))
        {
            Ok(()) => {
                known.insert(id);
                QuestionAnswer::Asked(approval)
            }
            Err(_) => refused(
                QuestionRefusal::TooManyPending,
                "it needs an approval, and too many calls wait for an answer on the terminal",
            ),
        }
    }

    /// Who may decide in a cluster, by the files. Entry digests are not compared: `--at` changes them.
    fn requirements(&self, question: &Question) -> Option<CallRequirements> {
        let tool = self.tools.get(&question.tool)?;
        tool.for_question(&tool.entry_digest, &question.rules).ok()
    }
}

fn refused(why: QuestionRefusal, message: &str) -> QuestionAnswer {
    QuestionAnswer::Refused {
        why,
        message: message.to_owned(),
    }
}

/// Refuses requests without the token, before their bodies are read.
async fn authenticate(State(link): State<Arc<Link>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION);
    let header = header.map(|header| Sha256::digest(header.as_bytes()).into());
    match header == Some(link.header) {
        true => next.run(request).await,
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn question(
    State(link): State<Arc<Link>>,
    Json(question): Json<Question>,
) -> Json<QuestionAnswer> {
    Json(link.take(question))
}

/// Answers a report: at once if there is a newer answer than the mediator has seen, otherwise when there
/// is one, or when the time is up.
async fn report(State(link): State<Arc<Link>>, Json(report): Json<LinkUp>) -> Json<LinkDown> {
    link.decisions.send_if_modified(|all| {
        all.unconfirmed.retain(|(seq, _)| *seq > report.seen);
        false
    });
    let hold = Duration::from_millis(report.hold_ms).min(LONGEST_HOLD);
    let mut decisions = link.decisions.subscribe();
    let newer = decisions.wait_for(|all| all.seq > report.seen);
    // Err: the time is up, and the answer is the same.
    drop(timeout(hold, newer).await);
    let all = link.decisions.borrow();
    Json(LinkDown {
        seq: all.seq,
        want: None,
        allowlist: None,
        agent: AgentPresence::Present,
        budgets: Vec::new(),
        rates: Vec::new(),
        decisions: all.unconfirmed.iter().map(|(_, it)| it.clone()).collect(),
    })
}
