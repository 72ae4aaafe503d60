//! Tests upgrading and uninstalling: only the objects that the chart documents are left, no
//! deletion is blocked, and a working agent is not affected.
//!
//! A separate target, since Toolcrib is uninstalled afterwards.

#[path = "governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use anyhow::{Result, ensure};
use serde_json::Value;
use toolcrib_e2e::platform::{NAMESPACE, Platform, PollResult};
use toolcrib_e2e::runner;

use support::Desk;

const WORKING: &str = "trading";

#[test]
fn uninstalling_keeps_the_definitions_and_blocks_nothing() -> Result<()> {
    let worker = Worker::start()?;
    let platform = worker.desk.platform.clone();
    // The namespaces' own rights come from the install; an upgrade keeps them.
    let upgraded = platform.helm_upgrade(&[WORKING])?;
    ensure!(upgraded.contains("deployed"), "{upgraded}");
    replace_the_operator(&platform)?;
    worker.goes_on()?;

    platform.helm_uninstall()?;
    for kind in [
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "clusterroles",
        "clusterrolebindings",
    ] {
        let left = names(
            &platform,
            &[kind, "--selector=app.kubernetes.io/instance=toolcrib"],
        )?;
        assert_eq!(left, [""; 0], "{kind} left behind");
    }
    // Pods may use their grace period, while the webhook drains.
    platform.eventually(
        "everything in the operator's namespace to be gone",
        support::START,
        || {
            let left = names(&platform, &["all,secrets,leases", "--namespace", NAMESPACE])?;
            Ok(PollResult::when(left.is_empty(), left.join(", ")))
        },
    )?;
    let left = names(&platform, &["roles,rolebindings", "--namespace", WORKING])?;
    // The example's, of whom nobody but its author can say that it is not needed any more.
    assert_eq!(left, ["desk-leads"], "rights left in {WORKING}");
    worker.goes_on()?;
    worker.ends_with_a_whole_record()?;

    // The CustomResourceDefinitions are kept, and with them every user's objects.
    let kept = names(&platform, &["customresourcedefinitions"])?;
    for kind in [
        "agents",
        "clustertoolpolicies",
        "modelproviders",
        "surfaces",
        "toolapprovals",
        "tooldecisions",
        "tooldefaults",
        "toolgrants",
    ] {
        ensure!(
            kept.contains(&format!("{kind}.toolcrib.dev")),
            "{kind} is kept: {kept:?}"
        );
    }
    // Nothing is blocked: an Agent is deleted at once, and a labelled pod is an ordinary pod now.
    platform.kubectl(&[
        "delete",
        "agents",
        "--all",
        "--namespace",
        WORKING,
        "--timeout=30s",
    ])?;
    platform.apply(
        "apiVersion: v1
kind: Pod
metadata: {name: just-a-pod, namespace: toolcrib-system, labels: {toolcrib.dev/agent: analyst}}
spec:
  containers:
  - {name: runner, image: docker.io/toolcrib/runner-python:dev, imagePullPolicy: IfNotPresent, command: [sleep, infinity]}
",
    )?;
    platform.kubectl(&[
        "delete",
        "pod",
        "just-a-pod",
        "--namespace",
        NAMESPACE,
        "--wait=false",
    ])?;
    worker.desk.passed()
}

/// Replaces the operator's pods as an upgrade does: the old leader and webhooks run until the new
/// ones are ready.
fn replace_the_operator(platform: &Platform) -> Result<()> {
    for deployment in names(platform, &["deployments", "--namespace", NAMESPACE])? {
        let deployment = format!("deployment/{deployment}");
        for verb in [&["restart"][..], &["status", "--timeout=180s"]] {
            let mut rollout = vec!["rollout"];
            rollout.extend(verb);
            rollout.extend(["--namespace", NAMESPACE, &deployment]);
            platform.kubectl(&rollout)?;
        }
    }
    Ok(())
}

/// An agent that makes one trade after another until it gets SIGTERM. A failed trade ends it with
/// an error.
struct Worker {
    desk: Desk,
}

const WORKER: &str = "worker";
const WORK: &str = r#"
import json, os, signal, sys, threading, urllib.request
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
question = {"model": "scripted/trader", "messages": [{"role": "user", "content": "Make a trade"}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(question).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
made = 0
while not told.wait(0.5):
    with urllib.request.urlopen(request, timeout=100) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    if "filled" not in said:
        sys.exit(said)
    made += 1
    print(made, flush=True)
"#;

impl Worker {
    /// Starts the worker; returns when it has made a trade.
    fn start() -> Result<Self> {
        let desk = Desk::open(WORKING)?;
        desk.wait_in_force("executor")?;
        desk.platform.apply(&pod())?;
        let worker = Self { desk };
        worker.goes_on()?;
        Ok(worker)
    }

    /// Returns the number of the worker's trades so far.
    fn made(&self) -> Result<usize> {
        let logs = ["logs", "--namespace", WORKING, WORKER, "-c", "runner"];
        Ok(self.desk.platform.kubectl(&logs)?.lines().count())
    }

    fn goes_on(&self) -> Result<()> {
        let platform = &self.desk.platform;
        platform.wait_ready(WORKING, &[WORKER])?;
        let before = self.made()?;
        platform.eventually("three more trades", support::START, || {
            let made = self.made()?;
            let seen = format!("{made} after {before}");
            Ok(PollResult::when(made >= before + 3, seen))
        })
    }

    /// Ends the worker, and checks its record. The worker's own container ends first, then the
    /// mediator, and the pod has succeeded.
    fn ends_with_a_whole_record(&self) -> Result<()> {
        let platform = &self.desk.platform;
        platform.exec(WORKING, WORKER, &["sh", "-c", "kill -TERM 1"])?;
        platform.eventually("the worker to end", support::START, || {
            let pod = platform.get(&["pod", WORKER, "--namespace", WORKING])?;
            let status = &pod["status"];
            ensure!(status["phase"] != "Failed", "{status}");
            let ended = status["phase"] == "Succeeded";
            Ok(PollResult::when(ended, status["phase"].to_string()))
        })?;
        let pod = platform.get(&["pod", WORKER, "--namespace", WORKING])?;
        let mediator = &pod["status"]["initContainerStatuses"][0];
        assert_eq!(mediator["restartCount"], 0, "{mediator}");
        assert_eq!(mediator["state"]["terminated"]["exitCode"], 0, "{mediator}");

        let (made, record) = (self.made()?, self.desk.record(WORKER)?);
        let count =
            |wanted: &dyn Fn(&Value) -> bool| record.iter().filter(|line| wanted(line)).count();
        let intents = count(&|line| line["kind"] == "intent");
        let turns = count(&|line| {
            let call = &line["tool_trace"][0]["tool_calls"][0];
            line["kind"] == "turn" && call["result"]["ok"] == true
        });
        assert_eq!((intents, turns), (made, made), "of {made} trades");
        Ok(())
    }
}

fn pod() -> String {
    runner::pod(WORKING, WORKER, "executor", WORK).to_string()
}

fn names(platform: &Platform, arguments: &[&str]) -> Result<Vec<String>> {
    let list = platform.get(arguments)?;
    Ok(list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str().map(String::from))
        .collect())
}
