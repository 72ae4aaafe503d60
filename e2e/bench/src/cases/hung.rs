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
/// Time for these turns to reach the tool. Each slice begins after as long a pause: the first turns after
/// one are slower.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of slices in a round: alone, beside the hung tool, and alone again.
const SLICES: usize = 3;
/// Rounds for each pair of the plan. The p99 of a slice is decided by three of its turns, and one pause of
/// the machine hits more.
const ROUNDS: usize = 4;

impl Bench {
    /// Measures turns with healthy tools in alternating slices: alone, while other turns wait for a tool
    /// that hangs, and alone again. The reference is the same mediator without the waiting turns, so the
    /// third slice shows the precision of the ratio.
    pub(super) async fn hung(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self.mediator(plan, 10, Streaming::Buffered).await?;
        let work = |body: String| Arc::new(Work::from(Step::post(CHAT, body)));
        let (healthy, hung) = (work(chat(2, false)), work(said("otter-hung", false)));
        let items = (plan.requests / 4).max(CONNECTIONS);
        let mut load = Load::connect(mediator.address, CONNECTIONS).await?;
        load.run(&healthy, items / 2).await?;
        let program = &mediator.program;
        let count = plan.pairs * ROUNDS;
        let mut rounds = Vec::with_capacity(count);
        for _ in 0..count {
            let mut round: [Side; SLICES] = Default::default();
            let [alone, beside, again] = &mut round;
            tokio::time::sleep(PAUSE).await;
            alone.slice(program, &mut load, &healthy, items).await?;
            let waiting = Load::connect(mediator.address, HUNG).await?;
            let mut held = waiting.hold(&hung);
            tokio::time::sleep(PAUSE).await;
            beside.slice(program, &mut load, &healthy, items).await?;
            ensure!(held.try_join_next().is_none(), "the hung tool answered");
            drop(held);
            tokio::time::sleep(PAUSE).await;
            again.slice(program, &mut load, &healthy, items).await?;
            rounds.push(round);
        }
        Ok(vec![
            row(&rounds, "healthy tools, p50", 0.5, 1),
            row(&rounds, "healthy tools, p99", 0.99, 1).ratio_at_most(1.1),
            row(&rounds, "healthy tools without it, p50", 0.5, 2),
            row(&rounds, "healthy tools without it, p99", 0.99, 2),
        ])
    }
}

/// Compares the slice `at` of each round with the first one. Each figure is the median over the rounds.
fn row(rounds: &[[Side; SLICES]], measure: &'static str, p: f64, at: usize) -> Row {
    let whole = |timing: &Timing| timing.whole;
    let pair = |round: &[Side; SLICES]| [0, at].map(|slice| round[slice].percentile(whole, p));
    let pairs: Vec<[f64; 2]> = rounds.iter().map(pair).collect();
    let sorted = |figure: fn(&[f64; 2]) -> f64| {
        let mut figures: Vec<f64> = pairs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let median = |figures: &[f64]| figures[figures.len() / 2];
    let reference = median(&sorted(|[alone, _]| *alone));
    let measured = median(&sorted(|[_, other]| *other));
    let ratios = sorted(|[alone, other]| other / alone);
    Row {
        ratio: Some(median(&ratios)),
        spread: Some((ratios[0], ratios[ratios.len() - 1])),
        ..Row::beside(NAME, measure, "µs", reference, measured)
    }
}
