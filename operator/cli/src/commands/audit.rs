//! `audit`: the calls of a record, one row each, or their numbers.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use toolcrib_bounds::{count, cut};

use crate::args::{AuditOutput, AuditQuery, OperatorArgs};
use crate::cluster::{LogPart, PodFacts, Session};
use crate::failure::Failure;
use crate::print;
use crate::record::{
    Call, Entry, Joiner, Outcome, Reach, Request, Splitter, Statistics, read_files,
};

/// Rows whose columns are aligned with one another.
const BATCH: usize = 500;
/// Longest arguments in a table, in bytes.
const SHOWN: usize = 80;
/// Most rows of a summary; models invent names of tools.
const MAX_ROWS: usize = 10_000;
/// The exit code if the record does not reach back to `--since`.
const NOT_WHOLE: u8 = 3;

pub fn audit(query: &AuditQuery) -> Result<ExitCode, Failure> {
    let mut report = Report::new(query);
    let statistics = match query.paths.is_empty() {
        true => from_logs(query, &mut report)?,
        false => {
            let mut joiner = Joiner::default();
            let too_long = read_files(&query.paths, |_, line| {
                joiner.push(line, |entry| report.entry(entry));
                report.failure()
            })?;
            let mut statistics = joiner.end(|entry| report.entry(entry));
            statistics.broken += too_long;
            statistics
        }
    };
    report.finish()?;
    Ok(remarks(query, &statistics))
}

/// Gives the entries of the record that a verb is about.
pub fn from_logs(query: &AuditQuery, report: &mut Report<'_>) -> Result<Statistics, Failure> {
    let session = Session::open(&query.cluster, &OperatorArgs::default())?;
    let pods = session.mediated_pods(query.agent.as_deref())?;
    let mut all = Statistics::default();
    let mut readers: Vec<Option<(Splitter, Joiner)>> = pods.iter().map(|_| None).collect();
    let is_shown = std::io::stderr().is_terminal();
    let part = |index: usize, part: LogPart<'_>| {
        let Some((pod, reader)) = pods.get(index).zip(readers.get_mut(index)) else {
            return;
        };
        let mut out = |entry| report.entry(named(entry, pod));
        match part {
            LogPart::Bytes(bytes) => {
                let (splitter, joiner) = reader.get_or_insert_default();
                splitter.push(bytes, |line| joiner.push(line, &mut out));
            }
            LogPart::End(end) => {
                if let Some((mut splitter, mut joiner)) = reader.take() {
                    splitter.end(|line| joiner.push(line, &mut out));
                    all.broken += splitter.too_long;
                    let read = joiner.end(out);
                    all.broken += read.broken;
                    all.missed += read.missed;
                    all.pods.extend(read.pods);
                }
                if let Err(error) = end {
                    let error = print::brief(&error);
                    eprintln!(
                        "note: the log of pod {} was not read whole: {error}",
                        pod.pod
                    );
                }
            }
        }
    };
    session.mediator_logs(&pods, part, |done| {
        if is_shown {
            eprint!("\rread the logs of {done} of {}", count(pods.len(), "pod"));
        }
    });
    if is_shown {
        eprintln!();
    }
    Ok(all)
}

/// The label of a pod names its Agent; lines have the identity for services, which can be the pod.
fn named(mut entry: Entry, pod: &PodFacts) -> Entry {
    let (agent, namespace) = match &mut entry {
        Entry::Call(call) => (&mut call.agent, &mut call.namespace),
        Entry::Request(request) => (&mut request.agent, &mut request.namespace),
    };
    agent.clone_from(&pod.agent.name);
    namespace.clone_from(&pod.agent.namespace);
    entry
}

/// Says how far back the record reaches, and what of it was not read.
fn remarks(query: &AuditQuery, statistics: &Statistics) -> ExitCode {
    if statistics.broken > 0 {
        let lines = count(statistics.broken as usize, "line");
        eprintln!("note: {lines} could not be read, as a kill leaves one");
    }
    if statistics.missed > 0 {
        let lines = count(statistics.missed as usize, "line");
        eprintln!("note: the record itself says that {lines} are missing where it was read");
    }
    let mut code = ExitCode::SUCCESS;
    let is_short = |reach: &Reach| {
        let before = |since| since < reach.earliest;
        !reach.is_whole && query.since.is_some_and(before)
    };
    for (pod, reach) in &statistics.pods {
        let pod = print::plain(pod);
        let Reach { earliest, is_whole } = reach;
        if is_short(reach) {
            code = ExitCode::from(NOT_WHOLE);
            eprintln!(
                "pod {pod}: the earliest line is of {earliest}; for earlier ones, read the files of its record or your log store with -f"
            );
        } else if query.output == AuditOutput::Table {
            let begin = if *is_whole {
                "begins at"
            } else {
                "is read from"
            };
            eprintln!("pod {pod}: the record {begin} {earliest}");
        }
    }
    code
}

/// Filters entries, and prints or counts them as they come.
pub struct Report<'q> {
    query: &'q AuditQuery,
    rows: Vec<Vec<String>>,
    has_header: bool,
    widths: Vec<usize>,
    tools: BTreeMap<(String, String, String), ToolNumbers>,
    agents: BTreeMap<(String, String), AgentNumbers>,
    /// The first failure to print.
    failed: Option<std::io::Error>,
    out: std::io::BufWriter<std::io::Stdout>,
}

impl<'q> Report<'q> {
    pub fn new(query: &'q AuditQuery) -> Self {
        Self {
            query,
            rows: Vec::new(),
            has_header: false,
            widths: Vec::new(),
            tools: BTreeMap::new(),
            agents: BTreeMap::new(),
            failed: None,
            out: std::io::BufWriter::new(std::io::stdout()),
        }
    }

    pub fn entry(&mut self, entry: Entry) {
        match entry {
            Entry::Call(call) if self.wants(&call) => self.call(&call),
            Entry::Request(request) if self.wants_request(&request) => self.request(&request),
            Entry::Call(_) | Entry::Request(_) => {}
        }
    }

    fn wants(&self, call: &Call) -> bool {
        let query = self.query;
        let grant = |wanted: &String| match &call.grant {
            Some(grant) if wanted.contains('/') => grant == wanted,
            Some(grant) => grant.rsplit('/').next() == Some(wanted),
            None => false,
        };
        self.wants_time(&call.when)
            && self.wants_agent(&call.namespace, &call.agent)
            && query.tool.as_ref().is_none_or(|tool| *tool == call.tool)
            && query
                .request
                .as_ref()
                .is_none_or(|id| *id == call.request_id)
            && query.grant.as_ref().is_none_or(grant)
            && (!query.denied || call.outcome == Outcome::Denied)
            && (!query.failed || call.outcome == Outcome::Failed)
            && (!query.unsettled || call.is_unsettled())
    }

    fn wants_request(&self, request: &Request) -> bool {
        let query = self.query;
        (query.requests || query.summary)
            && self.wants_time(&request.when)
            && self.wants_agent(&request.namespace, &request.agent)
            && query.request.as_ref().is_none_or(|id| *id == request.request_id)
            // A filter on calls leaves requests without them out.
            && query.tool.is_none()
            && query.grant.is_none()
            && !(query.denied || query.failed || query.unsettled)
    }

    fn wants_agent(&self, namespace: &str, agent: &str) -> bool {
        let wanted = &self.query.cluster.namespace;
        // Lines of earlier releases have no namespace.
        let same = |wanted: &String| namespace.is_empty() || wanted == namespace;
        self.query.agent.as_ref().is_none_or(|name| name == agent)
            && wanted.as_ref().is_none_or(same)
    }

    fn wants_time(&self, when: &str) -> bool {
        let Self { query, .. } = self;
        if query.since.is_none() && query.until.is_none() {
            return true;
        }
        let Ok(when) = when.parse::<Timestamp>() else {
            return false;
        };
        query.since.is_none_or(|since| since <= when)
            && query.until.is_none_or(|until| when < until)
    }

    fn call(&mut self, call: &Call) {
        if self.query.summary {
            let key = (
                call.namespace.clone(),
                call.agent.clone(),
                call.tool.clone(),
            );
            let key = match self.tools.len() < MAX_ROWS || self.tools.contains_key(&key) {
                true => key,
                false => (String::new(), String::new(), OTHERS.to_owned()),
            };
            self.tools.entry(key).or_default().add(call);
            return;
        }
        match self.query.output {
            AuditOutput::Json => self.json(call),
            AuditOutput::Table => self.row(call_row(call)),
            AuditOutput::Csv => self.csv(CSV_CALL, &csv_call(call)),
        }
    }

    fn request(&mut self, request: &Request) {
        if self.query.summary {
            let key = (request.namespace.clone(), request.agent.clone());
            let key = match self.agents.len() < MAX_ROWS || self.agents.contains_key(&key) {
                true => key,
                false => (String::new(), OTHERS.to_owned()),
            };
            let numbers = self.agents.entry(key).or_default();
            numbers.requests += 1;
            numbers.failed += u64::from(request.error.is_some());
            numbers.prompt_tokens += request.prompt_tokens;
            numbers.completion_tokens += request.completion_tokens;
            return;
        }
        match self.query.output {
            AuditOutput::Json => self.json(request),
            AuditOutput::Table => self.row(request_row(request)),
            AuditOutput::Csv => self.csv(CSV_CALL, &csv_request(request)),
        }
    }

    fn json(&mut self, value: &impl Serialize) {
        // As in the record, no byte may act on a terminal.
        match serde_json::to_string(value) {
            Ok(text) => self.print(&format!("{}\n", escaped(&text))),
            Err(error) => self.failed = self.failed.take().or(Some(error.into())),
        }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
        if self.rows.len() >= BATCH {
            self.flush_rows();
        }
    }

    fn flush_rows(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        if !std::mem::replace(&mut self.has_header, true) {
            rows.insert(0, HEADER.map(str::to_owned).to_vec());
        }
        let text = aligned(&rows, &mut self.widths);
        self.print(&text);
    }

    fn csv(&mut self, header: &[&str], cells: &[String]) {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_header, true) {
            text += &(header.join(",") + "\n");
        }
        let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
        text += &(cells.join(",") + "\n");
        self.print(&text);
    }

    fn print(&mut self, text: &str) {
        if self.failed.is_none()
            && let Err(error) = self.out.write_all(text.as_bytes())
        {
            self.failed = Some(error);
        }
    }

    /// The failure to print, which ends the reading. A reader that has closed the pipe is none, but
    /// ends it too.
    fn failure(&self) -> Result<(), Failure> {
        match &self.failed {
            Some(error) => Err(Failure::Failed(anyhow::anyhow!(
                "cannot write to standard output: {error}"
            ))),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        match (self.query.summary, self.query.output) {
            (true, AuditOutput::Table) => self.summary_table(),
            (true, AuditOutput::Json) => self.summary_json(),
            (true, AuditOutput::Csv) => self.summary_csv(),
            (false, AuditOutput::Table) if !self.rows.is_empty() || !self.has_header => {
                self.flush_rows();
            }
            (false, AuditOutput::Table | AuditOutput::Json | AuditOutput::Csv) => {}
        }
        self.failure()?;
        self.out
            .flush()
            .context("cannot write to standard output")?;
        Ok(())
    }

    fn summary_table(&mut self) {
        let tools = std::mem::take(&mut self.tools);
        let agents = std::mem::take(&mut self.agents);
        let rows: Vec<Vec<String>> = tools.iter().map(|(key, it)| it.cells(key)).collect();
        let text = print::table(&TOOL_HEADER, &rows);
        self.print(&text);
        if !agents.is_empty() {
            let rows: Vec<Vec<String>> = agents.iter().map(|(key, it)| it.cells(key)).collect();
            let text = print::table(&AGENT_HEADER, &rows);
            self.print(&format!("\n{text}"));
        }
    }

    fn summary_json(&mut self) {
        #[derive(Serialize)]
        struct Tool<'a> {
            namespace: &'a str,
            agent: &'a str,
            tool: &'a str,
            calls: u64,
            ok: u64,
            failed: u64,
            denied: u64,
            unknown: u64,
            p50_ms: Option<u64>,
            p95_ms: Option<u64>,
        }
        for ((namespace, agent, tool), it) in std::mem::take(&mut self.tools) {
            self.json(&Tool {
                namespace: &namespace,
                agent: &agent,
                tool: &tool,
                calls: it.calls,
                ok: it.ok,
                failed: it.failed,
                denied: it.denied,
                unknown: it.unknown,
                p50_ms: it.latencies.quantile(50),
                p95_ms: it.latencies.quantile(95),
            });
        }
        for ((namespace, agent), numbers) in std::mem::take(&mut self.agents) {
            self.json(&serde_json::json!({
                "namespace": namespace, "agent": agent, "requests": numbers.requests,
                "failed": numbers.failed, "prompt_tokens": numbers.prompt_tokens,
                "completion_tokens": numbers.completion_tokens,
            }));
        }
    }

    fn summary_csv(&mut self) {
        for (key, numbers) in std::mem::take(&mut self.tools) {
            self.csv(&TOOL_HEADER, &numbers.cells(&key));
        }
    }
}

/// The row for names beyond the bound of a summary.
const OTHERS: &str = "(others)";

const HEADER: [&str; 8] = [
    "WHEN",
    "AGENT",
    "TOOL",
    "OUTCOME",
    "TIER",
    "GRANT",
    "MS",
    "CALL AND ARGUMENTS",
];

fn call_row(call: &Call) -> Vec<String> {
    let outcome = match &call.code {
        Some(code) if call.outcome == Outcome::Denied => format!("denied: {code}"),
        Some(code) => code.clone(),
        None => call.outcome.name().to_owned(),
    };
    let id = match call.call_id.is_empty() {
        true => &call.request_id,
        false => &call.call_id,
    };
    vec![
        call.when.clone(),
        agent(&call.namespace, &call.agent),
        call.tool.clone(),
        outcome,
        call.tier.clone().unwrap_or_default(),
        call.grant.clone().unwrap_or_default(),
        call.latency_ms
            .map_or_else(String::new, |it| it.to_string()),
        format!("{id} {}", cut(call.arguments.get(), SHOWN)),
    ]
}

fn request_row(request: &Request) -> Vec<String> {
    let outcome = request.error.clone().unwrap_or_else(|| "ok".to_owned());
    let model = request.model.clone().unwrap_or_default();
    vec![
        request.when.clone(),
        agent(&request.namespace, &request.agent),
        format!("request: {}", count(request.calls, "call")),
        format!("{outcome} ({})", request.http_status),
        String::new(),
        String::new(),
        request.duration_ms.to_string(),
        format!("{} {model}", request.request_id),
    ]
}

fn agent(namespace: &str, agent: &str) -> String {
    match namespace.is_empty() {
        true => agent.to_owned(),
        false => format!("{namespace}/{agent}"),
    }
}

const CSV_CALL: &[&str] = &[
    "when",
    "namespace",
    "agent",
    "pod",
    "request_id",
    "call_id",
    "tool",
    "outcome",
    "code",
    "executed",
    "tier",
    "grant",
    "rule",
    "latency_ms",
    "arguments",
];

fn csv_call(call: &Call) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        call.when.clone(),
        call.namespace.clone(),
        call.agent.clone(),
        call.pod.clone(),
        call.request_id.clone(),
        call.call_id.clone(),
        call.tool.clone(),
        call.outcome.name().to_owned(),
        text(&call.code),
        call.executed.map_or_else(String::new, |it| it.to_string()),
        text(&call.tier),
        text(&call.grant),
        text(&call.rule),
        call.latency_ms
            .map_or_else(String::new, |it| it.to_string()),
        call.arguments.get().to_owned(),
    ]
}

fn csv_request(request: &Request) -> Vec<String> {
    let mut cells = vec![String::new(); CSV_CALL.len()];
    let outcome = request.error.as_ref().map_or("ok", |_| "failed");
    for (name, value) in [
        ("when", request.when.clone()),
        ("namespace", request.namespace.clone()),
        ("agent", request.agent.clone()),
        ("pod", request.pod.clone()),
        ("request_id", request.request_id.clone()),
        ("outcome", outcome.to_owned()),
        ("code", request.error.clone().unwrap_or_default()),
        ("latency_ms", request.duration_ms.to_string()),
    ] {
        if let Some(at) = CSV_CALL.iter().position(|column| *column == name) {
            cells[at] = value;
        }
    }
    cells
}

/// Quotes a cell. Spreadsheets calculate cells that begin with some characters, so these get a mark.
fn csv_cell(text: &str) -> String {
    let text = print::plain(text);
    let mark = match text.starts_with(['=', '+', '-', '@']) {
        true => "'",
        false => "",
    };
    match text.contains(['"', ',', ' ']) || !mark.is_empty() {
        true => format!("\"{mark}{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Escapes the characters of JSON text that could act on a terminal. JSON has them in strings only.
fn escaped(json: &str) -> String {
    let speaks = |c: char| c.is_control() || toolcrib_bounds::is_hidden(c);
    if !json.contains(speaks) {
        return json.to_owned();
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match speaks(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text += &format!("\\u{unit:04x}");
                }
            }
            false => text.push(c),
        }
    }
    text
}

/// Aligns rows; columns grow with each batch, so a long table needs no memory for all its rows.
fn aligned(rows: &[Vec<String>], widths: &mut Vec<usize>) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| print::plain(cell).into_owned())
                .collect()
        })
        .collect();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&*widths)
            .map(|(cell, width)| format!("{cell:width$}   "));
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

const TOOL_HEADER: [&str; 9] = [
    "AGENT", "TOOL", "READS", "CALLS", "FAILED", "DENIED", "UNKNOWN", "P50", "P95",
];

#[derive(Debug, Default)]
struct ToolNumbers {
    read_only: Option<bool>,
    calls: u64,
    ok: u64,
    failed: u64,
    denied: u64,
    unknown: u64,
    latencies: Latencies,
}

impl ToolNumbers {
    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.read_only = call.read_only.or(self.read_only);
        let number = match call.outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Failed => &mut self.failed,
            Outcome::Denied => &mut self.denied,
            Outcome::Unknown => &mut self.unknown,
        };
        *number += 1;
        if call.executed == Some(true)
            && let Some(latency) = call.latency_ms
        {
            self.latencies.add(latency);
        }
    }

    fn cells(&self, (namespace, name, tool): &(String, String, String)) -> Vec<String> {
        let reads = match self.read_only {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let quantile = |percent| match self.latencies.quantile(percent) {
            Some(ms) => format!("{ms} ms"),
            None => String::new(),
        };
        let mut cells = vec![agent(namespace, name), tool.clone(), reads.to_owned()];
        let numbers = [self.calls, self.failed, self.denied, self.unknown];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.extend([quantile(50), quantile(95)]);
        cells
    }
}

const AGENT_HEADER: [&str; 5] = ["AGENT", "REQUESTS", "FAILED", "PROMPT", "COMPLETION"];

#[derive(Debug, Default)]
struct AgentNumbers {
    requests: u64,
    failed: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl AgentNumbers {
    fn cells(&self, (namespace, name): &(String, String)) -> Vec<String> {
        let mut cells = vec![agent(namespace, name)];
        let tokens = [self.prompt_tokens, self.completion_tokens];
        let numbers = [self.requests, self.failed].into_iter().chain(tokens);
        cells.extend(numbers.map(|number| number.to_string()));
        cells
    }
}

/// Counts of latencies in buckets, each at most 1.6 % wide, so that memory does not grow with calls.
#[derive(Debug, Default)]
struct Latencies {
    buckets: BTreeMap<u32, u64>,
    calls: u64,
}

impl Latencies {
    /// Values below are counted one by one.
    const EXACT: u64 = 128;

    fn add(&mut self, ms: u64) {
        *self.buckets.entry(Self::bucket(ms)).or_default() += 1;
        self.calls += 1;
    }

    fn bucket(ms: u64) -> u32 {
        if ms < Self::EXACT {
            return ms as u32;
        }
        let bits = ms.ilog2();
        (bits - 5) * 64 + ((ms >> (bits - 6)) & 63) as u32
    }

    /// The least value in a bucket.
    fn value(bucket: u32) -> u64 {
        if u64::from(bucket) < Self::EXACT {
            return bucket.into();
        }
        let bits = bucket / 64 + 5;
        (64 + u64::from(bucket % 64)) << (bits - 6)
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let rank = (self.calls * percent).div_ceil(100).max(1);
        let mut below = 0;
        self.buckets.iter().find_map(|(bucket, calls)| {
            below += calls;
            (below >= rank).then(|| Self::value(*bucket))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(50), None);
        for ms in 1..=10_000 {
            latencies.add(ms);
        }
        for (percent, exact) in [(50, 5_000), (95, 9_500)] {
            let near = latencies.quantile(percent).unwrap();
            assert!(
                near <= exact && near * 1_000 > exact * 980,
                "{percent}: {near}"
            );
        }
        for ms in [0, 127, 128, 129, 1 << 20, u64::MAX] {
            let value = Latencies::value(Latencies::bucket(ms));
            assert!(value <= ms && ms - value <= ms / 64, "{ms}: {value}");
        }
    }

    #[test]
    fn cells_neither_act_nor_calculate() {
        assert_eq!(csv_cell("=1+1"), "\"'=1+1\"");
        assert_eq!(csv_cell("a\"b,\u{1b}"), "\"a\"\"b,\\u{1b}\"");
        assert_eq!(escaped("\"a\u{9b}\u{202e}\""), "\"a\\u009b\\u202e\"");
    }
}
