//! While one agent's mediator is attacked, all other agents keep working: they are compiled,
//! injected and called, and lose tools within a second. The attacked container does not restart.
//!
//! A runner and the services of its own grants can make these attacks: a result of backslashes,
//! values that are expensive to check, and bodies at their bound, four at once; connections to the
//! webhook and the link whose bodies never come. The author of a Surface adds 400 patterns that
//! expand. Limits are the chart's, and no pod of the operator may restart. Not here: the mediator's
//! answer to each attack (`sidecar/tests/mediator`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use toolcrib_e2e::platform::{NAMESPACE, PollResult};

use super::{HERE, mediator, open, status};
use crate::support::{Desk, START, lines};

pub(super) const RUNNER: &str = include_str!("runner.py");
const HOSTILE: &str = include_str!("hostile.py");
/// Bound on a revocation, from the answer to the deletion to the first call that is denied.
const PROMISE: Duration = Duration::from_secs(1);
const ATTACKS: [&str; 6] = [
    "backslashes",
    "evaluations",
    "bodies",
    "patterns",
    "webhook",
    "link",
];
/// Number of tries to revoke a tool within `PROMISE`, since the node may be busy with something
/// else. An attack that delays revocations delays every try.
const TRIES: usize = 4;

#[test]
fn an_attacked_agent_affects_no_other() -> Result<()> {
    let desk = open()?;
    desk.platform.apply(&objects())?;
    desk.platform
        .wait_ready(HERE, &["hostile", "attacked", "bystander"])?;
    desk.wait_in_force("attacked")?;
    desk.wait_in_force("bystander")?;
    let held = desk.agent("attacked")?["status"]["tools"].to_string();
    ensure!(
        held.contains("judged.answer") && !held.contains("judged.backtracks"),
        "{held}"
    );
    no_key_for_an_interceptor(desk)?;
    let pod = desk
        .platform
        .get(&["pod", "attacked", "--namespace", HERE])?;
    let limits = &pod["spec"]["initContainers"][0]["resources"]["limits"];
    ensure!(*limits == json!({"memory": "256Mi"}), "{limits}");

    let restarts = restarts(desk)?;
    let command = ["python3", "/programs/runner.py", "calls"];
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| desk.platform.exec(HERE, "bystander", &command));
        let attacked: Result<()> = ATTACKS.iter().enumerate().try_for_each(|(number, attack)| {
            during(desk, number, attack)?;
            let now = self::restarts(desk)?;
            ensure!(now == restarts, "after {attack}: {now:?}, not {restarts:?}");
            Ok(())
        });
        stop(desk, "bystander")?;
        let called = calls.join().map_err(|_| anyhow!("the calls panicked"))?;
        attacked?;
        called.map(drop)
    })?;
    let mediator = status(desk, "attacked")?;
    ensure!(
        mediator["restartCount"] == 0 && mediator["ready"] == true,
        "{mediator}"
    );
    a_killed_mediator_has_recorded_the_model_call(desk)
}

/// The restarts of each of the operator's pods.
fn restarts(desk: &Desk) -> Result<BTreeMap<String, u64>> {
    let pods = desk.platform.get(&["pods", "--namespace", NAMESPACE])?;
    let pods = pods["items"].as_array().context("pods")?;
    pods.iter()
        .map(|pod| {
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            let containers = pod["status"]["containerStatuses"].as_array();
            let counts = containers.into_iter().flatten();
            let counts = counts.filter_map(|container| container["restartCount"].as_u64());
            Ok((name.to_owned(), counts.sum()))
        })
        .collect()
}

/// Kills the mediator while the model works on a request. The record on its volume must have the
/// request.
fn a_killed_mediator_has_recorded_the_model_call(desk: &Desk) -> Result<()> {
    // The server never answers a request for this model.
    const HELD: &str = "sink/held";
    let platform = &desk.platform;
    std::thread::scope(|scope| -> Result<()> {
        let command = ["python3", "/programs/runner.py", "ask", HELD];
        let running = scope.spawn(move || platform.exec(HERE, "attacked", &command));
        platform.eventually("the model to have the request", START, || {
            let look = ["sh", "-c", "ls /tmp/held 2>/dev/null || true"];
            let found = platform.exec(HERE, "hostile", &look)?;
            Ok(PollResult::when(!found.is_empty(), found))
        })?;
        kill_process(mediator(desk, "attacked")?, Signal::KILL)?;
        let answered = running
            .join()
            .map_err(|_| anyhow!("the request panicked"))??;
        ensure!(answered.trim() == "0", "no answer, not {answered}");
        Ok(())
    })?;
    platform.eventually("the mediator to be back", START, || {
        let status = status(desk, "attacked")?;
        let back = status["restartCount"] == 1 && status["ready"] == true;
        Ok(PollResult::when(back, status.to_string()))
    })?;
    let process = mediator(desk, "attacked")?.as_raw_nonzero();
    let record = format!("/proc/{process}/root/var/lib/toolcrib/history.jsonl");
    let record = std::fs::read_to_string(record)?;
    let of_request = lines(&record)
        .into_iter()
        .filter(|line| line["model"] == HELD)
        .map(|line| line["kind"].to_string())
        .collect::<Vec<_>>();
    ensure!(of_request == [r#""model_call""#], "{of_request:?}");
    Ok(())
}

/// Checks all other agents during the attack.
fn during(desk: &Desk, number: usize, attack: &str) -> Result<()> {
    let clear = ["sh", "-c", "rm -f /tmp/stop /tmp/rounds"];
    desk.platform.exec(HERE, "attacked", &clear)?;
    if attack == "patterns" {
        desk.platform.apply(&patterns())?;
    }
    let command = ["python3", "/programs/runner.py", "attack", attack];
    let outcomes = std::thread::scope(|scope| {
        let run = scope.spawn(|| desk.platform.exec(HERE, "attacked", &command));
        let others = others(desk, number, attack);
        stop(desk, "attacked")?;
        let outcomes = run.join().map_err(|_| anyhow!("the attack panicked"))?;
        others.with_context(|| format!("under {attack}"))?;
        outcomes
    })?;
    eprintln!("{attack}: {}", outcomes.trim());
    let outcomes: Value = serde_json::from_str(&outcomes).with_context(|| outcomes.clone())?;
    // Each attack arrives, and the mediator keeps answering.
    let answered = match attack {
        "backslashes" => "ok",
        "evaluations" => "mcp_error",
        "patterns" => "applied",
        "webhook" | "link" => "connected",
        _ => "200",
    };
    ensure!(
        outcomes[answered].as_u64() > Some(0),
        "{attack}: {outcomes}"
    );
    Ok(())
}

fn others(desk: &Desk, number: usize, attack: &str) -> Result<()> {
    let platform = &desk.platform;
    platform.eventually("the attack to have begun", START, || {
        let read = ["sh", "-c", "cat /tmp/rounds 2>/dev/null || true"];
        let rounds = platform.exec(HERE, "attacked", &read)?;
        Ok(PollResult::when(!rounds.is_empty(), rounds))
    })?;
    let late = format!("late-{attack}");
    platform.apply(&format!(
        "{}---\n{}",
        agent(&late, "hostile"),
        grant(&late, &late, "say0")
    ))?;
    platform.apply(&pod(&late))?;

    let mut taken = Vec::new();
    for attempt in 0..TRIES {
        taken.push(revoked(desk, number * TRIES + attempt)?);
        if taken.last() <= Some(&PROMISE) {
            break;
        }
    }
    eprintln!("{attack}: a tool was lost after {taken:?}");
    ensure!(
        taken.last() <= Some(&PROMISE),
        "a tool was lost after {taken:?}"
    );

    platform.wait_ready(HERE, &[&late])?;
    let once = ["python3", "/programs/runner.py", "once", "hostile__say0"];
    let said = platform.exec(HERE, &late, &once)?;
    ensure!(said.trim() == "ok", "{late}: {said}");
    Ok(())
}

/// Deletes a grant of the bystander, which calls this tool all the time. Returns the time from the
/// answer to the deletion to the first denied call.
fn revoked(desk: &Desk, number: usize) -> Result<Duration> {
    let (grant, tool) = (format!("bystander-{number}"), tool(number));
    let next = format!("printf {tool} >/tmp/tool");
    desk.platform
        .exec(HERE, "bystander", &["sh", "-c", &next])?;
    let lines = |outcome: &'static str| -> Result<Vec<f64>> {
        let lines = desk
            .platform
            .exec(HERE, "bystander", &["cat", "/tmp/calls"])?;
        let words = lines
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let of_tool = words.filter(|words| words.len() >= 4 && words[2] == tool);
        of_tool
            .filter(|words| (words[3] == "ok") == (outcome == "ok"))
            .map(|words| Ok(words[0].parse()?))
            .collect()
    };
    desk.platform.eventually("a call of it", START, || {
        Ok(PollResult::when(!lines("ok")?.is_empty(), "none"))
    })?;
    ensure!(lines("denied")?.is_empty(), "{tool} is denied already");
    let delete = ["delete", "toolgrant", &grant, "--namespace", HERE];
    desk.platform.kubectl(&delete)?;
    let answered = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let denied = desk
        .platform
        .eventually("the tool to be denied", START, || {
            Ok(match lines("denied")?.first() {
                Some(denied) => PollResult::Yes(*denied),
                None => PollResult::NotYet("it is called".to_owned()),
            })
        })?;
    let last = lines("ok")?.into_iter().fold(0.0, f64::max);
    ensure!(last < denied, "{tool} was called at {last}, after {denied}");
    Ok(Duration::from_secs_f64((denied - answered).max(0.0)))
}

/// Checks that the author of a provider, who chooses its proxy and CA, gets no key of another
/// owner. A key whose owner named neither proxy nor CA is in no file, and the proxy gets no
/// connection.
fn no_key_for_an_interceptor(desk: &Desk) -> Result<()> {
    let ask = |model: &str| {
        let command = ["python3", "/programs/runner.py", "ask", model];
        desk.platform.exec(HERE, "attacked", &command)
    };
    let intercepted = ask("intercepted/m")?;
    ensure!(intercepted.trim() != "200", "{intercepted}");
    let consented = ask("consented/m")?;
    ensure!(consented.trim() != "200", "{consented}");
    let read = ["sh", "-c", "cat /tmp/heard 2>/dev/null || true"];
    let heard = desk.platform.exec(HERE, "hostile", &read)?;
    ensure!(heard.contains("CONNECT consented.example:443"), "{heard}");
    ensure!(
        !heard.contains("intercepted") && !heard.contains("sk-"),
        "{heard}"
    );
    Ok(())
}

fn stop(desk: &Desk, pod: &str) -> Result<()> {
    desk.platform
        .exec(HERE, pod, &["sh", "-c", ": >/tmp/stop"])
        .map(drop)
}

/// Returns a Surface with patterns of twenty bytes, each of which would compile to megabytes.
fn patterns() -> String {
    let properties: serde_json::Map<String, Value> = (0..400)
        .map(|number| {
            let pattern = format!(r"\p{{L}}{{60}}k{number}");
            let property = json!({"type": "string", "pattern": pattern});
            (format!("p{number}"), property)
        })
        .collect();
    let surface = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": "patterns", "namespace": HERE},
        "spec": {"url": "https://patterns.example", "descriptor": {"version": 2, "tools": [{
            "name": "t",
            "inputSchema": {"type": "object", "properties": properties},
            "http": {"method": "GET", "path": "/"},
        }]}},
    });
    surface.to_string()
}

/// The tool's name for a client.
fn tool(number: usize) -> String {
    format!("hostile__say{number}")
}

fn objects() -> String {
    let programs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "programs", "namespace": HERE},
        "data": {"runner.py": RUNNER, "hostile.py": HOSTILE},
    });
    let server = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "hostile", "namespace": HERE, "labels": {"app": "hostile"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "hostile",
                "image": "docker.io/toolcrib/runner-python:dev",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "/programs/hostile.py", "8000"],
                "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
                "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
            }],
            "volumes": [{"name": "programs", "configMap": {"name": "programs"}}],
        },
    });
    let mut all = vec![
        programs.to_string() + "\n",
        server.to_string() + "\n",
        agent("attacked", "hostile, judged"),
        agent("bystander", "hostile"),
        grant("attacked-shouts", "attacked", "shout"),
        format!(
            "apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {{name: attacked-judged, namespace: {HERE}}}
spec: {{agents: [attacked], tools: [{{surface: {{name: judged}}, allow: [\"*\"]}}]}}
"
        ),
    ];
    for number in 0..ATTACKS.len() * TRIES {
        let name = format!("bystander-{number}");
        all.push(grant(&name, "bystander", &format!("say{number}")));
    }
    all.push(pod("attacked"));
    all.push(pod("bystander"));
    all.join("---\n")
}

fn agent(name: &str, surfaces: &str) -> String {
    let surfaces: Vec<String> = surfaces
        .split(", ")
        .map(|surface| format!("{{name: {surface}}}"))
        .collect();
    format!(
        "apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {{name: {name}, namespace: {HERE}}}
spec: {{native: true, surfaces: [{}], policy: {{maxToolResultBytes: 4194304}}}}
",
        surfaces.join(", ")
    )
}

fn grant(name: &str, agent: &str, tool: &str) -> String {
    format!(
        "apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {{name: {name}, namespace: {HERE}}}
spec: {{agents: [{agent}], tools: [{{surface: {{name: hostile}}, allow: [{tool}]}}]}}
"
    )
}

fn pod(agent: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {agent}, namespace: {HERE}, labels: {{toolcrib.dev/agent: {agent}}}}}
spec:
  automountServiceAccountToken: false
  containers:
  - name: runner
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {{runAsUser: 1000}}
    volumeMounts:
    - {{name: programs, mountPath: /programs, readOnly: true}}
  volumes:
  - {{name: programs, configMap: {{name: programs}}}}
"
    )
}
