//! The measurements of the mediator, most of them beside the bare proxy.
//!
//! CPU time is the program's own, over all its threads. Latency, throughput and time to first
//! byte are measured in the load generator, which shares the cores with everything else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Plan;
use crate::load::{Load, Step, Timing, Work};
use crate::manifest::{self, Streaming, Transport};
use crate::pairs::{LoadTarget, MIB, Pairs, Side, memory};
use crate::process::{Program, get};
use crate::report::{Row, median};

mod export;
mod field;
mod hung;
mod limits;
mod mcp;
mod parts;

pub use field::field;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const TOOL: &str = "/api/v1/otter/depth_0?spot=reed%200";
/// The folder of a mediator's four files, in the folder of all its files.
const CONFIG: &str = "config";
/// Number of connections in most cases.
const CONNECTIONS: usize = 8;
/// Number of connections in the case that has a target for peak memory.
const MANY: usize = 32;

/// A comparison of the mediator with the bare proxy.
struct Case {
    name: &'static str,
    /// Number of tools in the manifest.
    tools: usize,
    /// The runner's request.
    body: Bytes,
    /// Hidden rounds of a turn. The bare proxy gets each hop of the turn as a request of its own.
    rounds: usize,
    streamed: bool,
    streaming: Streaming,
    transport: Transport,
    /// Target for the ratio of the mediator's CPU time to the bare proxy's.
    cpu_at_most: Option<f64>,
    first_byte_at_most: Option<f64>,
    /// Divides the plan's number of requests per slice.
    fraction: usize,
}

pub async fn all(plan: &Plan) -> Result<Vec<Row>> {
    let bench = Bench::start(plan).await?;
    let mut rows = Vec::new();
    for case in cases() {
        if plan.wants(case.name) {
            rows.extend(bench.compare(plan, &case).await?);
        }
    }
    if plan.wants("start") {
        rows.extend(bench.start_and_idle(plan).await?);
    }
    if plan.wants("32 connections") {
        rows.extend(bench.many(plan).await?);
    }
    if plan.wants("quarter of saturation") {
        rows.extend(bench.quarter_of_saturation(plan).await?);
    }
    if plan.wants(hung::NAME) {
        rows.extend(bench.hung(plan).await?);
    }
    if plan.wants(limits::NAME) {
        rows.extend(bench.limits(plan).await?);
    }
    if plan.wants(export::NAME) {
        rows.extend(bench.export(plan).await?);
    }
    rows.extend(bench.mcp(plan).await?);
    rows.extend(bench.parts(plan).await?);
    Ok(rows)
}

fn cases() -> Vec<Case> {
    let case = |name, tools, body: String, rounds, fraction| Case {
        name,
        tools,
        body: body.into(),
        rounds,
        streamed: false,
        streaming: Streaming::Buffered,
        transport: Transport::Http,
        cpu_at_most: None,
        first_byte_at_most: None,
        fraction,
    };
    vec![
        Case {
            cpu_at_most: Some(1.6),
            ..case("pass-through: no managed tools", 0, chat(0, false), 0, 1)
        },
        Case {
            cpu_at_most: Some(2.0),
            ..case("10 managed tools, no call", 10, chat(0, false), 0, 1)
        },
        Case {
            cpu_at_most: Some(1.8),
            ..case("2 hidden rounds (5 hops)", 10, chat(2, false), 2, 4)
        },
        Case {
            transport: Transport::Mcp,
            ..case(
                "2 hidden rounds over MCP (5 hops)",
                10,
                chat(2, false),
                2,
                4,
            )
        },
        case("8 hidden rounds (17 hops)", 10, chat(8, false), 8, 12),
        Case {
            cpu_at_most: Some(3.0),
            ..case("100 KB history, 40 runner tools", 10, long_chat(), 0, 3)
        },
        case("120 managed tools, no call", 120, chat(0, false), 0, 2),
        Case {
            streamed: true,
            first_byte_at_most: Some(1.15),
            ..case("streamed, pass-through", 0, chat(0, true), 0, 4)
        },
        Case {
            streamed: true,
            ..case(
                "streamed, 10 managed tools (Buffered)",
                10,
                chat(0, true),
                0,
                4,
            )
        },
        Case {
            streamed: true,
            streaming: Streaming::Live,
            ..case("streamed, 10 managed tools (Live)", 10, chat(0, true), 0, 4)
        },
    ]
}

/// The backends and the bare proxy, with their addresses.
struct Bench {
    bare: Program,
    bare_address: SocketAddr,
    servers_address: SocketAddr,
    _servers: Program,
}

/// A running mediator. Its files are removed when this value is dropped.
struct Mediator {
    program: Program,
    address: SocketAddr,
    ready_after: Duration,
    _files: TempDir,
}

impl Bench {
    async fn start(plan: &Plan) -> Result<Self> {
        let (servers_address, bare_address) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let (servers_text, bare_text) = (servers_address.to_string(), bare_address.to_string());
        let mut servers = Program::start(
            &plan.programs.join("bench-servers"),
            &["--listen", &servers_text],
        )?;
        servers.ready(servers_address, TOOL).await?;
        let mut bare = Program::start(
            &plan.programs.join("bare-proxy"),
            &["--listen", &bare_text, "--upstream", &servers_text],
        )?;
        bare.ready(bare_address, TOOL).await?;
        Ok(Self {
            bare,
            bare_address,
            servers_address,
            _servers: servers,
        })
    }

    async fn mediator(&self, plan: &Plan, tools: usize, streaming: Streaming) -> Result<Mediator> {
        self.mediator_of(plan, tools, streaming, Transport::Http)
            .await
    }

    async fn mediator_of(
        &self,
        plan: &Plan,
        tools: usize,
        streaming: Streaming,
        transport: Transport,
    ) -> Result<Mediator> {
        let files = self.files(tools, streaming, transport)?;
        self.mediator_on(plan, files).await
    }

    /// Returns a folder with the four files in [`CONFIG`].
    fn files(&self, tools: usize, streaming: Streaming, transport: Transport) -> Result<TempDir> {
        let files = tempfile::tempdir().context("a folder for the mediator's files")?;
        let config = files.path().join(CONFIG);
        std::fs::create_dir(&config)?;
        manifest::write(&config, self.servers_address, tools, streaming, transport)?;
        Ok(files)
    }

    /// Starts a mediator on the files in the folder [`CONFIG`].
    async fn mediator_on(&self, plan: &Plan, files: TempDir) -> Result<Mediator> {
        self.mediator_with(plan, files, &[]).await
    }

    /// Starts a mediator with more flags.
    async fn mediator_with(&self, plan: &Plan, files: TempDir, flags: &[&str]) -> Result<Mediator> {
        let (address, admin) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let mut arguments = vec![
            "--config-dir".into(),
            files.path().join(CONFIG).display().to_string(),
            "--history-dir".into(),
            files.path().join("history").display().to_string(),
            "--listen".into(),
            address.to_string(),
            "--admin-listen".into(),
            admin.to_string(),
            "--pod".into(),
            "otter-0".into(),
            "--allow-local".into(),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        let begun = Instant::now();
        let mut program = Program::start(&plan.mediator, &arguments)?;
        program.ready(admin, "/readyz").await?;
        let ready_after = begun.elapsed();
        // A turn without its tools would be measured instead.
        let readiness: Value = serde_json::from_str(&get(admin, "/readyz").await?)?;
        ensure!(
            readiness["withheld"] == json!([]),
            "tools are withheld: {readiness}"
        );
        Ok(Mediator {
            program,
            address,
            ready_after,
            _files: files,
        })
    }

    async fn compare(&self, plan: &Plan, case: &Case) -> Result<Vec<Row>> {
        let mediator = self
            .mediator_of(plan, case.tools, case.streaming, case.transport)
            .await?;
        let mediated = Work::from(Step::post(CHAT, case.body.clone()));
        let reference =
            LoadTarget::connect(&self.bare, self.bare_address, CONNECTIONS, hop_by_hop(case));
        let measured =
            LoadTarget::connect(&mediator.program, mediator.address, CONNECTIONS, mediated);
        let (reference, mut measured) = (reference.await?, measured.await?);
        if case.tools > 0 {
            // Runs turns with hidden rounds first, so that the mediator has stored rounds to look
            // for in each history.
            let turn = Step::post(CHAT, chat(2, false));
            measured.prepare(turn.into(), CONNECTIONS).await?;
        }
        let items = (plan.requests / case.fraction).max(CONNECTIONS);
        let pairs = Pairs::measure(case.name, [reference, measured], plan.pairs, items).await?;

        let mut cpu = pairs.cpu();
        if let Some(bound) = case.cpu_at_most {
            cpu = cpu.ratio_at_most(bound);
        }
        let mut rows = vec![cpu];
        if case.streamed {
            let first = |timing: &Timing| timing.first_byte;
            let first_byte = |measure, p| pairs.row(measure, "µs", |it| it.percentile(first, p));
            let mut row = first_byte("first byte p50", 0.5);
            if let Some(bound) = case.first_byte_at_most {
                row = row.ratio_at_most(bound);
            }
            rows.extend([row, first_byte("first byte p99", 0.99)]);
        }
        rows.extend(pairs.latency_and_throughput());
        rows.push(memory(case.name, &self.bare, &mediator.program)?);
        Ok(rows)
    }

    async fn start_and_idle(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mut ready = Vec::new();
        let (mut idle, mut own) = (0, 0);
        for _ in 0..plan.pairs.max(2) {
            let mediator = self.mediator(plan, 10, Streaming::Buffered).await?;
            ready.push(mediator.ready_after.as_secs_f64() * 1e3);
            idle = mediator.program.memory()?.0;
            own = mediator.program.unshared_memory()?;
        }
        Ok(vec![
            Row::alone("start", "exec to ready, p50", "ms", median(ready)).at_most(10.0),
            Row::alone("start", "idle memory", "MiB", idle as f64 / MIB).at_most(8.0),
            Row::alone("start", "idle memory, its own", "MiB", own as f64 / MIB),
        ])
    }

    /// Measures peak memory in a separate mediator process, so that the peak is that of this load.
    async fn many(&self, plan: &Plan) -> Result<Vec<Row>> {
        let mediator = self.mediator(plan, 10, Streaming::Buffered).await?;
        let turn = Arc::new(Step::post(CHAT, chat(2, false)).into());
        let mut load = Load::connect(mediator.address, MANY).await?;
        load.run(&turn, plan.requests * plan.pairs / 4).await?;
        let (_, most) = mediator.program.memory()?;
        let name = "32 connections of 2-round turns";
        Ok(vec![
            Row::alone(name, "memory, peak", "MiB", most as f64 / MIB).at_most(16.0),
        ])
    }

    /// Measures the added time of a hidden round without queueing: turns at a quarter of the rate
    /// that the mediator itself reaches, compared with the same hops without a proxy.
    async fn quarter_of_saturation(&self, plan: &Plan) -> Result<Vec<Row>> {
        const ROUNDS: usize = 2;
        let case = Case {
            name: "quarter of saturation",
            tools: 10,
            body: chat(ROUNDS, false).into(),
            rounds: ROUNDS,
            streamed: false,
            streaming: Streaming::Buffered,
            transport: Transport::Http,
            cpu_at_most: None,
            first_byte_at_most: None,
            fraction: 1,
        };
        let hops = Arc::new(hop_by_hop(&case));
        let turn = Arc::new(Step::post(CHAT, case.body.clone()).into());
        let items = plan.requests / 2;
        let mediator = self.mediator(plan, case.tools, case.streaming).await?;
        let mut to_mediator = Load::connect(mediator.address, MANY).await?;
        let mut direct = Load::connect(self.servers_address, MANY).await?;
        to_mediator.run(&turn, items / 2).await?;
        let began = Instant::now();
        let done = to_mediator.run(&turn, items).await?.len();
        let rate = done as f64 / began.elapsed().as_secs_f64() / 4.0;
        let (mut straight, mut ours) = (Side::default(), Side::default());
        for _ in 0..plan.pairs.div_ceil(2) {
            straight
                .timings
                .extend(direct.at_rate(&hops, items, rate).await?);
            let (before, began) = (mediator.program.cpu()?, Instant::now());
            ours.timings
                .extend(to_mediator.at_rate(&turn, items, rate).await?);
            ours.busy += began.elapsed();
            ours.cpu += mediator.program.cpu()? - before;
        }
        // Near 1 the mediator is saturated, and the added time is spent in queues.
        let busy = ours.cpu as f64 / ours.busy.as_nanos() as f64;
        let whole = |timing: &Timing| timing.whole;
        let per_round = |p| {
            let added = ours.percentile(whole, p) - straight.percentile(whole, p);
            added / 1e3 / ROUNDS as f64
        };
        Ok(vec![
            Row::alone(case.name, "turns per second", "/s", rate),
            Row::alone(case.name, "cores the mediator used", "", busy),
            Row::alone(
                case.name,
                "added per hidden round, p50",
                "ms",
                per_round(0.5),
            )
            .at_most(0.3),
            Row::alone(
                case.name,
                "added per hidden round, p99",
                "ms",
                per_round(0.99),
            )
            .at_most(1.0),
        ])
    }
}

/// Returns the requests that the mediator sends for a turn of this case: model, tool, model, …
fn hop_by_hop(case: &Case) -> Work {
    let model = Step::post(CHAT, case.body.clone());
    let tool = match case.transport {
        Transport::Http => Step::get(TOOL),
        Transport::Mcp | Transport::McpSession | Transport::McpSessions => mcp::downstream_call(),
    };
    let mut steps = vec![model.clone()];
    for _ in 0..case.rounds {
        steps.extend([tool.clone(), model.clone()]);
    }
    Work(steps)
}

/// A short conversation whose model requests this number of rounds.
fn chat(rounds: usize, stream: bool) -> String {
    said(&format!("otter-r{rounds}"), stream)
}

pub(crate) fn said(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"house/{model}","stream":{stream},"temperature":0.2,"messages":[{{"role":"system","content":"You look after the pond. Be brief, and say where a figure comes from."}},{{"role":"user","content":"How deep is it at the northern end, and has anybody measured the reeds?"}}]}}"#
    )
}

/// Returns a request with about 100 KB of history, as agents send it after some hours: prose, code,
/// calls and results of the runner's own 40 tools.
pub(crate) fn long_chat() -> String {
    let prose = "The reeds were cut back in spring\\nso the shore is \\\"open\\\" again; see the notes of the 3rd. ";
    let mut messages =
        vec![r#"{"role":"system","content":"You look after the pond."}"#.to_string()];
    for turn in 0..30 {
        messages.push(format!(
            r#"{{"role":"user","content":"Question {turn}: {}"}}"#,
            prose.repeat(6)
        ));
        messages.push(format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_r{turn}","type":"function","function":{{"name":"read_file_{turn}","arguments":"{{\"path\":\"/notes/{turn}.md\",\"lines\":[1,40]}}"}}}}]}}"#
        ));
        messages.push(format!(
            r#"{{"role":"tool","tool_call_id":"call_r{turn}","content":"{}"}}"#,
            prose.repeat(18)
        ));
        messages.push(format!(
            r#"{{"role":"assistant","content":"Answer {turn}: {}"}}"#,
            prose.repeat(8)
        ));
    }
    messages.push(r#"{"role":"user","content":"And today?"}"#.to_string());
    format!(
        r#"{{"model":"house/otter-r0","messages":[{}],"tools":[{}]}}"#,
        messages.join(","),
        runner_tools(40)
    )
}

/// Returns declarations of this number of the runner's own tools.
fn runner_tools(count: usize) -> String {
    let tools: Vec<String> = (0..count)
        .map(|at| {
            format!(
                r#"{{"type":"function","function":{{"name":"read_file_{at}","description":"Read lines of a file of the notes","parameters":{{"type":"object","properties":{{"path":{{"type":"string","description":"Path from the root of the notes"}},"lines":{{"type":"array","items":{{"type":"integer"}}}}}},"required":["path"]}}}}}}"#
            )
        })
        .collect();
    tools.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_declared_size() {
        for body in [chat(2, true), chat(0, false), long_chat()] {
            serde_json::from_str::<serde_json::Value>(&body).unwrap();
        }
        let size = long_chat().len();
        assert!((105_000..120_000).contains(&size), "{size}");
    }
}
