//! Tests that programs which others wrote wait for a person as long as the person needs.
//!
//! Each client is the unchanged one of its SDK, with the SDK's own timeouts. All of a language make a
//! trade of their own at the same time; nobody answers for a minute, and then all trades are approved.

use std::{collections::BTreeMap, sync::mpsc::RecvTimeoutError, thread, time::Duration};

use serde_json::{Value, json};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use crate::{
    approvals::{ASKS, RUN, Run, decisions, files, user},
    machine::{self, DEADLINE, Laptop, repository},
};

/// Most clients' shortest timeout that others have chosen for them.
const MINUTE: Duration = Duration::from_secs(60);
/// Questions that may be open at a time.
const MOST: u32 = 8;
/// The first client's trade; each next one trades one more.
const FIRST: u32 = 501;

/// Returns a script: the model makes the trade that the user names, and quotes its result.
fn script() -> Script {
    let mut steps: Vec<Value> = (FIRST..FIRST + MOST)
        .map(|quantity| {
            let arguments = json!({"symbol": "OTTR", "side": "buy", "quantity": quantity});
            json!({"when": {"user_contains": format!("buy {quantity}"), "round": 0}, "reply":
                {"calls": [{"tool": {"containing": "execute_trade"}, "arguments": arguments}]}})
        })
        .collect();
    steps.push(json!({"reply": {"text": "{tool_result}"}}));
    Script::parse(&json!({ "steps": steps }).to_string()).unwrap()
}

/// Starts the clients, lets them wait, and approves their calls. `clients` are their names, in the order
/// of their trades.
fn check(program: &[&str], clients: &[&str], streaming: &str) {
    let laptop = Laptop::start(script());
    let sdk = repository().join("e2e/sdk");
    let path = |file: &str| sdk.join(file).to_str().unwrap().to_owned();
    let policy = format!("  policy: {{streaming: {streaming}}}\n  native: true\n");
    let providers = path("providers.yaml");
    let at = |name: &str| format!("provider:{name}=http://{}", laptop.model_address());
    let (heron, ibis) = (at("heron"), at("ibis"));
    let flags = ["-f", &providers, "--at", &heron, "--at", &ibis];
    let mut run = Run::start(&laptop, files(&policy), &flags, RUN, true, program);
    let lines = machine::lines(&mut run.child);

    run.terminal().shows(ASKS);
    let line = lines.recv_timeout(MINUTE);
    assert_eq!(line, Err(RecvTimeoutError::Timeout), "nobody gives up");
    assert_eq!(laptop.desk_log().len(), 0);
    for number in 0..clients.len() {
        if number > 0 {
            run.terminal().shows(ASKS);
        }
        run.terminal().types("y\n");
        run.terminal().shows("approved\n");
    }

    let mut answers = BTreeMap::new();
    for _ in clients {
        let line = lines.recv_timeout(DEADLINE).unwrap();
        println!("{line}");
        let line: Value = serde_json::from_str(&line).unwrap();
        let name = line["client"].as_str().unwrap().to_owned();
        answers.insert(name, (line["seconds"].as_f64(), line["answer"].clone()));
    }
    for (quantity, client) in (FIRST..).zip(clients) {
        let (seconds, answer) = &answers[*client];
        assert!(
            *seconds > Some(MINUTE.as_secs_f64()),
            "{client}: {seconds:?}"
        );
        let answer: Value = serde_json::from_str(answer.as_str().unwrap())
            .unwrap_or_else(|error| panic!("{client}: {error}: {answer}"));
        assert_eq!(
            answer["data"]["trade"]["quantity"], quantity,
            "{client}: {answer}"
        );
    }
    assert!(run.child.wait().unwrap().success());
    let approved = json!(["approved", [user()]]);
    assert_eq!(decisions(&run.record), vec![approved; clients.len()]);
    assert_eq!(laptop.desk_log().len(), clients.len());
}

/// Checks both ways of streaming, side by side.
fn check_both(program: &[&str], clients: &[&str]) {
    thread::scope(|scope| {
        for streaming in ["Buffered", "Live"] {
            scope.spawn(move || check(program, clients, streaming));
        }
    });
}

#[test]
fn the_official_sdks_for_python_wait_a_minute_for_a_person() {
    let python = packages::python("requirements.txt").unwrap();
    let program = repository().join("e2e/sdk/waiting.py");
    let clients = [
        "chat",
        "chat_streamed",
        "responses",
        "responses_streamed",
        "anthropic_messages",
        "anthropic_messages_streamed",
        "mcp",
    ];
    let program = [python.to_str().unwrap(), "-B", program.to_str().unwrap()];
    check_both(&program, &clients);
}

#[test]
fn the_official_sdks_for_node_wait_a_minute_for_a_person() {
    let modules = packages::node_modules("node").unwrap();
    let modules = format!("NODE_PATH={}", modules.display());
    let program = repository().join("e2e/sdk/node/waiting.js");
    let clients = [
        "chat",
        "chatStreamed",
        "responses",
        "responsesStreamed",
        "anthropicMessages",
        "anthropicMessagesStreamed",
        "mcpWithProgress",
        "mcpWithoutProgress",
    ];
    let program = ["env", &modules, "node", program.to_str().unwrap()];
    check_both(&program, &clients);
}
