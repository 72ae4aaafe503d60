//! Summarizes the mediator's record: one line per tool call.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

const FILE: &str = "history.jsonl";
/// Longest arguments in the summary, in characters.
const SHOWN: usize = 120;

/// The fields of a record line that the summary uses. Lines of another `kind` have no trace.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    kind: Option<String>,
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
    for call in calls {
        let outcome = match (&call.result["ok"], call.result["error"]["code"].as_str()) {
            (Value::Bool(true), _) => "ok",
            (_, Some(code)) => code,
            _ => "no result",
        };
        let arguments: String = call.arguments.to_string().chars().take(SHOWN).collect();
        let latency = call
            .latency_ms
            .map_or_else(String::new, |ms| format!(" ({ms} ms)"));
        writeln!(text, "  {} {arguments}: {outcome}{latency}", call.name)
            .expect("writing to a string cannot fail");
    }
    text
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
}
