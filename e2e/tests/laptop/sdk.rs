//! The official SDKs, unchanged, against the real mediator.
//!
//! They live in an environment under `~/.cache/toolcrib` that is made once per pinned list,
//! with `pip` from the Python package index; everything after that needs no internet.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::machine::{Laptop, demo, document, market, repository, runner, stderr, stdout};
use toolcrib_e2e::model::Script;

/// Runs one file of cases; `providers` are those of providers.yaml that it uses.
fn check(cases: &str, providers: &[&str]) {
    let folder = repository().join("e2e/sdk");
    let script = fs::read_to_string(folder.join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let mut flags = Vec::new();
    if !providers.is_empty() {
        flags.extend([
            "-f".to_string(),
            folder.join("providers.yaml").display().to_string(),
        ]);
    }
    for name in providers {
        let place = format!("provider:{name}=http://{}", laptop.model_address());
        flags.extend(["--at".to_string(), place]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (python, cases) = (python(), folder.join(cases));
    // -B: no caches beside the sources.
    let command = [python.to_str().unwrap(), "-B", cases.to_str().unwrap()];
    let output = laptop.run("analyst", &flags, &command);
    let (said, complaints) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}\n{complaints}");
    println!("{said}");
}

#[test]
fn the_openai_sdk_is_served_chat_completions_as_by_its_own_provider() {
    check("openai_chat.py", &[]);
}

#[test]
fn the_openai_sdk_is_served_responses_as_by_its_own_provider() {
    check("openai_responses.py", &["ibis"]);
}

#[test]
fn the_anthropic_sdk_is_served_as_by_its_own_provider() {
    check("anthropic_messages.py", &["heron"]);
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

/// The environment's interpreter; made when it is missing, by one process at a time.
fn python() -> PathBuf {
    let requirements = repository().join("e2e/sdk/requirements.txt");
    let list = fs::read(&requirements).unwrap();
    let home = std::env::var_os("HOME").expect("HOME is set");
    let cache = Path::new(&home).join(".cache/toolcrib");
    fs::create_dir_all(&cache).unwrap();
    let lock = fs::File::create(cache.join("sdk.lock")).unwrap();
    lock.lock().unwrap();

    let name = format!("sdk-{}", &hex::encode(Sha256::digest(&list))[..16]);
    let environment = cache.join(name);
    let python = environment.join("bin/python");
    let complete = environment.join("complete");
    if !complete.is_file() {
        if environment.exists() {
            fs::remove_dir_all(&environment).unwrap();
        }
        let venv = ["-m", "venv", environment.to_str().unwrap()];
        succeed(Command::new("python3").args(venv));
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
        ];
        succeed(Command::new(&python).args(install).arg(&requirements));
        fs::File::create(&complete)
            .unwrap()
            .write_all(&list)
            .unwrap();
    }
    python
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
