//! Handles the messages of the link: records a mediator's report, and answers; takes its questions.
//!
//! If the sender has the latest answer in force, the request is held until there is a newer one, or
//! for as long as the sender asked. Not here: authentication ([`super::request`]), and the content of an
//! answer ([`super::answers`]).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{self, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_manifest::{LONGEST_REPORT, LinkUp};
use toolcrib_serve::part_of;

use super::answers::LatestAnswer;
use super::long_polls::LongPolls;
use super::questions::{self, Ask, QuestionsInWork};
use super::reports::{ReportChange, Sender};
use super::request::{BODIES_KIB, Door, Refusal, read};
use super::review::Reviewer;
use super::state::State;
use crate::approvals::state::Approvals;
use crate::leadership::Leadership;
use crate::listen::Bounds;
use crate::metrics::{Metrics, Outcome};
use crate::objects::stores::Stores;

/// Limit of the time for which a request is held, and so of the time between two reports of a mediator
/// that reaches the operator; shorter than the idle timeout of proxies.
pub const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// Bounds of the link's listener.
pub const BOUNDS: Bounds = Bounds {
    // Twice the supported number of pods; a mediator needs one connection.
    known: 20_000,
    // A node's pods may come from one address; no node runs more than a few hundred.
    known_of_one_address: 2_000,
    // All mediators connect to a new leader at once, and count here until their TokenReviews end.
    // Mediators over the bound try again.
    strangers: 2_048,
    strangers_of_one_address: 32,
    // Time for a TLS handshake, the headers of a request, and a TokenReview.
    introduction: Duration::from_secs(20),
    idle: Duration::from_secs(10),
    // A token has 8 KiB at most.
    head: 32 * 1024,
    lifetime: Some(Duration::from_secs(600)),
};

/// The link, and the parts of the leader that it uses.
pub struct Link {
    pub leadership: Arc<Leadership>,
    pub stores: Stores,
    pub state: Arc<State>,
    pub metrics: Metrics,
    pub reviewer: Reviewer,
    /// The time at which this leader began.
    pub started: jiff::Timestamp,
    pub approvals: Arc<Approvals>,
    /// Called after each report.
    pub on_report: Box<OnReport>,
    /// Takes a question.
    pub ask: Box<Ask>,
}

/// Called with the agent whose mediator has reported, what the report changes, and the ToolApprovals on
/// which it has news.
pub type OnReport = dyn Fn(&ObjectRef, ReportChange, Vec<ObjectRef>) + Send + Sync;

/// One listener's state.
struct Listener {
    link: Link,
    long_polls: Arc<LongPolls>,
    bodies: Semaphore,
    in_work: QuestionsInWork,
}

impl Link {
    fn door(&self) -> Door<'_> {
        Door {
            leadership: &self.leadership,
            stores: &self.stores,
            reviewer: &self.reviewer,
            started: self.started,
        }
    }

    pub fn router(self) -> Router {
        let listener = Listener {
            long_polls: LongPolls::new(self.metrics.link_held.clone()),
            bodies: Semaphore::new(BODIES_KIB),
            in_work: QuestionsInWork::default(),
            link: self,
        };
        Router::new()
            .route(names::LINK_PATH, post(message))
            .route(names::QUESTIONS_PATH, post(question))
            .with_state(Arc::new(listener))
    }
}

async fn message(
    extract::State(listener): extract::State<Arc<Listener>>,
    request: Request,
) -> Response {
    let result = answer(&listener, request).await;
    let outcome = match &result {
        Ok(_) => "taken",
        Err(refusal) => refusal.name(),
    };
    let reports = &listener.link.metrics.link_reports;
    reports.get_or_create(&Outcome { outcome }).inc();
    respond(result)
}

async fn question(
    extract::State(listener): extract::State<Arc<Listener>>,
    request: Request,
) -> Response {
    let link = &listener.link;
    let (in_work, bodies) = (&listener.in_work, &listener.bodies);
    let result = questions::answer(link.door(), in_work, bodies, &link.ask, request).await;
    let outcome = match &result {
        Ok(answer) => questions::outcome(answer),
        Err(refusal) => refusal.name(),
    };
    link.metrics
        .questions
        .get_or_create(&Outcome { outcome })
        .inc();
    let body = |answer| serde_json::to_vec(&answer).expect("strings are JSON");
    respond(result.map(body))
}

fn respond(result: Result<Vec<u8>, Refusal>) -> Response {
    match result {
        Ok(down) => ([(header::CONTENT_TYPE, "application/json")], down).into_response(),
        // Closes the connection: the Service may lead to another replica by now, and a client that
        // is not authenticated needs no second request.
        Err(refusal) => {
            let close = [(header::CONNECTION, "close")];
            (refusal.status(), close, refusal.name()).into_response()
        }
    }
}

async fn answer(listener: &Listener, request: Request) -> Result<Vec<u8>, Refusal> {
    let link = &listener.link;
    let (sender, body) = link.door().identify(request).await?;
    let (agent, pod) = (&sender.agent, &*sender.bearer.uid);
    let up: LinkUp = read(&listener.bodies, body, LONGEST_REPORT).await?;
    if !up.questions.is_empty() && !link.approvals.synced() {
        // Without a decision in the answer, the mediator would take its questions for settled.
        return Err(Refusal::NotSynced);
    }
    let report_sender = Sender {
        uid: pod.to_owned(),
        pod: sender.bearer.pod.clone(),
        agent: agent.clone(),
        older_than_leader: sender.older_than_leader,
    };
    let change = link.state.report(&report_sender, &up);
    let news = link.approvals.report(agent, pod, &up.questions);
    (link.on_report)(agent, change, news);

    let present = link.stores.agents.get(&agent.namespace, &agent.name);
    let mut answers = link.state.subscribe(agent, present.is_some());
    let (seen, hold) = (up.seen, Duration::from_millis(up.hold_ms));
    drop(up);
    let decided = link.approvals.decided(agent, pod);
    next_answer(&listener.long_polls, pod, &mut answers, seen, hold, decided).await?;
    // Leadership and pod are checked again, since they may have changed while the request was held.
    link.door().may_answer()?;
    link.door().pod(&sender.bearer)?;
    let answer = answers.borrow();
    let answer = answer.as_ref().ok_or(Refusal::NotCompiled)?;
    let others = link.state.others(agent, pod);
    let decisions = link.approvals.decisions_for(agent, pod);
    Ok(answer.body(&others, &decisions))
}

/// Waits until there is an answer that the pod does not have in force, until a question of the pod is
/// decided, or until the time is up and the latest answer is repeated.
async fn next_answer(
    long_polls: &Arc<LongPolls>,
    pod: &str,
    answers: &mut watch::Receiver<LatestAnswer>,
    seen: u64,
    hold: Duration,
    decided: impl Future<Output = ()>,
) -> Result<(), Refusal> {
    let hold = hold.min(LONGEST_HOLD);
    // Jitter of up to a quarter, so that requests that arrived together do not return together.
    let until = Instant::now() + (hold - part_of(hold / 4));
    let mut long_poll = long_polls.begin(pod);
    let next = answers.wait_for(|answer| answer.as_ref().is_some_and(|answer| answer.seq != seen));
    tokio::select! {
        // A newer answer comes first, so that a request with a hold of zero gets it too.
        biased;
        next = next => next.map(drop).map_err(|_| Refusal::NotLeading),
        () = decided => Ok(()),
        () = long_poll.superseded() => Err(Refusal::Superseded),
        () = tokio::time::sleep_until(until) => Ok(()),
    }
}
