//! The measurements of `kubectl toolcrib audit` on a large record.
//!
//! The reference is jq on the same file: a program that people would use instead, which also reads
//! each line as JSON.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Plan;
use crate::pairs::MIB;
use crate::process::memory;
use crate::report::Row;

const FILTER: &str = "audit: the denied calls of a record";
const SUM: &str = "audit --summary of a record";
/// Calls of the record: about 200 MB.
const CALLS: usize = 100_000;
/// One call in this number is denied.
const DENIED: usize = 20;
/// Pause between two looks at a program's memory.
const LOOK: Duration = Duration::from_millis(1);

/// The time of a run, its peak memory in MiB, and its number of lines.
struct Run {
    seconds: f64,
    memory: f64,
    lines: usize,
}

pub fn all(plan: &Plan) -> Result<Vec<Row>> {
    if !(plan.wants(FILTER) || plan.wants(SUM)) {
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir().context("a folder for the record")?;
    let record = folder.path().join("history.jsonl");
    let calls = if plan.is_short() { 100 } else { CALLS };
    write_record(&record, calls)?;
    let file = record.to_str().context("a path in UTF-8")?;
    let mut rows = Vec::new();
    if plan.wants(FILTER) {
        let filter = r#"select(.kind=="turn") | .tool_trace[].tool_calls[] | select(.result.error.code=="permission_denied")"#;
        let jq = run("jq", &["--compact-output", filter, file])?;
        let flags = ["audit", "-f", file, "--denied", "-o", "json"];
        let ours = run(&plan.command_line, &flags)?;
        let denied = calls / DENIED;
        ensure!(
            (jq.lines, ours.lines) == (denied, denied),
            "jq found {} calls and audit {}, of {denied}",
            jq.lines,
            ours.lines
        );
        rows.extend(beside(FILTER, &jq, &ours));
    }
    if plan.wants(SUM) {
        let sum = r#"reduce (inputs | select(.kind=="turn") | .tool_trace[].tool_calls[]) as $call ({}; .[$call.name] += 1)"#;
        let jq = run("jq", &["--null-input", sum, file])?;
        let ours = run(&plan.command_line, &["audit", "-f", file, "--summary"])?;
        rows.extend(beside(SUM, &jq, &ours));
    }
    Ok(rows)
}

fn beside(case: &'static str, jq: &Run, ours: &Run) -> [Row; 2] {
    [
        Row::beside(case, "time", "s", jq.seconds, ours.seconds),
        Row::beside(case, "memory, peak", "MiB", jq.memory, ours.memory),
    ]
}

/// Writes a record in which each request has one call: the line before the call, unless it is denied, and
/// the line of the request with its bodies. The hashes of its chain are not valid; `audit` does not
/// compare them.
fn write_record(path: &Path, calls: usize) -> Result<()> {
    let prose = "How deep is the pond at its northern end, and who measured the reeds there? ";
    let said = prose.repeat(6);
    let who = r#""agent_id":"otter","namespace":"pond","pod":"otter-0","pod_uid":"6f2b1c0e-93a1-4a53-8d5e-2f4f1f0f5b11""#;
    let tool = r#""service":"pond","tier":"ReadOnly","read_only":true,"grant":{"name":"readers","namespace":"pond"}"#;
    let mut seq = 0..;
    let mut next = || seq.next().unwrap_or(u64::MAX);
    let mut out = BufWriter::new(File::create(path)?);
    for call in 0..calls {
        let at = format!(
            "2026-11-{:02}T{:02}:{:02}:{:02}Z",
            1 + call / 86_400,
            call / 3600 % 24,
            call / 60 % 60,
            call % 60
        );
        let name = format!("pond.depth_{}", call % 10);
        let arguments = format!(r#"{{"spot":"reed {call}"}}"#);
        let is_denied = call % DENIED == 0;
        let (result, executed) = if is_denied {
            (
                r#"{"ok":false,"error":{"code":"permission_denied","message":"it is not granted"}}"#,
                false,
            )
        } else {
            writeln!(
                out,
                r#"{{"kind":"intent","request_id":"r{call}","call_id":"r{call}-1-0",{who},"timestamp":"{at}","round":1,"name":"{name}","arguments":{arguments},{tool},"chain":"b7","seq":{},"prev":"{:064x}"}}"#,
                next(),
                call
            )?;
            (
                r#"{"ok":true,"status_code":200,"data":{"depth_m":3.25}}"#,
                true,
            )
        };
        writeln!(
            out,
            r#"{{"kind":"turn","request_id":"r{call}",{who},"timestamp":"{at}","dialect":"openai_chat","model":"house/otter","key":"k1","token":"t1","http_status":200,"duration_ms":120,"status":"ok","usage":{{"prompt_tokens":211,"completion_tokens":43,"total_rounds":2}},"tool_trace":[{{"round":1,"received_ms":40,"tool_calls":[{{"call_id":"r{call}-1-0","name":"{name}","arguments":{arguments},"result":{result},"latency_ms":7,{tool},"executed":{executed}}}],"round_usage":{{"prompt_tokens":211,"completion_tokens":17}}}}],"chain":"b7","seq":{},"prev":"{:064x}","request":{{"model":"house/otter","messages":[{{"role":"user","content":"{said}"}}]}},"response":{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"It is 3.25 m deep."}},"finish_reason":"stop"}}]}}}}"#,
            next(),
            call
        )?;
    }
    Ok(out.flush()?)
}

/// Runs a program to its end.
fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Result<Run> {
    let program = program.as_ref();
    let output = tempfile::NamedTempFile::new()?;
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.reopen()?)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let id = child.id().to_string();
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // A program that ends has no memory any more.
        most = memory(&id).map_or(most, |(_, peak)| most.max(peak));
        std::thread::sleep(LOOK);
    };
    let seconds = began.elapsed().as_secs_f64();
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(Run {
        seconds,
        memory: most as f64 / MIB,
        lines: BufReader::new(output.reopen()?).lines().count(),
    })
}
