//! Approvals without a cluster: `run` answers the link of its own mediator, and asks on the terminal.
//!
//! Reading order: [`terminal`] (one question and one answer on `/dev/tty`); [`person`] (a decision on each
//! question, one after the other); [`link`] (the two requests of the mediator). Not here: whether a call
//! needs an approval and how long it waits, which the mediator decides as in a pod.
//!
//! Invariants: nothing but a line on the controlling terminal approves a call, and every other end of a
//! question denies it. The link is on this machine, and its token is a file that only this user can read.
//! `docs/decisions/2026-11-27-run-answers-its-own-link.md` says why the link is used.

mod link;
mod person;
mod terminal;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolcrib_compile::{CallRequirements, Compilation, ObjectRef};
use toolcrib_manifest::{Decision, LinkConfig, MOST_QUESTIONS, Question, SecretText, names};

use link::Link;

/// The address and the token of the mediator's link.
pub struct LocalLink {
    listener: TcpListener,
    address: SocketAddr,
    token: SecretText,
}

/// The tasks that answer the link and ask the person.
pub struct ApprovalTasks(JoinSet<()>);

/// A question that waits for its turn at the terminal.
struct WaitingQuestion {
    question: Question,
    requirements: CallRequirements,
    /// The mediator takes no decision after this time.
    until: Instant,
}

/// The decisions that the mediator has not confirmed yet.
struct Decisions {
    /// The number of the latest answer of the link.
    seq: u64,
    /// Each with the number of the first answer that has it.
    unconfirmed: Vec<(u64, Decision)>,
}

impl Decisions {
    fn push(&mut self, decision: Decision) {
        self.seq += 1;
        self.unconfirmed.push((self.seq, decision));
    }
}

impl LocalLink {
    pub fn open(agent: &ObjectRef, random: [u8; 32]) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on this machine")?;
        let address = listener.local_addr().context("no address of a listener")?;
        Ok(Self {
            listener,
            address,
            token: token(agent, random),
        })
    }

    pub fn config(&self) -> LinkConfig {
        LinkConfig {
            audience: names::LINK_AUDIENCE.to_owned(),
            ca: String::new(),
            url: format!("http://{}", self.address),
        }
    }

    pub fn token(&self) -> &SecretText {
        &self.token
    }

    /// Starts to answer. Must be called within a runtime.
    pub fn start(self, compilation: Compilation) -> anyhow::Result<ApprovalTasks> {
        self.listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(self.listener))
            .context("cannot listen on this machine")
            .map(|listener| {
                let (asked, questions) = mpsc::channel(MOST_QUESTIONS);
                let decisions = Arc::new(watch::Sender::new(Decisions {
                    seq: 1,
                    unconfirmed: Vec::new(),
                }));
                let agent = compilation.agent.clone();
                let link = Link::new(&self.token, &compilation, asked, decisions.clone());
                let mut tasks = JoinSet::new();
                tasks.spawn(link.serve(listener));
                tasks.spawn(person::decide_in_turn(agent, questions, decisions));
                ApprovalTasks(tasks)
            })
    }
}

impl ApprovalTasks {
    /// Ends both tasks. A question on the terminal stays without an answer.
    pub async fn end(mut self) {
        self.0.shutdown().await;
    }
}

impl WaitingQuestion {
    fn new(question: Question, requirements: CallRequirements) -> Self {
        Self {
            until: Instant::now() + Duration::from_millis(question.open_for_ms),
            question,
            requirements,
        }
    }
}

/// Returns a token with the claims that a mediator reads from its pod's. A new uid for each run: the
/// questions in the record of an earlier one are not of this run.
fn token(agent: &ObjectRef, random: [u8; 32]) -> SecretText {
    let (uid, secret) = random.split_at(8);
    let pod = json!({"name": agent.name, "uid": format!("run-{}", hex::encode(uid))});
    let claims = json!({"kubernetes.io": {"namespace": agent.namespace, "pod": pod}});
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    SecretText::new(format!("run.{claims}.{}", hex::encode(secret)))
}
