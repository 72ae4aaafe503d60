//! Measures healthy tools while another tool never answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Bench, CHAT, CONNECTIONS, Side, chat, said};
use crate::Plan;
use crate::load::{Load, Step, Timing, Work};
use crate::manifest::Streaming;
use crate::report::{Row, median};

pub(super) const NAME: &str = "a hung tool beside healthy ones";
/// Number of turns that wait for the hung tool, on separate connections.
const HUNG: usize = 8;
/// Time for these turns to reach the tool. Each slice begins after as long a pause: the first turns after
/// one are slower.
const PAUSE: Duration = Duration::from_millis(50);
/// Rounds for each pair of the plan. Three turns of a slice decide its p99, and one pause of the machine
/// hits more of them, so many slices are needed.
const ROUNDS: usize = 4;

/// Three slices of turns with healthy tools.
#[derive(Debug, Default)]
struct Round {
    alone: Side,
    /// While other turns wait for the hung tool.
    beside: Side,
    /// Alone again.
    again: Side,
}

impl Bench {
    /// Measures healthy tools alone, while other turns wait for a tool that hangs, and alone again. The
    /// reference is the same mediator without the waiting turns, so the third slice shows how precise the
    /// ratio is.
    pub(super) async fn hung(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self.mediator(plan, 10, Streaming::Buffered).await?;
        let work = |body: String| Arc::new(Work::from(Step::post(CHAT, body)));
        let (healthy, hung) = (work(chat(2, false)), work(said("otter-hung", false)));
        let items = (plan.requests / 4).max(CONNECTIONS);
        let mut load = Load::connect(mediator.address, CONNECTIONS).await?;
        load.run(&healthy, items / 2).await?;
        let program = &mediator.program;
        let mut rounds = Vec::new();
        for _ in 0..plan.pairs * ROUNDS {
            let mut round = Round::default();
            tokio::time::sleep(PAUSE).await;
            round
                .alone
                .slice(program, &mut load, &healthy, items)
                .await?;
            let waiting = Load::connect(mediator.address, HUNG).await?;
            let mut held = waiting.hold(&hung);
            tokio::time::sleep(PAUSE).await;
            round
                .beside
                .slice(program, &mut load, &healthy, items)
                .await?;
            ensure!(held.try_join_next().is_none(), "the hung tool answered");
            drop(held);
            tokio::time::sleep(PAUSE).await;
            round
                .again
                .slice(program, &mut load, &healthy, items)
                .await?;
            rounds.push(round);
        }
        let beside = |measure, p| row(&rounds, |it| &it.beside, measure, p);
        let again = |measure, p| row(&rounds, |it| &it.again, measure, p);
        Ok(vec![
            beside("healthy tools, p50", 0.5),
            beside("healthy tools, p99", 0.99).ratio_at_most(1.1),
            again("healthy tools without it, p50", 0.5),
            again("healthy tools without it, p99", 0.99),
        ])
    }
}

/// Compares a slice of each round with the one alone. Each figure is the median over the rounds.
fn row(rounds: &[Round], slice: fn(&Round) -> &Side, measure: &'static str, p: f64) -> Row {
    let whole = |timing: &Timing| timing.whole;
    let figures = |side: fn(&Round) -> &Side| -> Vec<f64> {
        let figure = |round| side(round).percentile(whole, p);
        rounds.iter().map(figure).collect()
    };
    let (alone, measured) = (figures(|it| &it.alone), figures(slice));
    let ratio = |(measured, alone): (&f64, &f64)| measured / alone;
    let ratios = measured.iter().zip(&alone).map(ratio).collect();
    Row::beside(NAME, measure, "µs", median(alone), median(measured)).with_ratios(ratios)
}
