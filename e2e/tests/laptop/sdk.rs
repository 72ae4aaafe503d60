//! The official SDKs and the frameworks on top of them, unchanged, against the real mediator.
//!
//! [`toolcrib_e2e::packages`] installs them.

use std::{fs, path::Path};

use serde_json::Value;

use crate::machine::{Laptop, demo, document, example, market, repository, runner, stderr, stdout};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

/// The mediator's streaming mode; cases read its name from their environment.
#[derive(Clone, Copy, Debug)]
enum Streaming {
    Buffered,
    Live,
}

/// The interpreter of a file of cases.
enum Interpreter {
    Python,
    Node,
}

impl Interpreter {
    /// Returns the command without the file, and the variables that it needs.
    fn command(&self) -> (Vec<String>, Vec<(&'static str, String)>) {
        match self {
            // -B: writes no caches beside the sources.
            Self::Python => (
                vec![
                    text(&packages::python("requirements.txt").unwrap()),
                    "-B".to_string(),
                ],
                Vec::new(),
            ),
            Self::Node => {
                let modules = ("NODE_PATH", text(&packages::node_modules("node").unwrap()));
                (vec!["node".to_string()], vec![modules])
            }
        }
    }
}

/// Runs one file of cases: all of them with Buffered streaming, and the streaming ones with Live.
/// `providers` are the entries of providers.yaml that it uses.
fn check(interpreter: &Interpreter, cases: &str, providers: &[&str]) {
    for streaming in [Streaming::Buffered, Streaming::Live] {
        check_streaming(interpreter, cases, providers, streaming);
    }
}

fn check_streaming(
    interpreter: &Interpreter,
    cases: &str,
    providers: &[&str],
    streaming: Streaming,
) {
    let folder = repository().join("e2e/sdk");
    let script = fs::read_to_string(folder.join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let mut flags = Vec::new();
    if !providers.is_empty() {
        flags.extend(["-f".to_string(), text(&folder.join("providers.yaml"))]);
    }
    match streaming {
        Streaming::Buffered => {}
        Streaming::Live => flags.extend(["-f".to_string(), text(&folder.join("live.yaml"))]),
    }
    for name in providers {
        let place = format!("provider:{name}=http://{}", laptop.model_address());
        flags.extend(["--at".to_string(), place]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (mut command, mut variables) = interpreter.command();
    variables.push(("STREAMING", format!("{streaming:?}")));
    command.push(text(&folder.join(cases)));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, it)| (*name, it.as_str()))
        .collect();
    let output = laptop.run_with(&variables, &example(), "analyst", &flags, &command);
    let (said, complaints) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}\n{complaints}");
    println!("{said}");
}

#[test]
fn the_openai_sdk_is_served_chat_completions_as_by_its_own_provider() {
    check(&Interpreter::Python, "openai_chat.py", &[]);
}

#[test]
fn the_openai_sdk_is_served_responses_as_by_its_own_provider() {
    check(&Interpreter::Python, "openai_responses.py", &["ibis"]);
}

#[test]
fn the_anthropic_sdk_is_served_as_by_its_own_provider() {
    check(&Interpreter::Python, "anthropic_messages.py", &["heron"]);
}

#[test]
fn the_openai_sdk_for_node_is_served_chat_completions_as_by_its_own_provider() {
    check(&Interpreter::Node, "node/openai_chat.js", &[]);
}

#[test]
fn the_openai_sdk_for_node_is_served_responses_as_by_its_own_provider() {
    check(&Interpreter::Node, "node/openai_responses.js", &["ibis"]);
}

#[test]
fn the_anthropic_sdk_for_node_is_served_as_by_its_own_provider() {
    check(&Interpreter::Node, "node/anthropic_messages.js", &["heron"]);
}

#[test]
fn frameworks_agents_run_unchanged_and_see_only_their_own_calls() {
    check(&Interpreter::Python, "frameworks.py", &["heron", "ibis"]);
}

#[test]
fn an_agent_on_the_openai_sdk_gets_its_governed_call() {
    let python = packages::python("requirements.txt").unwrap();
    let program = runner("agent_openai.py");
    for flags in [&[][..], &["--stream"]] {
        let laptop = Laptop::start(demo());
        let mut command = vec![python.to_str().unwrap(), program.as_str(), "--json"];
        command.extend(flags);
        let answer = document(&laptop.run("analyst", &[], &command));
        let text = answer["answer"].as_str().unwrap();
        let result = text
            .strip_prefix("The tool answered: ")
            .unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            serde_json::from_str::<Value>(result).unwrap(),
            market("analyst", "reader")
        );
        assert_eq!(answer["tool_calls"], Value::Array(Vec::new()));
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}
