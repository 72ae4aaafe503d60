//! The MCP project's own conformance scenarios: its client calls the wrapper and the mediator's
//! `/mcp`, and the mediator calls its servers.
//!
//! `docs/mcp-conformance.md` has a row with the result of every scenario in the package. A new
//! scenario, or another result, fails here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use crate::{
    forwarder::Forwarder,
    machine::{Laptop, demo, example, example_files, repository, runner, stderr, stdout},
    mcp::{McpServer, discovered},
    mediator::{Mediator, Version},
};

/// Revisions that both sides speak.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Ids of failed checks.
type FailedChecks = BTreeSet<String>;

/// Failed checks by scenario and revision.
type Outcomes = BTreeMap<(String, &'static str), FailedChecks>;

/// The part of Toolcrib under test.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The wrapper, called by the package's client.
    Wrapper,
    /// The mediator as a client of the package's servers.
    Mediator,
    /// The mediator's `/mcp`, called by the package's client.
    Native,
}

impl Part {
    /// Returns the part's flag in the package's command line.
    fn flag(self) -> &'static str {
        match self {
            Self::Wrapper | Self::Native => "--server",
            Self::Mediator => "--client",
        }
    }

    /// Returns the part's heading in the document.
    fn heading(self) -> &'static str {
        match self {
            Self::Wrapper => "## The wrapper as a server",
            Self::Mediator => "## The mediator as a client",
            Self::Native => "## The mediator as a server",
        }
    }
}

/// Returns the command of the package's program, with the Node.js that it needs.
fn conformance() -> Command {
    let packages = packages::node_modules("conformance").unwrap();
    let machine = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let mut command = Command::new(packages.join(format!("node-linux-{machine}/bin/node")));
    command.arg(packages.join("@modelcontextprotocol/conformance/dist/index.js"));
    command
}

/// Lists every scenario of the package for a part, with its revisions.
fn listed(part: Part) -> BTreeMap<String, Vec<&'static str>> {
    let output = conformance().arg("list").arg(part.flag()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let scenarios = text.lines().filter_map(|line| {
        let (name, revisions) = line.strip_prefix("  - ")?.split_once(" [")?;
        let of_ours = REVISIONS
            .into_iter()
            .filter(|ours| revisions.contains(ours));
        Some((name.to_string(), of_ours.collect()))
    });
    scenarios.collect()
}

/// A scenario's result according to the document.
enum ExpectedOutcome {
    /// Everything passes except these checks.
    Fails(FailedChecks),
    NotApplicable,
}

/// Reads the rows of a part's table: `` | `scenario` | result | why | ``.
fn documented(part: Part) -> BTreeMap<String, ExpectedOutcome> {
    let text = fs::read_to_string(repository().join("docs/mcp-conformance.md")).unwrap();
    let (_, section) = text.split_once(part.heading()).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`').to_string();
        let result = cells.next()?;
        let expected = match result.strip_prefix("all but ") {
            Some(checks) => ExpectedOutcome::Fails(checks.split(", ").map(unquoted).collect()),
            None if result == "passes" => ExpectedOutcome::Fails(FailedChecks::new()),
            None => {
                assert_eq!(result, "–", "{name}");
                ExpectedOutcome::NotApplicable
            }
        };
        Some((name, expected))
    });
    rows.collect()
}

fn unquoted(name: &str) -> String {
    name.trim_matches('`').to_string()
}

/// Compares the document with the package's list and the results.
fn check(part: Part, run: impl Fn(&[(String, &'static str)], &Path) -> Outcomes) {
    let (listed, documented) = (listed(part), documented(part));
    let names = |all: &mut dyn Iterator<Item = &String>| -> Vec<String> { all.cloned().collect() };
    assert_eq!(
        names(&mut listed.keys()),
        names(&mut documented.keys()),
        "the package's scenarios, and those of docs/mcp-conformance.md"
    );
    let applicable: Vec<(String, &'static str)> = listed
        .into_iter()
        .filter(|(name, _)| matches!(documented[name], ExpectedOutcome::Fails(_)))
        .flat_map(|(name, revisions)| revisions.into_iter().map(move |it| (name.clone(), it)))
        .collect();
    let results = tempfile::tempdir().unwrap();
    let came = run(&applicable, results.path());
    let expected: Outcomes = applicable
        .into_iter()
        .map(|scenario| {
            let failed = match &documented[&scenario.0] {
                ExpectedOutcome::Fails(failed) => failed.clone(),
                ExpectedOutcome::NotApplicable => FailedChecks::new(),
            };
            (scenario, failed)
        })
        .collect();
    let differs: Vec<String> = expected
        .iter()
        .filter(|(scenario, failed)| came.get(*scenario) != Some(failed))
        .map(|(scenario, failed)| {
            format!(
                "{scenario:?}: documented {failed:?}, came {:?}",
                came.get(scenario)
            )
        })
        .collect();
    assert!(differs.is_empty(), "{}", differs.join("\n"));
}

/// Reads the failed checks from the file that the package writes for a run.
fn failed(results: &Path) -> FailedChecks {
    let checks = fs::read_to_string(results.join("checks.json")).unwrap();
    let checks: Vec<Value> = serde_json::from_str(&checks).unwrap();
    let failed = checks.iter().filter(|check| check["status"] == "FAILURE");
    failed
        .map(|check| check["id"].as_str().unwrap().to_string())
        .collect()
}

/// Lists the folders of a run's results: `PREFIX` + scenario + `-2026-11-23T02-39-04-325Z`.
fn results(folder: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    const TIME: usize = "-2026-11-23T02-39-04-325Z".len();
    let entries = fs::read_dir(folder).unwrap();
    let folders = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let scenario = name[..name.len() - TIME].strip_prefix(prefix).unwrap();
        (scenario.to_string(), path)
    });
    folders.collect()
}

/// Starts a program with the tools that server scenarios expect, behind the wrapper.
fn expected_server() -> McpServer {
    let mut program = Command::new("python3");
    program.arg("-B");
    program.arg(repository().join("e2e/mcp/conformance/server.py"));
    McpServer::wrapped(&program)
}

/// Runs every server scenario against this address.
fn asked(address: SocketAddr, folder: &Path) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for revision in REVISIONS {
        let into = folder.join(revision);
        // The exit code is ignored: it also counts scenarios that do not apply.
        let output = conformance()
            .args(["server", "--url", &format!("http://{address}/mcp")])
            .args(["--suite", "all", "--spec-version", revision, "-o"])
            .arg(&into)
            .output()
            .unwrap();
        assert!(into.is_dir(), "{}{}", stdout(&output), stderr(&output));
        for (scenario, path) in results(&into, "server-") {
            outcomes.insert((scenario, revision), failed(&path));
        }
    }
    outcomes
}

#[test]
fn the_wrapper_conforms_as_a_server() {
    let server = expected_server();
    check(Part::Wrapper, |_, folder| asked(server.address, folder));
}

#[test]
fn the_mediator_conforms_as_a_server() {
    let server = expected_server();
    let laptop = Laptop::start(demo());
    let objects = tempfile::tempdir().unwrap();
    let referee = repository().join("e2e/mcp/conformance/objects.yaml");
    let url = format!("http://{}/mcp", server.address);
    let surface = discovered("conformance", &["-n", "trading", "--url", &url], None);
    let more = [
        ("referee.yaml", fs::read_to_string(referee).unwrap()),
        ("surface.yaml", surface.to_string()),
    ];
    let more = more.map(|(name, text)| (name.to_string(), text));
    for (name, text) in example_files().into_iter().chain(more) {
        fs::write(objects.path().join(name), text).unwrap();
    }
    let services = [("conformance.trading.svc:80", server.address)];
    let version = Version::compiled_with(&laptop, objects.path(), "referee", &services);
    let mediator = Mediator::start(&version.native("native", json!(true)));
    let (address, token) = mediator.place();
    let forwarder = Forwarder::start(address, token, "conformance__");
    check(Part::Native, |_, folder| {
        let outcomes = asked(forwarder.address, folder);
        for revision in REVISIONS {
            let results = results(&folder.join(revision), "server-");
            let called = |(name, _): &&(String, PathBuf)| name == "tools-call-simple-text";
            let (_, path) = results.iter().find(called).unwrap();
            let checks = fs::read_to_string(path.join("checks.json")).unwrap();
            // The scenario accepts any text, so a denial would pass, too.
            assert!(
                checks.contains("This is a simple text response"),
                "{checks}"
            );
        }
        outcomes
    });
}

#[test]
fn the_mediator_conforms_as_a_client() {
    let sources = repository().join("e2e/mcp/conformance");
    let script = fs::read_to_string(sources.join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let run = laptop.command(&[], &example(), "referee", &[], &[]);
    // All arguments except the `--` before the program.
    let arguments: Vec<&str> = run.get_args().map(|it| it.to_str().unwrap()).collect();
    let (_, arguments) = arguments.split_last().unwrap();
    let arguments = json!({
        "program": run.get_program().to_str().unwrap(),
        "arguments": arguments,
        "agent": ["python3", "-B", &runner("agent_stdlib.py"), "--json"],
    });
    let client = sources.join("client.py");
    check(Part::Mediator, |applicable, folder| {
        let mut outcomes = Outcomes::new();
        for (index, (scenario, revision)) in applicable.iter().enumerate() {
            let into = folder.join(index.to_string());
            let output = conformance()
                .env("CONFORMANCE_RUN", arguments.to_string())
                .args(["client", "--scenario", scenario, "--spec-version", revision])
                .args([
                    "--command",
                    &format!("python3 -B {}", client.display()),
                    "-o",
                ])
                .arg(&into)
                .output()
                .unwrap();
            assert!(into.is_dir(), "{}{}", stdout(&output), stderr(&output));
            for (_, path) in results(&into, "") {
                let failed = failed(&path);
                if !failed.is_empty() {
                    println!("{scenario} {revision}:\n{}", client_output(&path));
                }
                outcomes.insert((scenario.clone(), revision), failed);
            }
        }
        outcomes
    });
}

/// The output of our client in a run.
fn client_output(results: &Path) -> String {
    ["stdout.txt", "stderr.txt"]
        .map(|name| fs::read_to_string(results.join(name)).unwrap_or_default())
        .concat()
}
