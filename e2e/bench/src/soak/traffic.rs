//! Sends requests at a fixed rate, and judges each answer with its line of the record.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::client::Client;
use super::conditions::{Conditions, Span};
use super::findings::Findings;
use super::judge::{RecordedRequest, Recording, Verdict, judge};
use super::kind::Kind;
use super::mediator::Mediator;
use super::record::Ledger;

/// Longest time between an answer and its line on standard output. The mediator writes the line
/// first, and gathers lines for milliseconds.
const RECORDED: Duration = Duration::from_secs(10);

/// A mediator as its clients see it.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: &'static str,
    pub address: SocketAddr,
    pub ledger: Arc<Ledger>,
}

#[derive(Debug, Default)]
pub struct Traffic {
    pub conditions: Conditions,
    pub findings: Arc<Findings>,
    numbers: AtomicU64,
    tallies: Mutex<BTreeMap<(&'static str, Kind), Tally>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    pub sent: u64,
    pub failed_while_down: u64,
    pub unexpected: u64,
}

/// The requests of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub kinds: &'static [Kind],
    /// Index of the first request's kind.
    pub first: usize,
    pub begin: Instant,
    pub period: Duration,
    pub until: Instant,
}

impl Target {
    pub fn of(mediator: &Mediator) -> Self {
        Self {
            name: mediator.probe.name,
            address: mediator.address,
            ledger: mediator.ledger.clone(),
        }
    }
}

impl Traffic {
    pub fn new(findings: Arc<Findings>) -> Self {
        Self {
            findings,
            ..Self::default()
        }
    }

    /// Sends requests on one connection until the schedule ends. A late request delays those after it,
    /// so a slow mediator gets fewer.
    pub async fn run(self: Arc<Self>, target: Target, schedule: Schedule) -> Result<()> {
        let mut client = Client::new(target.address);
        let mut due = schedule.begin;
        for kind in schedule.kinds.iter().cycle().skip(schedule.first) {
            tokio::time::sleep_until(due.into()).await;
            if Instant::now() >= schedule.until {
                break;
            }
            self.send(&target, &mut client, *kind).await?;
            due = (due + schedule.period).max(Instant::now());
        }
        Ok(())
    }

    /// Sends one request, and waits for its answer and its line.
    pub async fn send(
        &self,
        target: &Target,
        client: &mut Client,
        kind: Kind,
    ) -> Result<(Verdict, Option<RecordedRequest>)> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let begin = self.conditions.now();
        let is_numbered = Recording::of(kind) == Recording::Numbered;
        let line = is_numbered.then(|| target.ledger.announce(number));
        let step = kind.step(number);
        let answer = match kind {
            Kind::WrongToken => client.ask_with_wrong_token(&step).await?,
            Kind::HungUp => client.hang_up(&step).await?,
            Kind::CanceledStream => client.cancel(&step).await?,
            Kind::HalfBody => client.send_half(&step).await?,
            Kind::NoCall
            | Kind::Rounds { .. }
            | Kind::Revocable
            | Kind::Hung
            | Kind::LongHistory
            | Kind::Streamed
            | Kind::InvalidBody
            | Kind::TwoAnswers => client.ask(&step).await?,
        };
        let recorded = match line {
            None => None,
            Some(line) => match tokio::time::timeout(RECORDED, line).await {
                Ok(Ok(recorded)) => Some(recorded),
                Ok(Err(_)) | Err(_) => {
                    let what = format!("request {number} ({kind:?}) has no line; {answer:?}");
                    self.findings.add("no record", what.clone());
                    self.count(target, kind, &Verdict::Unexpected(what.clone()));
                    return Ok((Verdict::Unexpected(what), None));
                }
            },
        };
        let end = self.conditions.now();
        let verdict = judge(kind, Span { begin, end }, &answer, recorded.as_ref());
        if let Verdict::Unexpected(what) = &verdict {
            let kind = format!("{}: {}", target.name, kind.name());
            self.findings
                .add(&kind, format!("request {number}: {what}"));
        }
        self.count(target, kind, &verdict);
        Ok((verdict, recorded))
    }

    fn count(&self, target: &Target, kind: Kind, verdict: &Verdict) {
        let mut tallies = self.tallies.lock().expect("no holder of the lock panics");
        let tally = tallies.entry((target.name, kind)).or_default();
        tally.sent += 1;
        match verdict {
            Verdict::Expected => {}
            Verdict::FailedWhileDown => tally.failed_while_down += 1,
            Verdict::Unexpected(_) => tally.unexpected += 1,
        }
    }

    pub fn tallies(&self) -> BTreeMap<(&'static str, Kind), Tally> {
        let tallies = self.tallies.lock().expect("no holder of the lock panics");
        tallies.clone()
    }

    /// The sum of all kinds.
    pub fn total(&self) -> Tally {
        let tallies = self.tallies();
        tallies.values().fold(Tally::default(), |sum, tally| Tally {
            sent: sum.sent + tally.sent,
            failed_while_down: sum.failed_while_down + tally.failed_while_down,
            unexpected: sum.unexpected + tally.unexpected,
        })
    }
}
