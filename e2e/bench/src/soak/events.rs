//! What happens beside the load, one after the other: swaps of the files, revocations, kills of the
//! upstream.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::Client;
use super::files::Revocable;
use super::judge::{RecordedRequest, Verdict};
use super::kind::Kind;
use super::mediator::Mediator;
use super::traffic::{Target, Traffic};
use super::upstream::Upstream;

/// Pause between two events.
const PAUSE: Duration = Duration::from_millis(1500);
/// Time for which the tool stays taken.
const TAKEN: Duration = Duration::from_millis(1000);
/// Time for which the upstream is down.
const DOWN: Duration = Duration::from_millis(500);
/// A cycle of events.
const CYCLE: [Event; 4] = [Event::Swap, Event::Revocation, Event::Swap, Event::Kill];

#[derive(Clone, Copy, Debug)]
enum Event {
    Swap,
    Revocation,
    Kill,
}

#[derive(Clone, Debug, Default)]
pub struct EventCounts {
    pub swaps: u64,
    /// Times until the first denied call.
    pub until_denied: Vec<Duration>,
    /// Times until the first call that ran again.
    pub until_given: Vec<Duration>,
    pub kills: u64,
}

pub struct Events<'a> {
    pub traffic: &'a Traffic,
    pub upstream: &'a mut Upstream,
    /// The tool is taken from the first one.
    pub mediators: &'a mut [Mediator],
    /// Longest time until a taken tool is denied, and a given one runs.
    pub in_effect: Duration,
    pub counts: EventCounts,
}

impl Events<'_> {
    /// Runs whole events until this time. Afterwards the upstream serves and the tool is given.
    pub async fn run(mut self, until: Instant) -> Result<EventCounts> {
        for event in CYCLE.into_iter().cycle() {
            tokio::time::sleep(PAUSE).await;
            if Instant::now() >= until {
                break;
            }
            match event {
                Event::Swap => self.swap().await.context("a swap")?,
                Event::Revocation => self.revoke().await.context("a revocation")?,
                Event::Kill => self.kill().await.context("a kill of the upstream")?,
            }
        }
        Ok(self.counts)
    }

    async fn swap(&mut self) -> Result<()> {
        for mediator in self.mediators.iter_mut() {
            mediator.swap(Revocable::Given).await?;
            self.counts.swaps += 1;
        }
        Ok(())
    }

    async fn revoke(&mut self) -> Result<()> {
        let conditions = &self.traffic.conditions;
        conditions.turn_grant();
        let swapped = self.first()?.swap_only(Revocable::Taken)?;
        let denied = self.until_in_effect(swapped, is_denied).await?;
        self.counts.until_denied.extend(denied);
        conditions.turn_grant();
        tokio::time::sleep(TAKEN).await;
        conditions.turn_grant();
        let swapped = self.first()?.swap_only(Revocable::Given)?;
        let given = self
            .until_in_effect(swapped, |recorded| !is_denied(recorded))
            .await?;
        self.counts.until_given.extend(given);
        conditions.turn_grant();
        self.counts.swaps += 2;
        Ok(())
    }

    /// Calls the tool until a call has this result. Returns the time since the swap; `None` if it is
    /// too long, which is a finding.
    async fn until_in_effect(
        &mut self,
        swapped: Instant,
        is_in_effect: impl Fn(&RecordedRequest) -> bool,
    ) -> Result<Option<Duration>> {
        let target = Target::of(self.first()?);
        let mut client = Client::new(target.address);
        loop {
            let (_, recorded) = self
                .traffic
                .send(&target, &mut client, Kind::Revocable)
                .await?;
            let took = swapped.elapsed();
            if took > self.in_effect {
                let what = format!("a swap has no effect after {took:?}: {recorded:?}");
                self.traffic.findings.add("revocation", what);
                return Ok(None);
            }
            if recorded.as_ref().is_some_and(&is_in_effect) {
                return Ok(Some(took));
            }
        }
    }

    async fn kill(&mut self) -> Result<()> {
        self.traffic.conditions.turn_upstream();
        self.upstream.kill()?;
        let back = Instant::now() + DOWN;
        for mediator in self.mediators.iter() {
            let target = Target::of(mediator);
            let mut client = Client::new(target.address);
            let (verdict, _) = self
                .traffic
                .send(&target, &mut client, Kind::NoCall)
                .await?;
            let is_failure = verdict == Verdict::FailedWhileDown;
            self.traffic.findings.check(is_failure, "kill", || {
                format!(
                    "{}: a request without an upstream: {verdict:?}",
                    target.name
                )
            });
        }
        tokio::time::sleep_until(back.into()).await;
        self.upstream.start().await?;
        self.traffic.conditions.turn_upstream();
        self.counts.kills += 1;
        Ok(())
    }

    fn first(&mut self) -> Result<&mut Mediator> {
        self.mediators.first_mut().context("a mediator with tools")
    }
}

fn is_denied(recorded: &RecordedRequest) -> bool {
    recorded.calls.iter().any(|call| !call.executed)
}
