//! Measures calls under a rule with limits beside calls that are granted without conditions.

use anyhow::Result;

use super::{Bench, CHAT, CONFIG, CONNECTIONS, chat};
use crate::Plan;
use crate::load::{Step, Work};
use crate::manifest::{self, Streaming, Transport};
use crate::pairs::{LoadTarget, Pairs};
use crate::report::Row;

pub(super) const NAME: &str = "2 hidden rounds with a pin, a condition and a rate";

impl Bench {
    /// Measures the same turns in alternating slices. The reference is a second mediator, whose
    /// tools have no rules.
    pub(super) async fn limits(&self, plan: &Plan) -> Result<Vec<Row>> {
        let plain = self.mediator(plan, 10, Streaming::Buffered).await?;
        let files = self.files(10, Streaming::Buffered, Transport::Http)?;
        manifest::limit(&files.path().join(CONFIG))?;
        let limited = self.mediator_on(plan, files).await?;
        let turn = || Work::from(Step::post(CHAT, chat(2, false)));
        let reference = LoadTarget::connect(&plain.program, plain.address, CONNECTIONS, turn());
        let measured = LoadTarget::connect(&limited.program, limited.address, CONNECTIONS, turn());
        let (reference, measured) = (reference.await?, measured.await?);
        let items = (plan.requests / 4).max(CONNECTIONS);
        let pairs = Pairs::measure(NAME, [reference, measured], plan.pairs, items).await?;
        let mut rows = vec![pairs.cpu().ratio_at_most(1.1)];
        rows.extend(pairs.latency_and_throughput());
        Ok(rows)
    }
}
