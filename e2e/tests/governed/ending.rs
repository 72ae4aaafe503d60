//! Pods end during a turn, each in a different way. The executed calls must be in the record that
//! outlives the pods: the lines that their mediators write to stdout.
//!
//! Each pod makes one trade and then waits for its slow model, so the pod ends after a side
//! effect and before the turn's answer.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_e2e::platform::{Platform, PollResult};
use toolcrib_e2e::runner;

use crate::support::{Desk, MEDIATOR, START, VOLUME, lines};

const HERE: &str = "ending";
const TRADE: &str = "trading-api.execute_trade";

/// Asks in a process of its own, so the pod can end independently of the question.
const ASK: &str = r#"
import signal, subprocess, sys
signals = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
subprocess.Popen([sys.executable, "/agent/ask.py", "Make a trade and linger"])
if signal.sigwait(signals) == signal.SIGUSR1:
    memory = b"x" * (1 << 30)
"#;
const ASK_AND_END: &str = r#"
import subprocess, sys
sys.exit(subprocess.call([sys.executable, "/agent/ask.py", "Make a trade"]))
"#;

#[test]
fn executed_calls_are_recorded_however_the_pod_ends() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.wait_in_force("executor")?;
    let platform = &desk.platform;
    for (name, program) in [
        ("completed", ASK_AND_END),
        ("deleted", ASK),
        ("evicted", ASK),
        ("crowded", ASK),
        ("starved", ASK),
        ("killed", ASK),
    ] {
        platform.apply(&pod(name, program))?;
    }
    let mut records = Vec::new();
    for name in ["deleted", "evicted", "crowded", "starved", "killed"] {
        records.push(Record::follow(platform, name)?);
    }
    // The pod `completed`, which is not followed, makes a trade too.
    let all = records.len() + 1;
    platform.eventually("every trade to be made", START, || {
        let requests = desk.model_requests()?;
        let made = |request: &&Value| request["body"].to_string().contains("filled");
        let trades = requests.iter().filter(made).count();
        Ok(PollResult::when(
            trades >= all,
            format!("{trades} of {all}"),
        ))
    })?;
    let [deleted, evicted, crowded, starved, killed] = &mut records[..] else {
        unreachable!("as many as were followed");
    };

    platform.kubectl(&[
        "delete",
        "pod",
        "deleted",
        "--namespace",
        HERE,
        "--wait=false",
    ])?;
    let eviction = r#"{"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": "ending"}}"#;
    let path = format!("/api/v1/namespaces/{HERE}/pods/evicted/eviction");
    let answer = platform.try_kubectl(&["create", "--raw", &path, "--filename=-"], eviction)?;
    ensure!(answer.status.success(), "the eviction: {answer:?}");
    // Writes more than the volume may hold: the kubelet evicts the pod at its next check.
    platform.exec(
        HERE,
        "crowded",
        &[
            "python3",
            "-c",
            "open('/scratch/full', 'wb').write(bytes(8 << 20))",
        ],
    )?;
    platform.exec(HERE, "starved", &["sh", "-c", "kill -USR1 1"])?;
    let mediator = desk.mediator_process("killed")?;
    let begun = Instant::now();
    kill_process(mediator, Signal::KILL).context("kill the mediator")?;

    for record in [deleted, evicted, starved] {
        record.ended(platform)?;
        record.check_executed_turn()?;
    }
    let status = platform.get(&["pod", "starved", "--namespace", HERE])?;
    let state = &status["status"]["containerStatuses"][0]["state"]["terminated"];
    ensure!(state["reason"] == "OOMKilled", "how it ended: {state}");

    // These mediators write nothing at the end, but the lines from before the call are in the
    // record.
    for record in [crowded, killed] {
        record.ended(platform)?;
        record.intent()?;
    }
    // Checks the kubelet's event, since the pod's phase depends on how the container exits.
    platform.eventually("the kubelet to say that it evicted", START, || {
        let events = platform.get(&[
            "events",
            "--namespace",
            HERE,
            "--field-selector=reason=Evicted,involvedObject.name=crowded",
        ])?;
        let items = &events["items"];
        let told = items.as_array().is_some_and(|items| !items.is_empty());
        Ok(PollResult::when(told, items.to_string()))
    })?;
    platform.eventually("the killed mediator to be back", START, || {
        let pod = platform.get(&["pod", "killed", "--namespace", HERE])?;
        let mediator = &pod["status"]["initContainerStatuses"][0];
        let back = mediator["restartCount"] == 1 && mediator["ready"] == true;
        Ok(PollResult::when(back, mediator.to_string()))
    })?;
    println!(
        "a killed mediator is ready again after {:?}",
        begun.elapsed()
    );
    let answer = platform.exec(
        HERE,
        "killed",
        &["python3", "/agent/ask.py", "What is my market context?"],
    )?;
    ensure!(answer.contains("executor"), "it works again: {answer}");

    platform.eventually("the pod to complete", START, || {
        let pod = platform.get(&["pod", "completed", "--namespace", HERE])?;
        let phase = &pod["status"]["phase"];
        Ok(PollResult::when(phase == "Succeeded", phase.to_string()))
    })?;
    let record = desk.record("completed")?;
    let turn = turn_of(&record).with_context(|| format!("no turn in {record:?}"))?;
    assert_eq!(turn["status"], "ok", "{turn}");
    desk.passed()
}

/// The stdout of a pod's mediator, from before the pod's end to after it.
struct Record {
    pod: &'static str,
    follower: Child,
    folder: TempDir,
}

impl Record {
    /// Follows the mediator's log. Returns once the pod's trade is in the record.
    fn follow(platform: &Platform, pod: &'static str) -> Result<Self> {
        platform.wait_ready(HERE, &[pod])?;
        let folder = tempfile::tempdir()?;
        let follower = platform
            .cluster()
            .kubectl()
            .args(["logs", "--follow", "--namespace", HERE, pod, "-c", MEDIATOR])
            .stdout(File::create(folder.path().join("stdout"))?)
            .stderr(Stdio::inherit())
            .spawn()
            .context("start kubectl")?;
        let record = Record {
            pod,
            follower,
            folder,
        };
        platform.eventually(&format!("the trade of {pod}"), START, || {
            let seen = record.text()?;
            Ok(PollResult::when(intent_of(&lines(&seen)).is_some(), seen))
        })?;
        Ok(record)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("stdout")
    }

    fn text(&self) -> Result<String> {
        std::fs::read_to_string(self.path()).context("what the mediator said")
    }

    /// Waits until the log of the mediator has ended, and so the mediator.
    fn ended(&mut self, platform: &Platform) -> Result<()> {
        let (pod, follower) = (self.pod, &mut self.follower);
        platform.eventually(&format!("the mediator of {pod} to end"), VOLUME, || {
            let ended = follower.try_wait()?.is_some();
            Ok(PollResult::when(ended, "its log goes on"))
        })
    }

    /// Returns the line that was written before the call.
    fn intent(&self) -> Result<Value> {
        let text = self.text()?;
        let intent = intent_of(&lines(&text))
            .with_context(|| format!("{}: the call is not in the record:\n{text}", self.pod))?;
        assert_eq!(intent["arguments"]["quantity"], 3, "{}: {intent}", self.pod);
        Ok(intent)
    }

    /// Checks that the record has the turn of the executed call.
    fn check_executed_turn(&self) -> Result<()> {
        let intent = self.intent()?;
        let text = self.text()?;
        let turn = turn_of(&lines(&text))
            .with_context(|| format!("{}: no turn in the record:\n{text}", self.pod))?;
        assert_eq!(turn["request_id"], intent["request_id"], "{}", self.pod);
        Ok(())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // The follower has ended by itself unless the test failed.
        if !matches!(self.follower.try_wait(), Ok(Some(_))) {
            self.follower.kill().ok();
            self.follower.wait().ok();
        }
    }
}

fn intent_of(lines: &[Value]) -> Option<Value> {
    let intent = |line: &&Value| line["kind"] == "intent" && line["name"] == TRADE;
    lines.iter().find(intent).cloned()
}

/// Returns the turn that made the trade, complete or not.
fn turn_of(lines: &[Value]) -> Option<Value> {
    let made = |line: &&Value| {
        let call = &line["tool_trace"][0]["tool_calls"][0];
        line["kind"] == "turn" && call["name"] == TRADE && call["result"]["ok"] == true
    };
    lines.iter().find(made).cloned()
}

fn pod(name: &str, program: &str) -> String {
    let mut pod = runner::pod(HERE, name, "executor", program);
    let spec = &mut pod["spec"];
    spec["terminationGracePeriodSeconds"] = json!(20);
    spec["containers"][0]["resources"] = json!({"limits": {"memory": "256Mi"}});
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "program", "mountPath": "/agent", "readOnly": true},
        {"name": "scratch", "mountPath": "/scratch"},
    ]);
    spec["volumes"] = json!([
        {"name": "program", "configMap": {"name": "agent-program"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}},
    ]);
    pod.to_string()
}
