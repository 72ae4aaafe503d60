//! Gateways of others beside the bare proxy, and the mediator on the same cases in the same run.
//!
//! Each request passes through: the mediator has no managed tools here, as a gateway has none.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::Bytes;

use super::{Bench, CHAT, CONNECTIONS, chat, long_chat, runner_tools};
use crate::Plan;
use crate::load::{Step, Timing, Work, ask};
use crate::manifest::Streaming;
use crate::pairs::{LoadTarget, Pairs, memory};
use crate::process::Program;
use crate::report::Row;

/// A text of every answer of the scripted model, streamed or whole.
const ANSWER: &str = "chatcmpl-";

/// A request that every program passes on.
struct Case {
    name: &'static str,
    body: Bytes,
    streamed: bool,
    /// Divides the plan's number of requests per slice.
    fraction: usize,
}

fn cases() -> Vec<Case> {
    let case = |name, body: String, fraction| Case {
        name,
        body: body.into(),
        streamed: false,
        fraction,
    };
    vec![
        case("pass-through", chat(0, false), 1),
        case("10 runner tools, no call", with_tools(10), 1),
        case("100 KB history, 40 runner tools", long_chat(), 3),
        Case {
            streamed: true,
            ..case("streamed, pass-through", chat(0, true), 4)
        },
    ]
}

/// Returns a short conversation of a runner that has this number of tools.
fn with_tools(count: usize) -> String {
    let chat = chat(0, false);
    let open = chat.strip_suffix('}').expect("a conversation is an object");
    format!(r#"{open},"tools":[{}]}}"#, runner_tools(count))
}

/// Measures the plan's gateways and the mediator, each beside the bare proxy.
pub async fn field(plan: &Plan) -> Result<Vec<Row>> {
    let bench = Bench::start(plan).await?;
    let mut rows = Vec::new();
    for case in cases() {
        if !plan.wants(case.name) {
            continue;
        }
        for installed in &plan.gateways {
            let running = installed.start(bench.servers_address).await?;
            let items = plan.requests / case.fraction / installed.gateway.fraction();
            let measured = (&running.program, running.address);
            let named = bench.beside_bare(plan, &case, measured, items).await?;
            rows.extend(of_program(installed.gateway.name(), named));
        }
        let mediator = bench.mediator(plan, 0, Streaming::Buffered).await?;
        let items = plan.requests / case.fraction;
        let measured = (&mediator.program, mediator.address);
        let named = bench.beside_bare(plan, &case, measured, items).await?;
        rows.extend(of_program("mediator", named));
    }
    Ok(rows)
}

impl Bench {
    async fn beside_bare(
        &self,
        plan: &Plan,
        case: &Case,
        (program, address): (&Program, SocketAddr),
        items: usize,
    ) -> Result<Vec<Row>> {
        let step = Step::post(CHAT, case.body.clone());
        let answer = ask(address, &step).await?;
        ensure!(answer.contains(ANSWER), "{address} answered {answer}");
        let work = || Work::from(step.clone());
        let reference = LoadTarget::connect(&self.bare, self.bare_address, CONNECTIONS, work());
        let measured = LoadTarget::connect(program, address, CONNECTIONS, work());
        let sides = [reference.await?, measured.await?];
        let pairs = Pairs::measure(case.name, sides, plan.pairs, items.max(CONNECTIONS)).await?;
        let mut rows = vec![pairs.cpu()];
        if case.streamed {
            let first = |timing: &Timing| timing.first_byte;
            let row = |measure, p| pairs.row(measure, "µs", |it| it.percentile(first, p));
            rows.extend([row("first byte p50", 0.5), row("first byte p99", 0.99)]);
        }
        rows.extend(pairs.latency_and_throughput());
        rows.push(memory(case.name, &self.bare, program)?);
        Ok(rows)
    }
}

/// Puts a program's name before the case of its rows.
fn of_program(name: &'static str, rows: Vec<Row>) -> impl Iterator<Item = Row> {
    rows.into_iter().map(move |row| Row {
        case: format!("{name}: {}", row.case).into(),
        ..row
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_declares_the_runners_tools() {
        let body: serde_json::Value = serde_json::from_str(&with_tools(10)).unwrap();
        assert_eq!(body["tools"].as_array().unwrap().len(), 10);
    }
}
