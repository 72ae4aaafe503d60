//! The rows of calls and requests: a table, CSV, and text that no terminal acts on.

use toolcrib_bounds::{count, cut, listed};

use crate::print;
use crate::record::{Call, FailedConnection, Outcome, Request};

/// Longest arguments in a table, in bytes.
const SHOWN: usize = 80;
/// Most names of calls without a grant in a row.
const MAX_UNDECLARED: usize = 8;

pub(super) const HEADER: [&str; 8] = [
    "WHEN",
    "AGENT",
    "TOOL",
    "OUTCOME",
    "TIER",
    "GRANT",
    "MS",
    "CALL AND ARGUMENTS",
];

pub(super) fn call_row(call: &Call) -> Vec<String> {
    let outcome = match &call.code {
        Some(code) if call.outcome == Outcome::Denied => format!("denied: {code}"),
        Some(code) => code.clone(),
        None if call.outcome == Outcome::Waiting => waiting(call),
        None => call.outcome.name().to_owned(),
    };
    let outcome = match &call.approval {
        Some(approval) => format!("{outcome}, {}", approval.words()),
        None => outcome,
    };
    let outcome = match &call.would_deny {
        Some(_) => format!("{outcome}, would deny"),
        None => outcome,
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
        format!(
            "{id} {}{}",
            cut(call.arguments.get(), SHOWN),
            cause(call.connection.as_ref())
        ),
    ]
}

/// Until when a call waits.
fn waiting(call: &Call) -> String {
    let until = call.message.as_deref().unwrap_or_default();
    format!("{} {until}", call.outcome.name())
        .trim_end()
        .to_owned()
}

pub(super) fn request_row(request: &Request) -> Vec<String> {
    let outcome = request.error.clone().unwrap_or_else(|| "ok".to_owned());
    let model = request.model.clone().unwrap_or_default();
    vec![
        request.when.clone(),
        agent(&request.namespace, &request.agent),
        match request.undeclared_calls.len() {
            0 => format!("request: {}", count(request.calls, "call")),
            undeclared => format!(
                "request: {}, {undeclared} passed to the program",
                count(request.calls, "call")
            ),
        },
        format!("{outcome} ({})", request.http_status),
        String::new(),
        String::new(),
        request.duration_ms.to_string(),
        format!(
            "{} {model}{}{}",
            request.request_id,
            undeclared(&request.undeclared_calls),
            cause(request.connection.as_ref())
        ),
    ]
}

/// The calls of tools that the agent does not have, after the rest of a row.
fn undeclared(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(
            ": called without a grant: {}",
            listed(names, MAX_UNDECLARED)
        ),
    }
}

/// The cause of a failed connection, after the rest of a row.
fn cause(connection: Option<&FailedConnection>) -> String {
    connection.map_or_else(String::new, |connection| format!(": {connection}"))
}

pub(super) fn agent(namespace: &str, agent: &str) -> String {
    match namespace.is_empty() {
        true => agent.to_owned(),
        false => format!("{namespace}/{agent}"),
    }
}

pub(super) const CSV_CALL: &[&str] = &[
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
    "would_deny",
    "latency_ms",
    "arguments",
    // These are last, since readers count columns.
    "connection",
    "approval",
    "decided_by",
];

pub(super) fn csv_call(call: &Call) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let approval = call.approval.as_ref();
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
        text(&call.would_deny),
        call.latency_ms
            .map_or_else(String::new, |it| it.to_string()),
        call.arguments.get().to_owned(),
        text(&call.connection.as_ref().map(ToString::to_string)),
        text(&approval.map(|it| it.verdict.to_owned())),
        text(&approval.map(|it| it.decided_by.join(" "))),
    ]
}

pub(super) fn csv_request(request: &Request) -> Vec<String> {
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
        (
            "connection",
            request
                .connection
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
        ),
    ] {
        if let Some(at) = CSV_CALL.iter().position(|column| *column == name) {
            cells[at] = value;
        }
    }
    cells
}

/// Quotes a cell. Spreadsheets calculate cells that begin with some characters, so these get a mark.
pub(super) fn csv_cell(text: &str) -> String {
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
pub(super) fn escaped(json: &str) -> String {
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
pub(super) fn aligned(rows: &[Vec<String>], widths: &mut Vec<usize>) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_hold_no_formulas_or_control_characters() {
        assert_eq!(csv_cell("=1+1"), "\"'=1+1\"");
        assert_eq!(csv_cell("a\"b,\u{1b}"), "\"a\"\"b,\\u{1b}\"");
        assert_eq!(escaped("\"a\u{9b}\u{202e}\""), "\"a\\u009b\\u202e\"");
    }
}
