//! `audit`, `why` and `propose` read the record from the logs of running pods, with the user's own
//! rights; `audit verify` compares its file with the last line that the operator keeps.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::PollResult;

use crate::offline::plugin;
use crate::support::{Desk, START, lines};

const HERE: &str = "proposed";
const AGENT: &str = "executor";

#[test]
fn a_grant_is_proposed_from_the_logs_of_pods() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.wait_in_force(AGENT)?;
    let filled = desk.ask(AGENT, "Make a trade")?;
    ensure!(filled.contains("filled"), "{filled}");
    // Calls of another agent, which are in no answer about this one.
    let context = desk.ask("analyst", "What is my market context?")?;
    ensure!(context.contains("analyst"), "{context}");
    let denied = desk.ask("analyst", "Make a trade")?;
    ensure!(denied.contains("\"ok\":false"), "{denied}");

    let plugin = plugin()?;
    let toolcrib = |arguments: &[&str]| {
        run(Command::new(&plugin)
            .args(arguments)
            .args(["--namespace", HERE])
            .env("KUBECONFIG", desk.platform.cluster().kubeconfig()))
    };
    // A container's log is a moment behind its output.
    desk.platform
        .eventually("the trade to be in the log", START, || {
            let calls = toolcrib(&["audit", AGENT, "--output", "json"])?;
            let is_shown = calls.contains("trading-api.execute_trade");
            Ok(PollResult::when(is_shown, calls))
        })?;
    let proposed = toolcrib(&["propose", AGENT, "--output", "json"])?;
    let proposed: Value = serde_json::from_str(&proposed).context("the proposal")?;
    let tools = json!([{"surface": {"name": "trading-api"}, "allow": ["execute_trade"]}]);
    assert_eq!(
        proposed["grants"][0]["spec"],
        json!({"agents": [AGENT], "tools": tools}),
        "{proposed}"
    );

    // The API server accepts the grant as it is written.
    let grant = toolcrib(&["propose", AGENT])?;
    let apply = [
        "apply",
        "--dry-run=server",
        "--namespace",
        HERE,
        "--filename=-",
    ];
    let applied = desk.platform.try_kubectl(&apply, &grant)?;
    ensure!(applied.status.success(), "{grant}: {applied:?}");
    why(&desk, &toolcrib)?;
    verify(&desk, &plugin)?;
    desk.passed()
}

/// Explains each call of the namespace.
fn why(desk: &Desk, toolcrib: &dyn Fn(&[&str]) -> Result<String>) -> Result<()> {
    let rows = desk
        .platform
        .eventually("all calls to be in the logs", START, || {
            let said = toolcrib(&["audit", "--output", "json"])?;
            let rows = lines(&said);
            Ok(match rows.len() >= 3 {
                true => PollResult::Yes(rows),
                false => PollResult::NotYet(said),
            })
        })?;
    let mut outcomes: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row["agent"], row["outcome"]))
        .collect();
    outcomes.sort();
    assert_eq!(
        outcomes,
        [
            r#""analyst" "denied""#,
            r#""analyst" "ok""#,
            r#""executor" "ok""#
        ],
        "{rows:?}"
    );
    let log = desk
        .platform
        .cluster()
        .audit_log()
        .context("a node of ours")?;
    let log = log.to_str().context("a path")?;
    for row in &rows {
        let call = row["call_id"].as_str().context("an id")?;
        let said = toolcrib(&["why", call, "--audit-log", log])?;
        let has = |begin: &str| said.lines().any(|line| line.starts_with(begin));
        if row["outcome"] == "denied" {
            ensure!(has("to allow    "), "{said}");
            continue;
        }
        let grant = row["grant"].as_str().context("a grant")?;
        let allowed = format!("allowed by  ToolGrant {grant}, unchanged since the call");
        ensure!(has(&allowed) && has("written by  "), "{said}");
        let user = said.lines().find(|line| line.starts_with("user "));
        let user = user.context("the user")?;
        ensure!(user.ends_with("(the API server's audit log)"), "{said}");
    }
    Ok(())
}

/// Compares the record's file with the line that the operator keeps, whole and cut off.
fn verify(desk: &Desk, plugin: &Path) -> Result<()> {
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
        let verify = Command::new(plugin)
            .args(["audit", "verify", "--agent", AGENT, "--namespace", HERE])
            .arg(path)
            .env("KUBECONFIG", desk.platform.cluster().kubeconfig())
            .output()?;
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
