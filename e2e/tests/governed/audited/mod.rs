//! Ten turns of three agents on a node: allowed, denied, approved, failed and killed calls. `audit` shows
//! each call once with its outcome, `why` leads from each to the object and the rule, the commit and the
//! user, and `audit verify` compares a record with the last line that the operator keeps.
//!
//! Not here: the record over hundreds of kills (`sidecar/tests/mediator`), and `why` for grants that were
//! changed or deleted (`operator/cli/tests`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_e2e::approvals::{self, Person};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::{Platform, PollResult};
use toolcrib_e2e::runner;

use crate::offline::plugin;
use crate::support::{Desk, START, lines};

const HERE: &str = "audited";
const CONTEXT: &str = "trading-api.get_market_context";
const TRADE: &str = "trading-api.execute_trade";
const CLOSE: &str = "annex.close";
/// The name that the model used: the pod never had the tool, so no other is known.
const NOT_GIVEN: &str = "trading-api__execute_trade";
const LINGER: &str = "a trade, and linger";
const CAROL: Person<'_> = Person {
    name: "carol",
    groups: &["desk-leads"],
};

const READS: &str = "audited/analyst-reads";
const TRADES: &str = "audited/executor-trades";
const CLERK: &str = "audited/clerk-trades";

/// Turns with one call each: the agent, its question, the tool, the call's outcome and error code, and the
/// object that gives the tool. Empty: there is none.
const TURNS: [[&str; 6]; 10] = [
    ["analyst", "the market context", CONTEXT, "ok", "", READS],
    [
        "analyst",
        "a small trade",
        NOT_GIVEN,
        "denied",
        "unsupported_tool",
        "",
    ],
    ["executor", "the market context", CONTEXT, "ok", "", TRADES],
    ["executor", "a small trade", TRADE, "ok", "", TRADES],
    ["executor", "a large trade", TRADE, "ok", "", TRADES],
    [
        "executor",
        "a second large trade",
        TRADE,
        "denied",
        "approval_denied",
        TRADES,
    ],
    ["clerk", "a tiny trade", TRADE, "ok", "", CLERK],
    [
        "clerk",
        "a small trade",
        TRADE,
        "denied",
        "condition_failed",
        CLERK,
    ],
    [
        "clerk",
        "close the desk",
        CLOSE,
        "failed",
        "http_404",
        CLERK,
    ],
    // The last one: its mediator is killed.
    ["executor", LINGER, TRADE, "unknown", "", TRADES],
];

#[test]
fn each_call_is_shown_once_and_leads_to_who_allowed_it() -> Result<()> {
    let desk = Desk::open(HERE)?;
    let checkout = Checkout::commit(&[
        ("desk.yaml", &Platform::example(Some(HERE))?),
        ("clerk.yaml", include_str!("objects.yaml")),
    ])?;
    desk.platform.apply(include_str!("objects.yaml"))?;
    desk.platform.apply(&clerk())?;
    desk.platform.wait_ready(HERE, &["clerk"])?;
    for agent in ["analyst", "executor", "clerk"] {
        desk.wait_in_force(agent)?;
    }
    desk.play(&script())?;
    for [agent, question, ..] in TURNS {
        match question {
            "a large trade" => decided(&desk, agent, question, "Approve")?,
            "a second large trade" => decided(&desk, agent, question, "Deny")?,
            LINGER => killed(&desk, agent)?,
            _ => drop(desk.ask(agent, question)?),
        }
    }

    let toolcrib = CommandLine::of(&desk)?;
    let rows = desk
        .platform
        .eventually("all calls to be in the logs", START, || {
            let said = toolcrib.run(&["audit", "--output", "json"])?;
            let rows = lines(&said);
            Ok(match rows.len() >= TURNS.len() {
                true => PollResult::Yes(rows),
                false => PollResult::NotYet(said),
            })
        })?;
    let field = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let mut shown: Vec<[String; 5]> = rows
        .iter()
        .map(|row| ["agent", "tool", "outcome", "code", "grant"].map(|name| field(row, name)))
        .collect();
    let mut made = TURNS.map(|[agent, _, tool, outcome, code, grant]| {
        [agent, tool, outcome, code, grant].map(str::to_owned)
    });
    shown.sort();
    made.sort();
    assert_eq!(shown, made, "{rows:?}");
    let mut decided: Vec<String> = rows
        .iter()
        .map(|row| row["approval"].clone())
        .filter(|approval| !approval.is_null())
        .map(|it| format!("{} by {}", field(&it, "verdict"), it["decided_by"]))
        .collect();
    decided.sort();
    assert_eq!(
        decided,
        [r#"approved by ["carol"]"#, r#"denied by ["carol"]"#]
    );

    for row in &rows {
        why(&desk, &toolcrib, &checkout, row)?;
    }
    verify(&desk, &toolcrib)?;
    let policy = ["delete", "clustertoolpolicy", "audited-clerks"];
    desk.platform.kubectl(&policy)?;
    desk.passed()
}

/// Asks for a trade, and decides about it while the turn waits.
fn decided(desk: &Desk, agent: &str, question: &str, verdict: &str) -> Result<()> {
    thread::scope(|scope| {
        let asked = scope.spawn(|| desk.ask(agent, question));
        let approval = approvals::pending(&desk.platform, HERE, START)?;
        let decision = approvals::decision(&approval, CAROL, verdict, "as we agreed");
        approvals::decide(&desk.platform, &decision, CAROL)?;
        let asked = asked.join();
        asked.map_err(|_| anyhow::anyhow!("the question"))??;
        Ok(())
    })
}

/// Asks once. An SDK would ask again when the mediator is back, and trade a second time.
const ASK_ONCE: &str = r#"
import json, os, sys, urllib.request
question = {"model": "scripted/trader", "messages": [{"role": "user", "content": sys.argv[1]}]}
urllib.request.urlopen(urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(question).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}))
"#;

/// Kills the mediator after the call was answered and before the turn has its line.
fn killed(desk: &Desk, agent: &str) -> Result<()> {
    thread::scope(|scope| {
        let ask = ["python3", "-c", ASK_ONCE, LINGER];
        let asked = scope.spawn(move || desk.platform.exec(HERE, agent, &ask));
        desk.platform
            .eventually("the model to read of the trade", START, || {
                let requests = desk.model_requests()?;
                let reads = |request: &&Value| {
                    let body = request["body"].to_string();
                    body.contains(LINGER) && body.contains("filled")
                };
                let is_made = requests.iter().any(|it| reads(&it));
                Ok(PollResult::when(is_made, "no such request"))
            })?;
        kill_process(desk.mediator_process(agent)?, Signal::KILL)?;
        let asked = asked.join();
        let answer = asked.map_err(|_| anyhow::anyhow!("the question"))?;
        ensure!(answer.is_err(), "the turn ended: {answer:?}");
        Ok(())
    })
}

/// Explains one call: with the checkout and the API server's log, and without them.
fn why(desk: &Desk, toolcrib: &CommandLine, checkout: &Checkout, row: &Value) -> Result<()> {
    let call = row["call_id"].as_str().context("an id")?;
    let log = desk.platform.cluster().audit_log();
    let log = log.context("a node of ours")?;
    let (files, log) = (checkout.path()?, log.to_str().context("a path")?);
    let said = toolcrib.run(&["why", call, "--files", files, "--audit-log", log])?;
    let line = |name: &str| {
        let begin = format!("{name:<12}");
        let mut found = said.lines().filter_map(|line| line.strip_prefix(&begin));
        found.next().unwrap_or_default().to_owned()
    };
    let (outcome, grant) = (row["outcome"].as_str(), row["grant"].as_str());
    if outcome == Some("denied") {
        ensure!(!line("to allow").is_empty(), "{said}");
    } else {
        let grant = grant.context("a grant")?;
        let allowed = format!("ToolGrant {grant}, unchanged since the call");
        assert_eq!(line("allowed by"), allowed, "{said}");
    }
    if grant.is_some() {
        let (file, author) = (line("in files"), "by Ann <ann@desk.test>: Let agents trade");
        ensure!(file.contains(".yaml:") && file.ends_with(author), "{said}");
        let user = line("user");
        ensure!(user.ends_with("(the API server's audit log)"), "{said}");
        let said = toolcrib.run(&["why", call])?;
        ensure!(said.contains("\nuser        not known: "), "{said}");
    }
    // No test applies a policy that matches all agents.
    let policies = match row["agent"] == "clerk" {
        true => "audited-clerks",
        false => "none",
    };
    assert_eq!(line("policies"), policies, "{said}");
    if row["approval"]["verdict"] == "approved" {
        let approval = line("approval");
        ensure!(approval.starts_with("approved by carol"), "{said}");
    }
    Ok(())
}

/// Compares the record's file with the line that the operator keeps, whole and cut off.
fn verify(desk: &Desk, toolcrib: &CommandLine) -> Result<()> {
    const AGENT: &str = "clerk";
    desk.platform
        .eventually("the record's last line in the status", START, || {
            let kept = desk.agent(AGENT)?["status"]["record"].clone();
            let is_kept = kept[0]["seq"].as_u64() > Some(0);
            Ok(PollResult::when(is_kept, kept.to_string()))
        })?;
    let pod = desk.platform.get(&["pod", AGENT, "--namespace", HERE])?;
    let uid = pod["metadata"]["uid"].as_str().context("a uid")?;
    let folder = desk.platform.cluster().empty_dir(uid, "toolcrib-history");
    let record = folder.context("a node of ours")?.join("history.jsonl");
    let verify = |path: &Path| {
        let verify = ["audit", "verify", "--agent", AGENT];
        let verify = toolcrib.command(&verify).arg(path).output()?;
        let said = String::from_utf8_lossy(&verify.stdout).into_owned();
        anyhow::Ok((verify.status.code(), said))
    };
    let (code, said) = verify(&record)?;
    ensure!(
        code == Some(0) && said.contains(": whole"),
        "{code:?}: {said}"
    );
    let cut = tempfile::NamedTempFile::new()?;
    let text = std::fs::read_to_string(&record)?;
    let first = text.lines().next().context("a line")?;
    std::fs::write(cut.path(), format!("{first}\n"))?;
    let (code, said) = verify(cut.path())?;
    let found = said.contains("cut off: ends at line 0");
    ensure!(code == Some(3) && found, "{code:?}: {said}");
    Ok(())
}

/// The command line, with the cluster's admin as its user.
struct CommandLine {
    plugin: PathBuf,
    kubeconfig: PathBuf,
}

impl CommandLine {
    fn of(desk: &Desk) -> Result<Self> {
        Ok(Self {
            plugin: plugin()?,
            kubeconfig: desk.platform.cluster().kubeconfig().to_owned(),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.plugin);
        command
            .args(arguments)
            .args(["--namespace", HERE])
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        run(&mut self.command(arguments))
    }
}

/// A git checkout with the objects of the test, committed by a person.
struct Checkout(TempDir);

impl Checkout {
    fn commit(files: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text)?;
        }
        let git = |arguments: &[&str]| {
            run(Command::new("git")
                .args(["-c", "user.name=Ann", "-c", "user.email=ann@desk.test"])
                .args(arguments)
                .current_dir(folder.path()))
        };
        git(&["init", "--quiet"])?;
        git(&["add", "."])?;
        git(&["commit", "--quiet", "--message", "Let agents trade"])?;
        Ok(Self(folder))
    }

    fn path(&self) -> Result<&str> {
        self.0.path().to_str().context("a path in UTF-8")
    }
}

/// The third agent's pod, which runs the example's program when it is asked.
fn clerk() -> String {
    let mut pod = runner::pod(HERE, "clerk", "clerk", "");
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["sleep", "infinity"]);
    container["volumeMounts"] =
        json!([{"name": "program", "mountPath": "/agent", "readOnly": true}]);
    pod["spec"]["volumes"] = json!([{"name": "program", "configMap": {"name": "agent-program"}}]);
    pod.to_string()
}

/// Returns a script: the model makes the call that the question names, and quotes the result.
fn script() -> String {
    let call = |words: &str, tool: &str, arguments: Value| {
        json!({"when": {"user_contains": words, "round": 0},
            "reply": {"calls": [{"tool": {"named": tool}, "arguments": arguments}]}})
    };
    let trade = |words: &str, quantity: u32| {
        let arguments = json!({"symbol": "OTTR", "side": "buy", "quantity": quantity});
        call(words, "trading-api__execute_trade", arguments)
    };
    let steps = [
        call("context", "trading-api__get_market_context", json!({})),
        call("close the desk", "annex__close", json!({})),
        trade("a tiny trade", 2),
        trade("a small trade", 5),
        trade("a second large trade", 600),
        trade("a large trade", 500),
        trade(LINGER, 7),
        json!({"when": {"user_contains": LINGER}, "reply": {"text": "{tool_result}", "delay_ms": 100_000}}),
        json!({"reply": {"text": "{tool_result}"}}),
    ];
    json!({ "steps": steps }).to_string()
}
