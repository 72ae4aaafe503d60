//! Measures healthy tools while another tool never answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Bench, CHAT, CONNECTIONS, Side, chat, said};
use crate::Plan;
use crate::load::{Load, Step, Timing, Work};
use crate::manifest::Streaming;
use crate::report::Row;

pub(super) const NAME: &str = "a hung tool beside healthy ones";
/// Number of turns that wait for the hung tool, on separate connections.
const HUNG: usize = 8;
/// Time for these turns to reach the tool.
const ARRIVAL: Duration = Duration::from_millis(50);

impl Bench {
    /// Measures turns with healthy tools in alternating slices: alone, and while other turns wait
    /// for a tool that hangs. The reference is the same mediator without the waiting turns.
    pub(super) async fn hung(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self.mediator(plan, 10, Streaming::Buffered).await?;
        let work = |body: String| Arc::new(Work::from(Step::post(CHAT, body)));
        let (healthy, hung) = (work(chat(2, false)), work(said("otter-hung", false)));
        let items = (plan.requests / 4).max(CONNECTIONS);
        let mut load = Load::connect(mediator.address, CONNECTIONS).await?;
        load.run(&healthy, items / 2).await?;
        let (mut alone, mut beside) = (Side::default(), Side::default());
        for _ in 0..plan.pairs {
            alone
                .slice(&mediator.program, &mut load, &healthy, items)
                .await?;
            let waiting = Load::connect(mediator.address, HUNG).await?;
            let mut held = waiting.hold(&hung);
            tokio::time::sleep(ARRIVAL).await;
            beside
                .slice(&mediator.program, &mut load, &healthy, items)
                .await?;
            ensure!(held.try_join_next().is_none(), "the hung tool answered");
        }
        let whole = |timing: &Timing| timing.whole;
        let row = |measure, p| {
            let (alone, beside) = (alone.percentile(whole, p), beside.percentile(whole, p));
            Row::beside(NAME, measure, "µs", alone, beside)
        };
        Ok(vec![
            row("healthy tools, p50", 0.5),
            row("healthy tools, p99", 0.99).ratio_at_most(1.1),
        ])
    }
}
