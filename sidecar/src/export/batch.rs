//! Lines of the record as one OTLP message, bounded by bytes and by count.
//!
//! Each log record is one line: the body is its text, and the attributes `toolcrib.*` say whose line it
//! is and where it stands in its chain.

use std::io;
use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message;
use toolcrib_record::LinkKind;

use super::files::RecordFiles;
use super::line::{Arguments, ExportedLine};
use crate::telemetry::otlp::{self, attribute, number, text};
use crate::telemetry::spans::nanos;

/// Most lines of a message.
const MOST_LINES: usize = 512;
/// A message ends with the line that reaches this. Half of the smallest usual bound on the body of a
/// request, which is nginx' 1 MiB.
const ENOUGH_BYTES: usize = 512 * 1024;
/// Most lines that are read for one message, whether they are sent or not: a bound of the time.
const MOST_READ: usize = 4 * MOST_LINES;

/// The agent of the record and its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub agent: String,
    pub namespace: String,
    pub pod: String,
}

/// Lines that are sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub records: Vec<LogRecord>,
    /// Lines of the record that the collector does not get, counted since the batch before.
    pub lost: u64,
}

impl Batch {
    /// Reads the next lines. `None`: all were read.
    pub fn read(
        files: &mut RecordFiles,
        source: &Source,
        arguments: Arguments,
    ) -> io::Result<Option<Batch>> {
        let (mut records, mut bytes, mut read) = (Vec::new(), 0, 0);
        while records.len() < MOST_LINES && bytes < ENOUGH_BYTES && read < MOST_READ {
            let line = match files.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) if records.is_empty() => return Err(error),
                // The lines that were read are sent; the next batch meets the error again.
                Err(_) => break,
            };
            read += 1;
            match ExportedLine::of(&line, arguments) {
                Some(line) => {
                    bytes += line.text.len();
                    records.push(record(line, source));
                }
                None => files.lose(),
            }
        }
        let lost = files.take_lost();
        if lost > 0 {
            records.insert(0, record(ExportedLine::gap(lost), source));
        }
        Ok((!records.is_empty()).then_some(Batch { records, lost }))
    }
}

/// The message with these records.
pub fn message(records: &[LogRecord], pod: &str) -> Vec<u8> {
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(otlp::resource(pod)),
            scope_logs: vec![ScopeLogs {
                scope: Some(otlp::scope()),
                log_records: records.to_vec(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

fn record(line: ExportedLine, source: &Source) -> LogRecord {
    let mut attributes = vec![
        text("toolcrib.agent", &source.agent),
        text("toolcrib.namespace", &source.namespace),
        text("toolcrib.pod", &source.pod),
        text("toolcrib.kind", &line.kind),
    ];
    place(&line, &mut attributes);
    LogRecord {
        time_unix_nano: line.time.map_or(0, |time| nanos(time.into())),
        observed_time_unix_nano: nanos(SystemTime::now()),
        severity_number: SeverityNumber::Info.into(),
        body: Some(AnyValue {
            value: Some(Value::StringValue(line.text)),
        }),
        attributes,
        ..LogRecord::default()
    }
}

/// Adds the place of the line in its chain.
fn place(line: &ExportedLine, attributes: &mut Vec<KeyValue>) {
    let Some(place) = &line.place else { return };
    attributes.push(text("toolcrib.chain", &place.chain));
    match place.kind {
        LinkKind::Chained { seq, aside } => {
            attributes.push(number("toolcrib.seq", seq));
            attributes.extend(aside.map(|it| text("toolcrib.aside", &it.to_string())));
        }
        LinkKind::Aside { after } => attributes.push(number("toolcrib.after", after)),
    }
    attributes.push(text("toolcrib.prev", &place.prev.to_string()));
    attributes.push(text("toolcrib.hash", &place.hash.to_string()));
    if line.arguments == Arguments::Removed {
        attributes.push(attribute("toolcrib.arguments", Value::BoolValue(false)));
    }
}
