//! Measures a reference and a program in alternating slices of the same work. Each keeps its
//! connections open between slices. Other load on the machine affects both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::load::{Load, Timing, Work};
use crate::process::Program;
use crate::report::Row;

/// Number of KiB, the unit of `/proc`, in a MiB.
pub(crate) const MIB: f64 = 1024.0;

/// A program and its requests.
#[derive(Debug)]
pub(crate) struct LoadTarget<'a> {
    program: &'a Program,
    load: Load,
    work: Arc<Work>,
}

/// Measurements of all slices of one program.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub cpu: u64,
    pub items: usize,
    pub busy: Duration,
    pub timings: Vec<Timing>,
}

/// Measurements of the reference and of the measured program.
#[derive(Debug)]
pub(crate) struct Pairs {
    case: &'static str,
    reference: Side,
    measured: Side,
    /// Ratio of the CPU time per item in each pair of slices.
    ratios: Vec<f64>,
}

impl<'a> LoadTarget<'a> {
    /// Opens this number of connections to an address.
    pub async fn connect(
        program: &'a Program,
        address: SocketAddr,
        connections: usize,
        work: Work,
    ) -> Result<Self> {
        Ok(Self {
            program,
            load: Load::connect(address, connections).await?,
            work: Arc::new(work),
        })
    }

    /// Runs other work before the measurement.
    pub async fn prepare(&mut self, work: Work, items: usize) -> Result<()> {
        self.load.run(&Arc::new(work), items).await?;
        Ok(())
    }

    async fn slice(&mut self, side: &mut Side, items: usize) -> Result<f64> {
        side.slice(self.program, &mut self.load, &self.work, items)
            .await
    }
}

impl Pairs {
    /// Measures `pairs` pairs of slices of `items` items each. Before them, both programs run half
    /// a slice that does not count.
    pub async fn measure(
        case: &'static str,
        [mut reference, mut measured]: [LoadTarget<'_>; 2],
        pairs: usize,
        items: usize,
    ) -> Result<Self> {
        for driven in [&mut reference, &mut measured] {
            driven.load.run(&driven.work, items / 2).await?;
        }
        let (mut theirs, mut ours) = (Side::default(), Side::default());
        let mut ratios = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let before = reference.slice(&mut theirs, items).await?;
            ratios.push(measured.slice(&mut ours, items).await? / before);
        }
        Ok(Self {
            case,
            reference: theirs,
            measured: ours,
            ratios,
        })
    }

    pub fn row(&self, measure: &'static str, unit: &'static str, of: impl Fn(&Side) -> f64) -> Row {
        let (reference, measured) = (of(&self.reference), of(&self.measured));
        Row::beside(self.case, measure, unit, reference, measured)
    }

    /// Returns the row of CPU time. Its ratio is the median over the pairs.
    pub fn cpu(&self) -> Row {
        self.row("CPU per request", "µs", Side::cpu_micros)
            .with_ratios(self.ratios.clone())
    }

    pub fn latency_and_throughput(&self) -> [Row; 3] {
        let whole = |timing: &Timing| timing.whole;
        [
            self.row("latency p50", "µs", |side| side.percentile(whole, 0.5)),
            self.row("latency p99", "µs", |side| side.percentile(whole, 0.99)),
            self.row("throughput", "/s", Side::per_second),
        ]
    }
}

/// Returns the row of memory: the current memory of the reference, and the peak of the measured
/// program.
pub(crate) fn memory(case: &'static str, reference: &Program, measured: &Program) -> Result<Row> {
    let (reference, _) = reference.memory()?;
    let (now, most) = measured.memory()?;
    let mib = |kib: u64| kib as f64 / MIB;
    Ok(Row::beside(
        case,
        "memory",
        "MiB",
        mib(reference),
        mib(now.max(most)),
    ))
}

impl Side {
    /// Runs one slice; returns the CPU time of one item, in nanoseconds.
    pub async fn slice(
        &mut self,
        program: &Program,
        load: &mut Load,
        work: &Arc<Work>,
        items: usize,
    ) -> Result<f64> {
        let before = program.cpu()?;
        let began = Instant::now();
        let timings = load.run(work, items).await?;
        self.busy += began.elapsed();
        // Waits for work that the program does after its response, since that work belongs to the
        // request too.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let cpu = program.cpu()? - before;
        self.cpu += cpu;
        self.items += timings.len();
        let each = cpu as f64 / timings.len() as f64;
        self.timings.extend(timings);
        Ok(each)
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu as f64 / 1e3 / self.items as f64
    }

    fn per_second(&self) -> f64 {
        self.items as f64 / self.busy.as_secs_f64()
    }

    /// Returns a percentile of the timings, in microseconds.
    pub fn percentile(&self, of: fn(&Timing) -> Duration, p: f64) -> f64 {
        let mut all: Vec<Duration> = self.timings.iter().map(of).collect();
        all.sort_unstable();
        let at = ((all.len() as f64 - 1.0) * p).round() as usize;
        all[at].as_secs_f64() * 1e6
    }
}
