//! Measures turns whose record goes to a collector beside turns whose record does not.

use anyhow::Result;

use super::{Bench, CHAT, CONNECTIONS, chat};
use crate::Plan;
use crate::load::{Step, Work};
use crate::manifest::{Streaming, Transport};
use crate::pairs::{LoadTarget, Pairs};
use crate::report::Row;

pub(super) const NAME: &str = "2 hidden rounds, record exported";

impl Bench {
    /// Measures the same turns in alternating slices. The reference is a second mediator, without a
    /// collector. The measured one sends spans too, since a collector gets both.
    pub(super) async fn export(&self, plan: &Plan) -> Result<Vec<Row>> {
        let plain = self.mediator(plan, 10, Streaming::Buffered).await?;
        let files = self.files(10, Streaming::Buffered, Transport::Http)?;
        let collector = format!("http://{}", self.servers_address);
        let flags = [
            "--otlp-endpoint",
            &collector,
            "--export-records",
            "--export-arguments",
        ];
        let exporting = self.mediator_with(plan, files, &flags).await?;
        let turn = || Work::from(Step::post(CHAT, chat(2, false)));
        let reference = LoadTarget::connect(&plain.program, plain.address, CONNECTIONS, turn());
        let measured =
            LoadTarget::connect(&exporting.program, exporting.address, CONNECTIONS, turn());
        let (reference, measured) = (reference.await?, measured.await?);
        let items = (plan.requests / 4).max(CONNECTIONS);
        let pairs = Pairs::measure(NAME, [reference, measured], plan.pairs, items).await?;
        let mut rows = vec![pairs.cpu()];
        rows.extend(pairs.latency_and_throughput());
        Ok(rows)
    }
}
