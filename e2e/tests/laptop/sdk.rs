//! The official SDKs and the frameworks on top of them, unchanged, against the real mediator.
//!
//! They live in environments under `~/.cache/toolcrib`, each made once per pinned list with
//! `pip` or `npm` from their package indexes; everything after that needs no internet.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::machine::{Laptop, demo, document, example, market, repository, runner, stderr, stdout};
use toolcrib_e2e::model::Script;

/// The mediator's side of it; cases read the name from their environment.
#[derive(Clone, Copy, Debug)]
enum Streaming {
    Buffered,
    Live,
}

/// What interprets a file of cases.
enum Interpreter {
    Python,
    Node,
}

impl Interpreter {
    /// The command without the file, and the variables it needs.
    fn command(&self) -> (Vec<String>, Vec<(&'static str, String)>) {
        match self {
            // -B: no caches beside the sources.
            Self::Python => (vec![text(&python()), "-B".to_string()], Vec::new()),
            Self::Node => {
                let modules = ("NODE_PATH", text(&node_modules()));
                (vec!["node".to_string()], vec![modules])
            }
        }
    }
}

/// Runs one file of cases: all of them with Buffered streaming, and those that stream with
/// Live. `providers` are those of providers.yaml that it uses.
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
fn agents_of_frameworks_run_unchanged_and_see_their_own_calls_only() {
    check(&Interpreter::Python, "frameworks.py", &["heron", "ibis"]);
}

#[test]
fn an_agent_on_the_openai_sdk_gets_its_governed_call() {
    let python = python();
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

/// The interpreter of the environment that has what e2e/sdk/requirements.txt names.
fn python() -> PathBuf {
    let list = repository().join("e2e/sdk/requirements.txt");
    let environment = environment(&list, |folder| {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(folder));
        let mut install = Command::new(folder.join("bin/python"));
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]);
        succeed(install.arg("-r").arg(&list));
    });
    environment.join("bin/python")
}

/// The folder of the packages that e2e/sdk/node/package-lock.json names.
fn node_modules() -> PathBuf {
    let sources = repository().join("e2e/sdk/node");
    let lock = sources.join("package-lock.json");
    let environment = environment(&lock, |folder| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(sources.join(file), folder.join(file)).unwrap();
        }
        let mut install = Command::new("npm");
        install.args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--silent",
        ]);
        succeed(install.current_dir(folder));
    });
    environment.join("node_modules")
}

/// The folder for what `list` pins; made by `install` when it is missing, by one process at a
/// time.
fn environment(list: &Path, install: impl FnOnce(&Path)) -> PathBuf {
    let list = fs::read(list).unwrap();
    let home = std::env::var_os("HOME").expect("HOME is set");
    let cache = Path::new(&home).join(".cache/toolcrib");
    fs::create_dir_all(&cache).unwrap();
    let lock = fs::File::create(cache.join("sdk.lock")).unwrap();
    lock.lock().unwrap();

    let name = format!("sdk-{}", &hex::encode(Sha256::digest(&list))[..16]);
    let environment = cache.join(name);
    let complete = environment.join("complete");
    if !complete.is_file() {
        if environment.exists() {
            fs::remove_dir_all(&environment).unwrap();
        }
        fs::create_dir(&environment).unwrap();
        install(&environment);
        fs::write(&complete, &list).unwrap();
    }
    environment
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
