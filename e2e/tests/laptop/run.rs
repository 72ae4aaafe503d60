//! Tests `kubectl toolcrib run`: the governed call on one machine, with the real mediator.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};

use crate::machine::{
    DEADLINE, Laptop, POLL, built, demo, document, example, example_files, headers, market,
    offered, runner, stderr, stdout,
};

/// Runs the standard-library agent with this prompt.
fn ask(laptop: &Laptop, agent: &str, flags: &[&str], prompt: &str) -> Value {
    let program = runner("agent_stdlib.py");
    let mut command = vec!["python3", program.as_str(), "--json"];
    command.extend(flags);
    command.push(prompt);
    document(&laptop.run(agent, &[], &command))
}

/// Returns the tool result that the answer quotes.
fn quoted(answer: &Value) -> Value {
    let text = answer["answer"].as_str().unwrap();
    let result = text
        .strip_prefix("The tool answered: ")
        .unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(result).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_governed_call_reaches_the_service_with_the_projected_token() {
    for flags in [&[][..], &["--stream"]] {
        let laptop = Laptop::start(demo());
        let answer = ask(&laptop, "analyst", flags, "How is my market?");
        assert_eq!(quoted(&answer), market("analyst", "reader"));
        assert_eq!(
            answer["tool_calls"],
            json!([]),
            "the managed call must stay hidden"
        );

        let log = laptop.desk_log();
        assert_eq!(log.len(), 1, "{log:?}");
        assert_eq!(log[0]["principal"], "reader");
        assert_eq!(log[0]["claw_id"], "analyst");
        assert_eq!(log[0]["claimed_id"], "analyst");

        let requests = laptop.model_requests();
        assert_eq!(requests.len(), 2, "one round and the answer");
        for request in &requests {
            assert_eq!(
                offered(request),
                ["local_clock", "trading-api__get_market_context"]
            );
            let key = format!("Bearer {}", laptop.credentials.provider_key);
            assert_eq!(headers(request)["authorization"], key);
        }
        // The model is told the tool's name and nothing else of the service.
        let seen = requests[1]["body"].to_string();
        assert!(!seen.contains("127.0.0.1") && !seen.contains(&laptop.credentials.reader));
    }
}

#[test]
fn calls_of_the_runners_own_tools_are_left_to_it() {
    let laptop = Laptop::start(demo());
    let answer = ask(&laptop, "analyst", &[], "What does the clock say?");
    assert_eq!(answer["tool_calls"], json!(["local_clock"]));
    assert!(quoted(&answer)["utc"].is_string());
    assert_eq!(laptop.desk_log(), [] as [Value; 0]);
}

#[test]
fn an_ungranted_tool_is_neither_offered_nor_executed() {
    let laptop = Laptop::start(demo());
    let answer = ask(&laptop, "analyst", &[], "Please trade.");
    let result = quoted(&answer);
    assert_eq!(result["ok"], false, "{result}");
    assert!(result["error"]["code"].is_string(), "{result}");
    assert_eq!(answer["tool_calls"], json!([]));
    assert_eq!(laptop.desk_log(), [] as [Value; 0]);
    for request in laptop.model_requests() {
        assert!(
            !offered(&request)
                .iter()
                .any(|name| name.contains("execute_trade"))
        );
    }
}

#[test]
fn the_executor_trades_with_its_own_credential() {
    let laptop = Laptop::start(demo());
    let result = quoted(&ask(&laptop, "executor", &[], "Please trade."));
    assert_eq!(result["ok"], true, "{result}");
    assert_eq!(result["data"]["trade"]["principal"], "executor");
    let log = laptop.desk_log();
    assert_eq!(log.len(), 1, "{log:?}");
    let sent: Value = serde_json::from_str(log[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(
        sent,
        json!({"symbol": "OTTR", "side": "buy", "quantity": 3})
    );
}

#[test]
fn the_program_holds_no_credential() {
    let laptop = Laptop::start(demo());
    // Prints the program's environment, and the command lines of its process and of its parent.
    let look = "env; tr '\\0' '\\n' < /proc/$$/cmdline; tr '\\0' '\\n' < /proc/$PPID/cmdline";
    let output = laptop.run("analyst", &[], &["sh", "-c", look]);
    let seen = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(seen.contains("OPENAI_BASE_URL=http://127.0.0.1:"), "{seen}");
    assert!(seen.contains("OPENAI_API_KEY=analyst:"), "{seen}");
    let secrets = &laptop.credentials;
    for secret in [&secrets.provider_key, &secrets.reader, &secrets.executor] {
        assert!(!seen.contains(secret.as_str()), "{seen}");
        assert!(
            !stderr(&output).contains(secret.as_str()),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_credential_from_a_variable_is_used_and_kept_from_the_program() {
    let laptop = Laptop::start(demo());
    let program = runner("agent_stdlib.py");
    let script = format!(
        "test -z \"$DESK_TOKEN\" || exit 9; exec python3 '{program}' --json 'How is my market?'"
    );
    let token = laptop.credentials.executor.clone();
    // Replaces the reader's token of the example's Secret.
    let output = laptop.run_with(
        &[("DESK_TOKEN", &token)],
        &example(),
        "analyst",
        &[
            "--secret",
            "trading/trading-api-reader/token=env:DESK_TOKEN",
        ],
        &["sh", "-c", &script],
    );
    assert_eq!(quoted(&document(&output)), market("analyst", "executor"));
}

#[test]
fn files_without_secrets_work_with_credentials_from_flags() {
    let laptop = Laptop::start(demo());
    // Writes the files as they are in Git: everything but the Secrets.
    let files = tempfile::tempdir().unwrap();
    for (name, text) in example_files() {
        let kept: Vec<&str> = text
            .split("\n---\n")
            .filter(|part| !part.contains("\nkind: Secret\n"))
            .collect();
        std::fs::write(files.path().join(name), kept.join("\n---\n")).unwrap();
    }
    let program = runner("agent_stdlib.py");
    let command = ["python3", program.as_str(), "--json", "How is my market?"];
    let refused = laptop.run_with(&[], files.path(), "analyst", &[], &command);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(
        stderr(&refused).contains("SecretNotFound"),
        "{}",
        stderr(&refused)
    );

    let key_file = files.path().join("key.txt");
    std::fs::write(&key_file, format!("{}\n", laptop.credentials.provider_key)).unwrap();
    let key = format!("trading/scripted-model-key/key=file:{}", key_file.display());
    let flags = [
        "--secret",
        "trading/trading-api-reader/token=env:DESK_TOKEN",
        "--secret",
        key.as_str(),
    ];
    let variables = [("DESK_TOKEN", laptop.credentials.reader.as_str())];
    let answer = document(&laptop.run_with(&variables, files.path(), "analyst", &flags, &command));
    assert_eq!(quoted(&answer), market("analyst", "reader"));
}

/// The files decide where a credential goes, so the user must confirm it. An address that only a
/// cluster knows is reported before the first call fails.
#[test]
fn a_credential_for_several_hosts_needs_a_confirmation() {
    let files = tempfile::tempdir().unwrap();
    let surface = |name: &str, place: &str| {
        format!(
            "apiVersion: toolcrib.dev/v1alpha1\nkind: Surface\nmetadata: {{name: {name}, namespace: den}}\nspec:\n  {place}\n  auth: {{type: Bearer, secretKeyRef: {{name: key, key: token}}}}\n  descriptor: {{version: 2, tools: [{{name: look, inputSchema: {{type: object}}, http: {{method: GET, path: /look}}}}]}}\n"
        )
    };
    let text = [
        surface("one", "url: https://one.test"),
        surface("two", "service: {name: two, port: 80}"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: two, namespace: den}\nspec: {ports: [{port: 80}]}\n".to_owned(),
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Agent\nmetadata: {name: scribe, namespace: den}\nspec: {mode: Native, surfaces: [{name: one}, {name: two}]}\n".to_owned(),
        "apiVersion: toolcrib.dev/v1alpha1\nkind: ToolGrant\nmetadata: {name: all, namespace: den}\nspec: {agents: [scribe], tools: [{surface: {name: one}, allow: [\"*\"]}, {surface: {name: two}, allow: [\"*\"]}]}\n".to_owned(),
    ];
    std::fs::write(files.path().join("den.yaml"), text.join("---\n")).unwrap();
    let run = |flags: &[&str]| {
        Command::new(built("kubectl-toolcrib"))
            .env("KEY", "otter-key")
            .args(["run", "--agent", "scribe", "-f"])
            .arg(files.path())
            .arg("--sidecar")
            .arg(built("toolcrib-sidecar"))
            .args(["--secret", "den/key/token=env:KEY"])
            .args(flags)
            .args(["--", "echo", "ran"])
            .output()
            .unwrap()
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    let hosts = "--secret den/key/token goes to http://two.den.svc, https://one.test";
    assert!(said.contains(hosts) && said.contains("say --yes"), "{said}");
    assert_eq!(stdout(&refused), "");
    let ran = run(&["--yes"]);
    let said = stderr(&ran);
    assert_eq!(stdout(&ran), "ran\n", "{said}");
    assert!(said.contains(hosts), "{said}");
    assert!(
        said.contains("two is at two.den.svc, which only a cluster knows: say where it is here with --at two=URL"),
        "{said}"
    );
    let placed = run(&["--yes", "--at", "two=http://127.0.0.1:9"]);
    assert!(!stderr(&placed).contains("only a cluster knows"));
}

#[test]
fn a_native_runner_finds_the_mediator_by_its_context() {
    let laptop = Laptop::start(demo());
    let files = tempfile::tempdir().unwrap();
    for (name, text) in example_files() {
        std::fs::write(files.path().join(name), text).unwrap();
    }
    let defaults = "apiVersion: toolcrib.dev/v1alpha1\nkind: ToolDefaults\nmetadata: {name: default, namespace: trading}\nspec: {mode: Native}\n";
    std::fs::write(files.path().join("defaults.yaml"), defaults).unwrap();
    let look = "echo $OPENAI_BASE_URL; echo $TOOLCRIB_TOKEN; ls $TOOLCRIB_CONTEXT/TOOLCRIB.md && cat $TOOLCRIB_CONTEXT/mcp.json";
    let output = laptop.run_with(&[], files.path(), "analyst", &[], &["sh", "-c", look]);
    let said = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines = said.splitn(4, '\n');
    let mediator = lines.next().unwrap().strip_suffix("/v1").unwrap();
    let token = lines.next().unwrap();
    assert!(token.starts_with("analyst:"), "{said}");
    assert!(lines.next().unwrap().ends_with("TOOLCRIB.md"), "{said}");
    let config: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let expected = json!({"mcpServers": {"toolcrib": {
        "type": "http",
        "url": format!("{mediator}/mcp"),
        "headers": {"Authorization": "Bearer ${TOOLCRIB_TOKEN}"},
    }}});
    assert_eq!(config, expected);
}

#[test]
fn a_native_runner_without_a_provider_keeps_its_own_model() {
    let files = tempfile::tempdir().unwrap();
    let agent = "apiVersion: toolcrib.dev/v1alpha1\nkind: Agent\nmetadata: {name: scribe, namespace: den}\nspec: {mode: Native}\n";
    std::fs::write(files.path().join("agent.yaml"), agent).unwrap();
    let output = Command::new(built("kubectl-toolcrib"))
        .env("OPENAI_API_KEY", "its own")
        .env_remove("OPENAI_BASE_URL")
        .arg("run")
        .arg("-f")
        .arg(files.path())
        .args(["--agent", "scribe", "--sidecar"])
        .arg(built("toolcrib-sidecar"))
        .args(["--", "sh", "-c", "echo $OPENAI_API_KEY $OPENAI_BASE_URL"])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "its own\n", "{}", stderr(&output));
}

#[test]
fn run_ends_with_the_programs_code_and_leaves_nothing_behind() {
    let laptop = Laptop::start(demo());
    let output = laptop.run(
        "analyst",
        &[],
        &["sh", "-c", "echo $OPENAI_BASE_URL; exit 7"],
    );
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let address = stdout(&output);
    let address = address
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches("/v1");
    assert!(
        TcpStream::connect(address).is_err(),
        "{address} still answers"
    );
}

#[test]
fn a_killed_run_leaves_no_mediator_behind() {
    let laptop = Laptop::start(demo());
    // The program ends when its stdin ends, and this test keeps it open.
    let program = ["sh", "-c", "echo $OPENAI_BASE_URL; read -r line"];
    let mut run = laptop
        .command(&[], &example(), "analyst", &[], &program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(run.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    let address = said.trim().trim_start_matches("http://");
    let address = address.trim_end_matches("/v1");
    assert!(TcpStream::connect(address).is_ok(), "{said}");

    run.kill().unwrap(); // SIGKILL
    run.wait().unwrap();
    let deadline = Instant::now() + DEADLINE;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "{address} still answers");
        std::thread::sleep(POLL);
    }
}

#[test]
fn the_record_is_summarized_and_kept_in_the_given_file() {
    let laptop = Laptop::start(demo());
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_str().unwrap();
    let program = runner("agent_stdlib.py");
    let command = ["python3", program.as_str(), "How is my market?"];
    let output = laptop.run("analyst", &["--history-dir", folder], &command);
    let said = stderr(&output);
    assert!(
        said.contains("toolcrib: 1 request, 1 managed tool call\n"),
        "{said}"
    );
    assert!(
        said.contains("  trading-api.get_market_context {\"claw_id\":\"analyst\"}: ok"),
        "{said}"
    );
    let record = std::fs::read_to_string(kept.path().join("history.jsonl")).unwrap();
    assert!(
        !record.contains(&laptop.credentials.reader),
        "a credential is in the record"
    );
}
