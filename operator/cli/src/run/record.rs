//! Summarizes the mediator's record: one line per failed request and one per tool call.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use toolcrib_mediation::RunnerCode;

use crate::print;
use crate::record::FailedConnection;

const FILE: &str = "history.jsonl";
/// Longest arguments in the summary, in characters.
const SHOWN: usize = 120;

/// The fields of a record line that the summary uses. Lines of another `kind` have no trace.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    http_status: Option<u16>,
    /// The error code that the program got.
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    connection: Option<FailedConnection>,
    #[serde(default)]
    tool_trace: Vec<Round>,
}

#[derive(Deserialize)]
struct Round {
    #[serde(default)]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    latency_ms: Option<f64>,
    #[serde(default)]
    connection: Option<FailedConnection>,
}

/// Counts the lines of an existing record, in a folder that is kept.
pub fn count(folder: &Path) -> anyhow::Result<usize> {
    Ok(lines(folder)?.len())
}

/// Summarizes the lines after the first `skip`.
pub fn summary(folder: &Path, skip: usize) -> anyhow::Result<String> {
    let lines = lines(folder)?;
    // If the record was rotated meanwhile, all of its lines are new.
    let new = lines.get(skip..).unwrap_or(&lines);
    Ok(describe(new))
}

fn lines(folder: &Path) -> anyhow::Result<Vec<String>> {
    let path = folder.join(FILE);
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    BufReader::new(file)
        .lines()
        .collect::<io::Result<_>>()
        .with_context(|| format!("cannot read {}", path.display()))
}

fn describe(lines: &[String]) -> String {
    // Write-ahead lines have another kind, and a line that was cut by a kill cannot be decoded.
    let records: Vec<Line> = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter(|line| matches!(line.kind.as_deref(), None | Some("turn")))
        .collect();
    let calls: Vec<&Call> = records
        .iter()
        .flat_map(|record| &record.tool_trace)
        .flat_map(|round| &round.tool_calls)
        .collect();
    let mut text = format!(
        "toolcrib: {}, {}\n",
        toolcrib_bounds::count(records.len(), "request"),
        toolcrib_bounds::count(calls.len(), "managed tool call")
    );
    let failed = records.iter().filter_map(failed_request);
    for line in failed.chain(calls.iter().map(|call| one_call(call))) {
        writeln!(text, "  {line}").expect("writing to a string cannot fail");
    }
    if records.iter().any(cause_is_in_the_log) {
        text += "the mediator's log has the cause: --verbose prints it\n";
    }
    text
}

/// Describes a request that got an error. `None`: it succeeded.
fn failed_request(record: &Line) -> Option<String> {
    let error = print::plain(record.error.as_deref()?);
    let model = record.model.as_deref().map(print::brief);
    let model = model.map_or_else(String::new, |model| format!(" for {model}"));
    let status = record
        .http_status
        .map_or_else(String::new, |status| format!(" (status {status})"));
    let cause = record
        .connection
        .as_ref()
        .map_or_else(String::new, |connection| format!(": {connection}"));
    Some(format!("request{model}: {error}{status}{cause}"))
}

fn one_call(call: &Call) -> String {
    let error = &call.result["error"];
    let outcome = match (&call.result["ok"], error["code"].as_str()) {
        (Value::Bool(true), _) => "ok".to_string(),
        (_, Some(code)) => print::plain(code).into_owned(),
        _ => "no result".to_string(),
    };
    let arguments: String = call.arguments.to_string().chars().take(SHOWN).collect();
    let latency = call
        .latency_ms
        .map_or_else(String::new, |ms| format!(" ({ms} ms)"));
    let cause = match (&call.connection, print::message_of(error)) {
        (Some(connection), _) => format!(": {connection}"),
        (None, Some(message)) => format!(": {}", print::brief(&message)),
        (None, None) => String::new(),
    };
    let (name, arguments) = (print::brief(&call.name), print::plain(&arguments));
    format!("{name} {arguments}: {outcome}{latency}{cause}")
}

/// True if a provider failed and the record does not have the cause.
fn cause_is_in_the_log(record: &Line) -> bool {
    let codes = [
        RunnerCode::UpstreamUnreachable,
        RunnerCode::UpstreamError,
        RunnerCode::UpstreamMalformed,
    ];
    let error = record.error.as_deref();
    record.connection.is_none() && codes.iter().any(|code| error == Some(code.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_and_calls_are_counted() {
        let lines = [
            r#"{"kind":"model_call","request_id":"r1"}"#,
            r#"{"kind":"intent","name":"fish.catch"}"#,
            r#"{"agent_id":"otter","tool_trace":[{"round":1,"tool_calls":[
               {"name":"fish.catch","arguments":{"n":1},"result":{"ok":true,"data":1},"latency_ms":12},
               {"name":"fish.sell","arguments":{},"result":{"ok":false,"error":{"code":"permission_denied"}}}]}]}"#,
            r#"{"agent_id":"otter","cut off"#,
        ];
        let text = describe(&lines.map(ToString::to_string));
        assert_eq!(
            text,
            "toolcrib: 1 request, 2 managed tool calls\n\
             \x20 fish.catch {\"n\":1}: ok (12 ms)\n\
             \x20 fish.sell {}: permission_denied\n"
        );
    }

    #[test]
    fn a_failure_has_its_cause_and_address() {
        let lines = [
            r#"{"kind":"turn","model":"house/otter-1","http_status":502,"error":"upstream_unreachable",
               "connection":{"cause":"refused","address":"http://127.0.0.1:1"}}"#,
            r#"{"kind":"turn","tool_trace":[{"round":1,"tool_calls":[
               {"name":"fish.catch","arguments":{},"latency_ms":7,
                "result":{"ok":false,"error":{"code":"request_failed","message":"not reached"}},
                "connection":{"cause":"tls_expired","address":"https://fish.test"}},
               {"name":"fish.sell","arguments":{},
                "result":{"ok":false,"error":{"code":"request_failed","message":"not reached"}},
                "connection":{"cause":"of_tomorrow","address":"https://fish.test"}},
               {"name":"fish.weigh\u001b[2J","arguments":{},
                "result":{"ok":false,"error":{"code":"unsupported_tool","message":"no\ntool"}}}]}]}"#,
        ];
        let text = describe(&lines.map(ToString::to_string));
        assert_eq!(
            text,
            "toolcrib: 2 requests, 3 managed tool calls\n\
             \x20 request for house/otter-1: upstream_unreachable (status 502): connection refused at http://127.0.0.1:1\n\
             \x20 fish.catch {}: request_failed (7 ms): the server's certificate has expired at https://fish.test\n\
             \x20 fish.sell {}: request_failed: of_tomorrow at https://fish.test\n\
             \x20 fish.weigh\\u{1b}[2J {}: unsupported_tool: no\\ntool\n"
        );
    }

    #[test]
    fn a_cause_that_only_the_log_has_is_pointed_to() {
        let line = r#"{"kind":"turn","http_status":401,"error":"upstream_error"}"#;
        assert_eq!(
            describe(&[line.to_string()]),
            "toolcrib: 1 request, 0 managed tool calls\n\
             \x20 request: upstream_error (status 401)\n\
             the mediator's log has the cause: --verbose prints it\n"
        );
    }
}
