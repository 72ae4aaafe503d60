//! Tests that `kubectl toolcrib run` asks for approvals on its terminal, which is a real pseudo-terminal.
//!
//! Standard input says yes to everything in each test, and is never asked.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use toolcrib_e2e::services::model::Script;

use crate::machine::{DEADLINE, Laptop, demo, document, example_files, runner, stderr, stdout};

pub const ASKS: &str = "Run this call once? [y/N] ";

/// What the terminal shows of the demo's call.
const PROMPT: &str = r#"
toolcrib: a call waits for your approval
agent       trading/executor
tool        trading-api.execute_trade (System)
asked by    a rule of ToolGrant executor-trades
needs       2 of group desk-leads (ToolGrant executor-trades) in a cluster; for this run, you
arguments
  {
    "quantity": 500,
    "side": "buy",
    "symbol": "OTTR"
  }
Run this call once? [y/N] "#;

/// The example, with a grant that asks two persons, and these further lines in the executor's spec.
pub fn files(spec: &str) -> tempfile::TempDir {
    const ASKS: &str = "approval: {approvers: {groups: [desk-leads]}}";
    const EXECUTOR: &str = "name: executor\n  namespace: trading\nspec:\n";
    let folder = tempfile::tempdir().unwrap();
    let mut changed = 0;
    for (name, text) in example_files() {
        let new = text
            .replace(
                ASKS,
                "approval: {approvers: {groups: [desk-leads]}, minimum: 2}",
            )
            .replace(EXECUTOR, &format!("{EXECUTOR}{spec}"));
        changed += usize::from(new != text);
        fs::write(folder.path().join(name), new).unwrap();
    }
    assert_eq!(changed, 2, "agents and grants of the example");
    folder
}

/// `kubectl toolcrib run` in a session of its own.
pub struct Run {
    pub child: Child,
    /// `None`: the session has no terminal.
    terminal: Option<Terminal>,
    pub record: PathBuf,
    _files: [tempfile::TempDir; 2],
}

/// The other end of the terminal.
pub struct Terminal {
    keys: File,
    shown: mpsc::Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    /// Returns it with the end of the program.
    fn open() -> (Self, File) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let keys = File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (show, shown) = mpsc::channel();
        // The thread ends when no program has the terminal any more.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                if show.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let text = String::new();
        (Self { keys, shown, text }, File::from(slave))
    }

    /// Waits for this text, and returns everything up to it since the last call.
    pub fn shows(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.text.find(text) {
                let rest = self.text.split_off(at + text.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let more = self.shown.recv_timeout(DEADLINE);
            let more = more.unwrap_or_else(|_| panic!("the terminal shows {:?}", self.text));
            self.text += &String::from_utf8(more).unwrap().replace('\r', "");
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

/// The shell line that becomes the run; `$@` is its command.
pub const RUN: &str = r#"exec "$@" < "$YES""#;

impl Run {
    /// Starts the agent, which makes a large trade. A call waits this long.
    fn trade(laptop: &Laptop, wait: &str, session: &str, with_terminal: bool) -> Self {
        let agent = runner("agent_stdlib.py");
        let program = ["python3", &agent, "--json", "Make a large trade."];
        let files = files(&format!("  policy: {{approvalWait: {wait}}}\n"));
        Self::start(laptop, files, &[], session, with_terminal, &program)
    }

    /// Starts a program as the executor of these files.
    pub fn start(
        laptop: &Laptop,
        files: tempfile::TempDir,
        flags: &[&str],
        session: &str,
        with_terminal: bool,
        program: &[&str],
    ) -> Self {
        let files = [files, tempfile::tempdir().unwrap()];
        let folder = files[1].path();
        let yes = folder.join("yes");
        fs::write(&yes, "y\n".repeat(9)).unwrap();
        let record = folder.join("record");
        let flags = [&["--history-dir", record.to_str().unwrap()], flags].concat();
        let run = laptop.command(&[], files[0].path(), "executor", &flags, program);
        let (terminal, stdin) = match with_terminal {
            true => {
                let (terminal, slave) = Terminal::open();
                (Some(terminal), Stdio::from(slave))
            }
            false => (None, Stdio::null()),
        };
        let child = Command::new("setsid")
            .args(with_terminal.then_some("--ctty"))
            .args(["--wait", "sh", "-c", session, "sh"])
            .arg(run.get_program())
            .args(run.get_args())
            .env("YES", &yes)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            child,
            terminal,
            record: record.join("history.jsonl"),
            _files: files,
        }
    }

    pub fn terminal(&mut self) -> &mut Terminal {
        self.terminal.as_mut().unwrap()
    }

    /// Waits for the end. Returns the results of the calls, the summary, and the record's decisions.
    fn end(self) -> RunResult {
        let output: Output = self.child.wait_with_output().unwrap();
        let answer = document(&output);
        let results = answer["answer"].as_str().unwrap();
        let results = results.trim_start_matches("The tool answered: ");
        let results = serde_json::Deserializer::from_str(results).into_iter();
        RunResult {
            results: results.collect::<Result<_, _>>().unwrap(),
            summary: stderr(&output),
            decisions: decisions(&self.record),
        }
    }
}

struct RunResult {
    results: Vec<Value>,
    summary: String,
    /// Verdict, and who decided.
    decisions: Vec<Value>,
}

impl RunResult {
    /// The code of each result, or `ok`.
    fn codes(&self) -> Vec<&str> {
        let results = self.results.iter();
        results
            .map(|result| match result["ok"] == true {
                true => "ok",
                false => result["error"]["code"].as_str().unwrap(),
            })
            .collect()
    }
}

pub fn decisions(record: &Path) -> Vec<Value> {
    let record = fs::read_to_string(record).unwrap();
    let lines = record
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| line["kind"] == "decision");
    lines
        .map(|line| json!([line["verdict"], line["decided_by"]]))
        .collect()
}

pub fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    stdout(&output).trim().to_owned()
}

#[test]
fn yes_on_the_terminal_runs_the_call_once() {
    for (keys, echo) in [("y\n", "y\napproved\n"), ("YES\n", "YES\napproved\n")] {
        let laptop = Laptop::start(demo());
        let mut run = Run::trade(&laptop, "2m", RUN, true);
        let terminal = run.terminal();
        assert_eq!(terminal.shows(ASKS), PROMPT);
        terminal.types(keys);
        terminal.shows(echo);
        let ended = run.end();
        assert_eq!(ended.codes(), ["ok"], "{}", ended.summary);
        assert_eq!(ended.decisions, [json!(["approved", [user()]])]);
        assert_eq!(laptop.desk_log().len(), 1);
    }
}

#[test]
fn everything_else_on_the_terminal_denies_the_call() {
    for (keys, echo) in [
        ("n\n", "n\ndenied\n"),
        ("\n", "\ndenied\n"),
        ("yy\n", "yy\ndenied\n"),
    ] {
        let laptop = Laptop::start(demo());
        let mut run = Run::trade(&laptop, "2m", RUN, true);
        let terminal = run.terminal();
        terminal.shows(ASKS);
        terminal.types(keys);
        terminal.shows(echo);
        let ended = run.end();
        assert_eq!(ended.codes(), ["approval_denied"], "{}", ended.summary);
        assert_eq!(ended.decisions, [json!(["denied", [user()]])]);
        assert_eq!(laptop.desk_log(), [] as [Value; 0]);
    }
}

#[test]
fn the_end_of_input_denies_the_call_and_says_so() {
    let laptop = Laptop::start(demo());
    let mut run = Run::trade(&laptop, "2m", RUN, true);
    let terminal = run.terminal();
    terminal.shows(ASKS);
    terminal.types("\u{4}");
    let ended = run.end();
    let says = "a person denied this call: the input of the terminal ended without an answer";
    check_denied(&laptop, &ended, "approval_denied", says);
    assert_eq!(ended.decisions, [json!(["denied", [user()]])]);
}

/// The model reads the reason, and the summary has it.
#[track_caller]
fn check_denied(laptop: &Laptop, ended: &RunResult, code: &str, says: &str) {
    assert_eq!(ended.codes(), [code], "{}", ended.summary);
    let message = ended.results[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains(says), "{message}");
    assert!(ended.summary.contains(says), "{}", ended.summary);
    assert_eq!(laptop.desk_log(), [] as [Value; 0]);
}

#[test]
fn without_a_usable_terminal_the_call_is_denied_at_once() {
    let in_background = r#"set -m; "$@" < "$YES" & wait $!"#;
    let single_keys = r#"stty -icanon; exec "$@" < "$YES""#;
    for (session, with_terminal, says) in [
        (
            RUN,
            false,
            "`kubectl toolcrib run` has no terminal on which to ask",
        ),
        (
            in_background,
            true,
            "`kubectl toolcrib run` is in the background of its terminal",
        ),
        (
            single_keys,
            true,
            "the program reads single keys from the terminal",
        ),
    ] {
        let laptop = Laptop::start(demo());
        let run = Run::trade(&laptop, "10m", session, with_terminal);
        let ended = run.end();
        check_denied(&laptop, &ended, "permission_denied", says);
        assert_eq!(ended.decisions, [json!(["refused", null])]);
    }
}

const TWO_TRADES: &str = "
steps:
- when: {round: 0}
  reply:
    calls:
    - {tool: {containing: execute_trade}, arguments: {symbol: OTTR, side: buy, quantity: 300}}
    - {tool: {containing: execute_trade}, arguments: {symbol: EEL, side: sell, quantity: 400}}
- when: {round: 1}
  reply: {text: '{tool_results}'}
";

#[test]
fn questions_come_one_after_the_other_and_keys_of_before_answer_none() {
    let laptop = Laptop::start(Script::parse(TWO_TRADES).unwrap());
    let mut run = Run::trade(&laptop, "2m", RUN, true);
    let terminal = run.terminal();
    let first = terminal.shows(ASKS);
    assert!(first.contains("OTTR"), "{first}");
    // The second line is there before the second question.
    terminal.types("n\ny\n");
    let second = terminal.shows(ASKS);
    assert!(
        second.contains("denied\n") && second.contains("EEL"),
        "{second}"
    );
    terminal.types("y\n");
    terminal.shows("approved\n");
    let ended = run.end();
    assert_eq!(
        ended.codes(),
        ["approval_denied", "ok"],
        "{}",
        ended.summary
    );
    let traded: Vec<_> = laptop
        .desk_log()
        .iter()
        .map(|it| it["body"].clone())
        .collect();
    assert!(
        traded.len() == 1 && traded[0].as_str().unwrap().contains("EEL"),
        "{traded:?}"
    );
}

const ASKS_AGAIN: &str = "
steps:
- when: {round: 0}
  reply: {calls: [{tool: {containing: execute_trade}, arguments: {symbol: OTTR, side: buy, quantity: 500}}]}
- when: {round: 1}
  reply: {calls: [{tool: {containing: execute_trade}, arguments: {symbol: OTTR, side: buy, quantity: 500}}]}
- when: {round: 2}
  reply: {text: '{tool_results}'}
";

#[test]
fn a_late_answer_counts_for_the_same_call() {
    let laptop = Laptop::start_stepped(Script::parse(ASKS_AGAIN).unwrap());
    laptop.let_model_answer();
    let mut run = Run::trade(&laptop, "1s", RUN, true);
    let terminal = run.terminal();
    assert_eq!(terminal.shows(ASKS), PROMPT);
    // The model hears that nobody has decided yet; the question stays.
    laptop.model_was_asked(2);
    terminal.types("y\n");
    terminal.shows("approved\n");
    laptop.let_model_answer();
    laptop.let_model_answer();
    let ended = run.end();
    assert_eq!(
        ended.codes(),
        ["approval_pending", "ok"],
        "{}",
        ended.summary
    );
    assert_eq!(laptop.desk_log().len(), 1);
}

#[test]
fn a_question_ends_with_the_program() {
    let laptop = Laptop::start(demo());
    let mut run = Run::trade(&laptop, "10m", RUN, true);
    run.terminal().shows(ASKS);
    let pid = i32::try_from(run.child.id()).unwrap();
    // It passes the signal on to the program.
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(
        run.terminal().shows("\n"),
        "\n",
        "the line of the question ends"
    );
    assert_eq!(run.child.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(decisions(&run.record), [] as [Value; 0]);
    assert_eq!(laptop.desk_log(), [] as [Value; 0]);
}
