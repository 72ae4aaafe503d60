//! On a node with a full disk or an unread stdout, the calls that the service got are in the
//! record, and a call that cannot be recorded is not made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::PollResult;
use toolcrib_e2e::runner;

use crate::support::{Desk, START, lines, process_of};

const HERE: &str = "recorded";
const AGENT: &str = "executor";
const MEDIATOR: &str = "toolcrib-sidecar";
const HISTORY: &str = "toolcrib-history";
const TRADE: &str = "Make a trade";

#[test]
fn a_call_that_cannot_be_recorded_is_not_made() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.wait_in_force(AGENT)?;
    a_full_disk(&desk)?;
    an_unread_stdout(&desk)?;
    desk.passed()
}

/// Makes the record's medium small and starts the mediator on it: like an `emptyDir` in memory,
/// or a node's disk that others have filled.
fn a_full_disk(desk: &Desk) -> Result<()> {
    let history = small_medium(desk)?;
    let filled = desk.ask(AGENT, TRADE)?;
    ensure!(filled.contains("filled"), "there is room: {filled}");

    let rest = history.join("rest");
    // Err: the disk is full, as intended.
    fs::write(&rest, vec![0; MEDIUM]).ok();
    // The rest of the record's last page has room for a line or two.
    let refused = desk
        .platform
        .eventually("a trade to be refused", START, || {
            let before = posts(desk)?;
            let answer = desk.ask(AGENT, TRADE)?;
            let done = posts(desk)? - before;
            let ok = answer.contains("filled");
            ensure!(done == usize::from(ok), "{done} trades: {answer}");
            Ok(if ok {
                PollResult::NotYet(answer)
            } else {
                PollResult::Yes(answer)
            })
        })?;
    ensure!(refused.contains("request_failed"), "{refused}");

    fs::remove_file(&rest)?;
    let filled = desk.ask(AGENT, TRADE)?;
    ensure!(filled.contains("filled"), "there is room again: {filled}");
    let done = posts(desk)?;
    desk.platform
        .eventually("the disk to have what was done", START, || {
            let file = fs::read_to_string(history.join("history.jsonl"))?;
            let on_disk = lines(&file);
            let torn = file.lines().count() - on_disk.len();
            let counts = (intents(&on_disk), refusals(&on_disk), torn);
            let whole = counts.0 == done && counts.1 > 0 && torn == 0;
            Ok(PollResult::when(
                whole,
                format!("{counts:?} of {done}: {file}"),
            ))
        })
}

/// Bytes of the medium: some pages.
const MEDIUM: usize = 64 << 10;

/// Mounts a small medium where the record is written, and restarts the mediator. Returns the
/// record's folder as this process sees it.
fn small_medium(desk: &Desk) -> Result<PathBuf> {
    let cluster = desk.platform.cluster();
    let pod = desk.platform.get(&["pod", AGENT, "--namespace", HERE])?;
    let uid = pod["metadata"]["uid"].as_str().context("a uid")?;
    let folder = cluster.empty_dir(uid, HISTORY).context("a node of ours")?;
    let mut mount = cluster.on_node("mount").context("a node of ours")?;
    let options = format!("size={MEDIUM},mode=0777");
    // The kubelet unmounts the medium with the pod.
    run(mount
        .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
        .arg(&folder))?;
    // A container gets its mounts when it starts, so the mediator must restart.
    let before = mediator(desk)?["restartCount"].clone();
    kill_process(process_of(&mediator(desk)?, MEDIATOR)?, Signal::KILL)?;
    desk.platform
        .eventually("the mediator to be back", START, || {
            let now = mediator(desk)?;
            let back = now["restartCount"] != before && now["ready"] == true;
            Ok(PollResult::when(back, now.to_string()))
        })?;
    let root = format!(
        "/proc/{}/root",
        process_of(&mediator(desk)?, MEDIATOR)?.as_raw_nonzero()
    );
    Ok(Path::new(&root).join("var/lib/toolcrib"))
}

/// Stops the process that copies the mediator's stdout into the node's log, until the mediator
/// cannot write the line before a call.
fn an_unread_stdout(desk: &Desk) -> Result<()> {
    let before = posts(desk)?;
    declare_notes(desk)?;
    desk.platform.apply(&busy())?;
    desk.platform.wait_ready(HERE, &[BUSY])?;
    desk.platform.eventually("a first trade", START, || {
        let done = posts(desk)? - before;
        Ok(PollResult::when(done > 0, "none"))
    })?;
    let pod = desk.platform.get(&["pod", BUSY, "--namespace", HERE])?;
    let status = &pod["status"]["initContainerStatuses"][0];
    let reader = StoppedProcess::stop(parent_of(process_of(status, MEDIATOR)?)?)?;
    // The mediator's queue for stdout has room for hundreds of usual lines, so the next trades have
    // long ones.
    let earlier = desk.model_requests()?;
    let earlier = earlier.last().and_then(|last| last["seq"].as_u64());
    desk.play(&long_trades()?)?;
    desk.platform
        .eventually("a trade to be refused", START, || {
            let requests = desk.model_requests()?;
            let late = |request: &&Value| request["seq"].as_u64() > earlier;
            let refused = requests.iter().filter(late).any(reports_a_refusal);
            Ok(PollResult::when(
                refused,
                format!("{} requests", requests.len()),
            ))
        })?;
    drop(reader);

    // The pod's program ends when a trade succeeds again.
    desk.platform.eventually("the pod to complete", START, || {
        let pod = desk.platform.get(&["pod", BUSY, "--namespace", HERE])?;
        let phase = &pod["status"]["phase"];
        ensure!(phase != "Failed", "{}", pod["status"]);
        Ok(PollResult::when(phase == "Succeeded", phase.to_string()))
    })?;
    // Long lines are logged in pieces, with the mediator's own log between them, but the start of a
    // line is never split.
    let said = desk.log(BUSY)?.matches(r#"{"kind":"intent""#).count();
    assert_eq!(said, posts(desk)? - before, "what was said, and done");
    Ok(())
}

/// Declares the argument that makes the tool's lines long, since undeclared arguments are refused.
fn declare_notes(desk: &Desk) -> Result<()> {
    let digest = |desk: &Desk| -> Result<Value> {
        let agent = desk.platform.get(&["agent", AGENT, "--namespace", HERE])?;
        Ok(agent["status"]["manifestDigest"].clone())
    };
    let before = digest(desk)?;
    let place = "/spec/descriptor/tools/1/inputSchema/properties/notes";
    let notes = json!({"type": "array", "items": {"type": "string"}});
    let patch = json!([{"op": "add", "path": place, "value": notes}]).to_string();
    desk.platform.kubectl(&[
        "patch",
        "surface",
        "trading-api",
        "--namespace",
        HERE,
        "--type=json",
        "--patch",
        &patch,
    ])?;
    desk.platform
        .eventually("the changed tool to be compiled", START, || {
            let now = digest(desk)?;
            Ok(PollResult::when(now != before, now.to_string()))
        })
}

const BUSY: &str = "busy";
/// Returns a script of trades with lines so long that stdout's queue has room for a few.
fn long_trades() -> Result<String> {
    let note = "otter ".repeat(10 << 10);
    let notes = [&note, &note, &note];
    let arguments = json!({"symbol": "OTTR", "side": "buy", "quantity": 3, "notes": notes});
    let call = json!({"tool": {"named": "trading-api__execute_trade"}, "arguments": arguments});
    let script = json!({"steps": [
        {"when": {"round": 0}, "reply": {"calls": [call]}},
        {"reply": {"text": "{tool_result}"}},
    ]});
    serde_json::to_string(&script).context("the script")
}

/// Returns a pod that trades until one trade is refused, and then until one succeeds: the pod
/// cannot be inspected meanwhile.
fn busy() -> String {
    let program = r#"
import json, os, time, urllib.request
question = {"model": "scripted/trader", "messages": [{"role": "user", "content": "Make a trade"}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(question).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
def is_made():
    time.sleep(0.5)
    with urllib.request.urlopen(request, timeout=100) as answer:
        return b"filled" in answer.read()
while is_made(): pass
while not is_made(): pass
"#;
    runner::pod(HERE, BUSY, AGENT, program).to_string()
}

/// The status of the agent's mediator.
fn mediator(desk: &Desk) -> Result<Value> {
    let pod = desk.platform.get(&["pod", AGENT, "--namespace", HERE])?;
    Ok(pod["status"]["initContainerStatuses"][0].clone())
}

fn intents(record: &[Value]) -> usize {
    let intent = |line: &&Value| line["kind"] == "intent";
    record.iter().filter(intent).count()
}

fn refusals(record: &[Value]) -> usize {
    let refused = |line: &&Value| {
        line["kind"] == "turn" && line["tool_trace"][0]["tool_calls"][0]["executed"] == false
    };
    record.iter().filter(refused).count()
}

fn reports_a_refusal(request: &Value) -> bool {
    let messages = request["body"]["messages"].as_array();
    let last = messages.and_then(|messages| messages.last());
    last.is_some_and(|last| last["role"] == "tool" && last.to_string().contains("request_failed"))
}

/// Returns the number of trades that the desk got.
fn posts(desk: &Desk) -> Result<usize> {
    let asked = desk.asked()?;
    Ok(asked.iter().filter(|it| it["method"] == "POST").count())
}

/// Returns the process that started this one. For a container, that is the shim, which holds the
/// other ends of its pipes.
fn parent_of(process: Pid) -> Result<Pid> {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(path)?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.context("its parent")?.trim().parse()?;
    let program = fs::read_link(format!("/proc/{parent}/exe"))?;
    ensure!(
        program.ends_with("containerd-shim-runc-v2"),
        "the runtime's: {}",
        program.display()
    );
    Pid::from_raw(parent).context("a process")
}

/// A stopped process, which continues when this is dropped.
struct StoppedProcess(Pid);

impl StoppedProcess {
    fn stop(process: Pid) -> Result<Self> {
        kill_process(process, Signal::STOP).context("stop")?;
        Ok(Self(process))
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        // Err: the process has ended.
        kill_process(self.0, Signal::CONT).ok();
    }
}
