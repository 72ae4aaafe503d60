//! `audit`: the calls of a record, one row each, or their numbers.
//!
//! Here: filtering, and printing as the lines come. [`columns`] has the rows, [`summary`] the numbers,
//! [`unknown`] the notes on names that the record does not have; [`verify`] is a verb of its own. Not
//! here: reading ([`crate::record`]). Invariant: memory does not grow with the record.

mod columns;
mod summary;
mod unknown;
pub mod verify;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use toolcrib_mediation::ConnectionCause;

use self::columns::{
    CSV_CALL, HEADER, aligned, call_row, csv_call, csv_cell, csv_request, escaped, request_row,
};
use self::summary::{Summary, TOOL_HEADER};
use self::unknown::SeenNames;
use crate::args::{AuditOutput, AuditQuery};
use crate::failure::Failure;
use crate::record::{self, Call, Entry, FailedConnection, Outcome, Request};

/// Rows whose columns are aligned with one another.
const BATCH: usize = 500;

pub fn audit(query: &AuditQuery) -> Result<ExitCode, Failure> {
    let mut report = Report::new(query);
    let read = record::read(&query.record, query.agent.as_deref(), |entry| {
        report.entry(entry);
        report.failure()
    });
    let printed = read.and_then(|statistics| report.finish().map(|()| statistics));
    if report.is_closed() {
        return Ok(ExitCode::SUCCESS);
    }
    let statistics = printed?;
    report.names.print_notes(query);
    for cause in &report.causes {
        eprintln!("note: {}", cause.with_advice());
    }
    let is_table = query.output == AuditOutput::Table;
    Ok(record::remarks(&query.record, &statistics, is_table))
}

/// Whether the grant of a call is the one of `--grant`: NAME or NAMESPACE/NAME.
fn is_grant(grant: &str, wanted: &str) -> bool {
    match wanted.contains('/') {
        true => grant == wanted,
        false => grant.rsplit('/').next() == Some(wanted),
    }
}

/// Filters entries, and prints or counts them as they come.
struct Report<'q> {
    query: &'q AuditQuery,
    rows: Vec<Vec<String>>,
    has_header: bool,
    widths: Vec<usize>,
    summary: Summary,
    names: SeenNames,
    /// Why connections in the rows failed.
    causes: BTreeSet<ConnectionCause>,
    /// The first failure to print.
    failed: Option<std::io::Error>,
    out: std::io::BufWriter<std::io::Stdout>,
}

impl<'q> Report<'q> {
    fn new(query: &'q AuditQuery) -> Self {
        Self {
            query,
            rows: Vec::new(),
            has_header: false,
            widths: Vec::new(),
            summary: Summary::default(),
            names: SeenNames::new(query),
            causes: BTreeSet::new(),
            failed: None,
            out: std::io::BufWriter::new(std::io::stdout()),
        }
    }

    fn entry(&mut self, entry: Entry) {
        let (namespace, agent) = match &entry {
            Entry::Call(call) | Entry::Question(call) => {
                self.names.add(call);
                (&call.namespace, &call.agent)
            }
            Entry::Request(request) => (&request.namespace, &request.agent),
            Entry::Rules(_) => return,
        };
        let is_wanted = self.wants_agent(namespace, agent);
        self.names.add_agent(agent, is_wanted);
        match entry {
            Entry::Call(call) if self.wants(&call) => self.call(&call),
            Entry::Request(request) if self.wants_request(&request) => self.request(&request),
            Entry::Question(call) if self.query.pending && self.wants(&call) => self.call(&call),
            Entry::Call(_) | Entry::Question(_) | Entry::Request(_) | Entry::Rules(_) => {}
        }
    }

    fn wants(&self, call: &Call) -> bool {
        let query = self.query;
        let grant = |wanted: &String| {
            let grant = call.grant.as_ref();
            grant.is_some_and(|grant| is_grant(grant, wanted))
        };
        let decided = |person: &String| {
            let approval = call.approval.as_ref();
            approval.is_some_and(|it| it.decided_by.contains(person))
        };
        self.query.record.includes(&call.when)
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
            && (!query.would_deny || call.would_deny.is_some())
            && (!query.pending || call.outcome == Outcome::Waiting)
            && query.decided_by.as_ref().is_none_or(decided)
    }

    fn wants_request(&self, request: &Request) -> bool {
        let query = self.query;
        (query.requests || query.summary)
            && self.query.record.includes(&request.when)
            && self.wants_agent(&request.namespace, &request.agent)
            && query.request.as_ref().is_none_or(|id| *id == request.request_id)
            // A filter on calls leaves requests without them out.
            && query.tool.is_none()
            && query.grant.is_none()
            && query.decided_by.is_none()
            && !(query.denied || query.failed || query.unsettled || query.would_deny)
            && !query.pending
    }

    fn wants_agent(&self, namespace: &str, agent: &str) -> bool {
        let wanted = &self.query.record.cluster.namespace;
        // Lines of earlier releases have no namespace.
        let same = |wanted: &String| namespace.is_empty() || wanted == namespace;
        self.query.agent.as_ref().is_none_or(|name| name == agent)
            && wanted.as_ref().is_none_or(same)
    }

    fn call(&mut self, call: &Call) {
        if self.query.summary {
            self.summary.call(call);
            return;
        }
        match self.query.output {
            AuditOutput::Json => self.json(call),
            AuditOutput::Table => {
                self.cause(call.connection.as_ref());
                self.row(call_row(call));
            }
            AuditOutput::Csv => self.csv(CSV_CALL, &csv_call(call)),
        }
    }

    fn request(&mut self, request: &Request) {
        if self.query.summary {
            self.summary.request(request);
            return;
        }
        match self.query.output {
            AuditOutput::Json => self.json(request),
            AuditOutput::Table => {
                self.cause(request.connection.as_ref());
                self.row(request_row(request));
            }
            AuditOutput::Csv => self.csv(CSV_CALL, &csv_request(request)),
        }
    }

    fn cause(&mut self, connection: Option<&FailedConnection>) {
        self.causes
            .extend(connection.and_then(FailedConnection::known_cause));
    }

    fn json(&mut self, value: &impl Serialize) {
        // As in the record, no byte may act on a terminal.
        match serde_json::to_string(value) {
            Ok(text) => self.print(&format!("{}\n", escaped(&text))),
            Err(error) => self.failed = self.failed.take().or(Some(error.into())),
        }
    }

    /// Returns whether the reader has closed the pipe (`| head`).
    fn is_closed(&self) -> bool {
        let closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        self.failed.as_ref().is_some_and(closed)
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

    /// The failure to print, which ends the reading.
    fn failure(&self) -> Result<(), Failure> {
        match &self.failed {
            Some(error) => Err(Failure::Failed(anyhow::anyhow!(
                "cannot write to standard output: {error}"
            ))),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        match (self.query.summary, self.query.output) {
            (true, AuditOutput::Table) => self.print(&self.summary.table()),
            (true, AuditOutput::Json) => {
                for value in self.summary.values() {
                    self.json(&value);
                }
            }
            (true, AuditOutput::Csv) => {
                for cells in self.summary.rows() {
                    self.csv(&TOOL_HEADER, &cells);
                }
            }
            (false, AuditOutput::Table) if !self.rows.is_empty() || !self.has_header => {
                self.flush_rows();
            }
            (false, AuditOutput::Table | AuditOutput::Json | AuditOutput::Csv) => {}
        }
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error);
        }
        self.failure()
    }
}
