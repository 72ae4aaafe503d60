//! Measures single parts of the mediator's work: the bare proxy with one part, in little code, beside
//! the bare proxy alone.

use anyhow::{Context, Result};

use super::{Bench, CHAT, CONNECTIONS, chat, long_chat};
use crate::Plan;
use crate::load::{Step, Timing, Work};
use crate::pairs::{LoadTarget, Pairs};
use crate::process::Program;
use crate::report::Row;

/// A program that does some parts, and its requests.
struct Part {
    name: &'static str,
    flags: &'static [&'static str],
    records: bool,
    body: fn() -> String,
    streamed: bool,
    /// Divides the plan's number of requests per slice.
    fraction: usize,
}

const PARTS: [Part; 6] = [
    Part {
        name: "bare proxy with one thread",
        flags: &["--threads=1"],
        ..Part::OF_SHORT
    },
    Part {
        name: "bare proxy that reads both bodies",
        flags: &["--threads=1", "--read"],
        ..Part::OF_SHORT
    },
    Part {
        name: "bare proxy that keeps a record",
        flags: &["--threads=1"],
        records: true,
        ..Part::OF_SHORT
    },
    Part {
        name: "bare proxy that reads and records",
        flags: &["--threads=1", "--read"],
        records: true,
        ..Part::OF_SHORT
    },
    Part {
        name: "bare proxy that reads and records: 100 KB history",
        flags: &["--threads=1", "--read"],
        records: true,
        body: long_chat,
        fraction: 3,
        ..Part::OF_SHORT
    },
    Part {
        name: "bare proxy that reads and records: streamed",
        flags: &["--threads=1", "--read"],
        records: true,
        body: || chat(0, true),
        streamed: true,
        fraction: 4,
    },
];

impl Part {
    const OF_SHORT: Self = Self {
        name: "",
        flags: &[],
        records: false,
        body: || chat(0, false),
        streamed: false,
        fraction: 1,
    };
}

impl Bench {
    pub(super) async fn parts(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for part in PARTS.iter().filter(|part| plan.wants(part.name)) {
            rows.extend(self.part(plan, part).await?);
        }
        Ok(rows)
    }

    async fn part(&self, plan: &Plan, part: &Part) -> Result<Vec<Row>> {
        let files = tempfile::tempdir().context("a folder for the record")?;
        let address = toolcrib_ports::free()?;
        let mut flags: Vec<String> = part.flags.iter().map(ToString::to_string).collect();
        flags.extend([
            format!("--listen={address}"),
            format!("--upstream={}", self.servers_address),
        ]);
        if part.records {
            flags.push(format!(
                "--record={}",
                files.path().join("record").display()
            ));
        }
        let mut program = Program::start(&plan.programs.join("bare-proxy"), &flags)?;
        program.ready(address, super::TOOL).await?;
        let work = || Work::from(Step::post(CHAT, (part.body)()));
        let reference = LoadTarget::connect(&self.bare, self.bare_address, CONNECTIONS, work());
        let measured = LoadTarget::connect(&program, address, CONNECTIONS, work());
        let (reference, measured) = (reference.await?, measured.await?);
        let items = (plan.requests / part.fraction).max(CONNECTIONS);
        let pairs = Pairs::measure(part.name, [reference, measured], plan.pairs, items).await?;
        let mut rows = vec![pairs.cpu()];
        if part.streamed {
            let first = |timing: &Timing| timing.first_byte;
            rows.push(pairs.row("first byte p50", "µs", |it| it.percentile(first, 0.5)));
        }
        Ok(rows)
    }
}
