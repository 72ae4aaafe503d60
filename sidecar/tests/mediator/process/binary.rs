//! The built program, as the kubelet starts it: killed, terminated, with a full disk, and with a
//! stdout that is not read.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::{Answer, Fake, Files, RUNNER, Wire, no_tls, until, within};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_toolcrib-sidecar");

/// A mediator in a process of its own, with its model and its service.
pub struct Mediator {
    pub child: MediatorProcess,
    pub listen: String,
    pub admin: String,
    pub model: Fake,
    pub desk: Fake,
    pub files: Files,
    pub history: TempDir,
    runner: reqwest::Client,
    wire: Wire,
    stderr: std::path::PathBuf,
}

impl Mediator {
    pub async fn start(wire: Wire) -> Mediator {
        Self::start_with(wire, |_| {}, |_| {}).await
    }

    pub async fn start_with(
        wire: Wire,
        prepare: impl FnOnce(&TempDir),
        command: impl FnOnce(&mut Command),
    ) -> Mediator {
        Self::start_as(Path::new(PROGRAM), wire, prepare, |_| {}, command).await
    }

    /// Starts a copy of the program with files that another user can read.
    pub async fn start_as(
        program: &Path,
        wire: Wire,
        prepare: impl FnOnce(&TempDir),
        publish: impl FnOnce(&Files),
        command: impl FnOnce(&mut Command),
    ) -> Mediator {
        Self::start_edited(program, wire, prepare, |_| {}, publish, command).await
    }

    /// Starts the program with other files and flags.
    pub async fn start_with_files(
        wire: Wire,
        edit: impl FnOnce(&mut Files),
        flags: &[&str],
    ) -> Mediator {
        let command = |command: &mut Command| {
            log_each_request(command.args(flags));
        };
        Self::start_edited(Path::new(PROGRAM), wire, |_| {}, edit, |_| {}, command).await
    }

    async fn start_edited(
        program: &Path,
        wire: Wire,
        prepare: impl FnOnce(&TempDir),
        edit: impl FnOnce(&mut Files),
        publish: impl FnOnce(&Files),
        command: impl FnOnce(&mut Command),
    ) -> Mediator {
        let model = Fake::start().await;
        let desk = Fake::start().await;
        let mut files = Files::new(&model.url(), &desk.url());
        files.speak(wire.0);
        edit(&mut files);
        files.publish();
        publish(&files);
        let history = tempfile::tempdir().unwrap();
        prepare(&history);
        let stderr = history.path().join("stderr");
        let (child, listen, admin) = spawn(program, &files, &history, &stderr, command).await;
        Mediator {
            child,
            listen,
            admin,
            model,
            desk,
            files,
            history,
            runner: reqwest::Client::builder()
                .no_proxy()
                .tls_backend_preconfigured(no_tls())
                .build()
                .unwrap(),
            wire,
            stderr,
        }
    }

    /// Starts another process on the same files, as the kubelet restarts a container.
    async fn again(&mut self) {
        self.again_with(&[]).await;
    }

    /// The same with these flags.
    pub async fn again_with(&mut self, flags: &[&str]) {
        let (child, listen, admin) = spawn(
            Path::new(PROGRAM),
            &self.files,
            &self.history,
            &self.stderr,
            |command| {
                command.args(flags);
            },
        )
        .await;
        (self.child, self.listen, self.admin) = (child, listen, admin);
    }

    pub fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("http://{}/v1{}", self.listen, self.wire.0.resource());
        self.runner
            .post(url)
            .header("x-api-key", RUNNER)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// A request for a native call without a session; the caller adds its body.
    pub fn native(&self) -> reqwest::RequestBuilder {
        self.runner
            .post(format!("http://{}/mcp", self.listen))
            .bearer_auth(RUNNER)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
    }

    pub async fn ask(&self) -> (u16, Value) {
        let response = within("an answer", self.request(&self.wire.chat()).send())
            .await
            .unwrap();
        let status = response.status().as_u16();
        let text = within("its body", response.text()).await.unwrap();
        (status, serde_json::from_str(&text).unwrap())
    }

    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.admin);
        let response = within("metrics", self.runner.get(url).send()).await;
        within("metrics", response.unwrap().text()).await.unwrap()
    }

    /// The record's lines, without the intents of model calls.
    pub fn lines(&self) -> Vec<Value> {
        let mut lines = self.all_lines();
        lines.retain(|line| line["kind"] != "model_call");
        lines
    }

    /// The record's lines of finished requests.
    pub fn turns(&self) -> Vec<Value> {
        let path = self.history.path().join("history.jsonl");
        // The file does not exist before the first request.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = lines(&text[..text.rfind('\n').unwrap_or(0)]);
        lines.retain(|line| line["kind"] == "turn");
        lines
    }

    /// The record's lines, without those that begin a chain.
    pub fn all_lines(&self) -> Vec<Value> {
        let path = self.history.path().join("history.jsonl");
        let mut lines = lines(&std::fs::read_to_string(path).unwrap());
        lines.retain(|line| line["kind"] != "start");
        lines
    }

    /// The log so far.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.stderr).unwrap();
        // The last line may be incomplete.
        lines(&text[..text.rfind('\n').unwrap_or(0)])
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        self.child.signal(signal);
    }

    /// Waits for the process to end; returns its status.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        self.child.ended().await
    }
}

/// A process that ends with its test.
pub struct MediatorProcess(pub Child);

impl MediatorProcess {
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the process to end; returns its status.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        until("an end", || self.0.try_wait().unwrap()).await
    }
}

impl Drop for MediatorProcess {
    fn drop(&mut self) {
        // Err: the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

pub(super) async fn spawn(
    program: &Path,
    files: &Files,
    history: &TempDir,
    stderr: &Path,
    change: impl FnOnce(&mut Command),
) -> (MediatorProcess, String, String) {
    let log = std::fs::File::create(stderr).unwrap();
    let mut command = Command::new(program);
    command
        .arg("--config-dir")
        .arg(files.dir())
        .arg("--history-dir")
        .arg(history.path())
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--pod", "otter-0", "--allow-local"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    change(&mut command);
    let child = MediatorProcess(command.spawn().unwrap());
    let serving = until("a start", || {
        let text = std::fs::read_to_string(stderr).unwrap();
        let complete = text.rfind('\n').map(|end| lines(&text[..end]))?;
        complete
            .into_iter()
            .find(|line| line["message"] == "serving")
    })
    .await;
    let said = |key: &str| serving[key].as_str().unwrap().to_string();
    (child, said("listen"), said("admin"))
}

const ORDER: &str = r#"{"symbol":"OTR","quantity":3}"#;

#[tokio::test]
async fn a_call_is_recorded_although_the_process_is_killed() {
    for wire in Wire::all() {
        let mut mediator = Mediator::start(wire).await;
        let gate = Arc::new(Notify::new());
        mediator
            .model
            .will(wire.will_call(&[("c1", "desk__order", ORDER)]));
        mediator.desk.will(Answer::json(json!({})).gated(&gate));
        let running = tokio::spawn(mediator.request(&wire.chat()).send());
        // The service has the call; no answer has come.
        mediator.desk.asked(1).await;
        mediator.signal(rustix::process::Signal::KILL);
        mediator.ended().await;
        within("the runner's error", running)
            .await
            .unwrap()
            .unwrap_err();

        mediator.again().await;
        mediator.model.will(wire.will_say("back"));
        assert_eq!(mediator.ask().await.0, 200);
        let recorded = mediator.lines();
        let seen: Vec<_> = recorded
            .iter()
            .map(|line| (&line["kind"], &line["name"], &line["arguments"]["quantity"]))
            .collect();
        assert_eq!(
            seen,
            [
                (&json!("intent"), &json!("desk.order"), &json!(3)),
                (&json!("turn"), &Value::Null, &Value::Null)
            ]
        );
    }
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_answers_the_rest() {
    let mediator = Mediator::start_with(
        Wire::CHAT,
        |history| {
            // A device that is always full.
            let path = history.path().join("history.jsonl");
            std::os::unix::fs::symlink("/dev/full", path).unwrap();
        },
        |_| {},
    )
    .await;
    let wire = Wire::CHAT;
    mediator
        .model
        .will(wire.will_call(&[("c1", "desk__order", ORDER)]));
    mediator.model.will(wire.will_say("not done"));
    assert_eq!(mediator.ask().await.0, 200);
    let body = mediator.model.requests().last().unwrap().json();
    let result = wire.results(&body).remove(0).1;
    assert_eq!(result["error"]["code"], "request_failed");
    assert_eq!(mediator.desk.connections(), 0);
    let is_refusal = |line: &Value| line["message"] == "intent not written, call refused";
    let refusal = || mediator.log().into_iter().find(is_refusal);
    let refusal = until("the refusal in the log", refusal).await;
    assert_eq!(
        refusal["error"],
        "the record cannot be written: No space left on device (os error 28)"
    );
    let text = mediator.metrics().await;
    let waiting = "toolcrib_mediator_record_waiting_bytes ";
    let line = text.lines().find(|line| line.starts_with(waiting)).unwrap();
    assert_ne!(line, &format!("{waiting}0"));
    assert!(
        text.contains("toolcrib_mediator_unrecorded_total 0"),
        "{text}"
    );

    // There is room again: lines that waited come first.
    std::fs::remove_file(mediator.history.path().join("history.jsonl")).unwrap();
    mediator
        .model
        .will(wire.will_call(&[("c2", "desk__order", ORDER)]));
    mediator.desk.will(Answer::json(json!({"done": true})));
    mediator.model.will(wire.will_say("done"));
    assert_eq!(mediator.ask().await.0, 200);
    let recorded = mediator.lines();
    let kinds: Vec<_> = recorded.iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["turn", "intent", "turn"]);
    let refused = &recorded[0]["tool_trace"][0]["tool_calls"][0];
    assert_eq!(
        (&refused["name"], &refused["executed"]),
        (&json!("desk.order"), &json!(false))
    );
}

/// The runner gets its answer, and ends the mediator before the turn's line is written.
#[tokio::test]
async fn a_model_call_is_recorded_although_the_process_is_killed() {
    for wire in Wire::all() {
        let mut mediator = Mediator::start(wire).await;
        let gate = Arc::new(Notify::new());
        mediator.model.will(wire.will_say("never").gated(&gate));
        let running = tokio::spawn(mediator.request(&wire.chat()).send());
        mediator.model.asked(1).await;
        mediator.signal(rustix::process::Signal::KILL);
        mediator.ended().await;
        within("the runner's error", running)
            .await
            .unwrap()
            .unwrap_err();
        let lines = mediator.all_lines();
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(
            (
                &line["kind"],
                &line["model"],
                &line["agent_id"],
                &line["token"]
            ),
            (
                &json!("model_call"),
                &json!("house/otter-1"),
                &json!("otter"),
                &json!("t1")
            )
        );
        assert!(line["request_id"].is_string() && line["timestamp"].is_string());
    }
}

/// A pipe that is full and is not read.
fn unread() -> (std::io::PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let full = vec![b'\n'; 1024];
    while rustix::io::write(&writer, &full).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, Stdio::from(writer))
}

#[tokio::test]
async fn an_unread_stdout_blocks_neither_answers_nor_shutdown() {
    let (mut reader, stdout) = unread();
    let wire = Wire::CHAT;
    let mut mediator = Mediator::start_with(
        wire,
        |_| {},
        |command| {
            command.stdout(stdout);
        },
    )
    .await;
    mediator
        .model
        .will(wire.will_call(&[("c1", "desk__order", ORDER)]));
    mediator.desk.will(Answer::json(json!({})));
    mediator.model.will(wire.will_say("done"));
    assert_eq!(mediator.ask().await.0, 200);
    mediator.signal(rustix::process::Signal::TERM);
    assert!(mediator.ended().await.success());
    let kinds: Vec<_> = mediator
        .lines()
        .iter()
        .map(|line| line["kind"].clone())
        .collect();
    assert_eq!(kinds, ["intent", "turn"]);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.trim().is_empty() || text.contains("intent"), "{text}");
}

/// Also logs requests that succeed, which have their line on stdout anyway.
fn log_each_request(command: &mut Command) {
    let filter = "info,hickory=error,toolcrib_sidecar::request=debug";
    command.env("TOOLCRIB_LOG", filter);
}

#[tokio::test]
async fn only_a_failed_request_is_a_line_of_the_log() {
    let wire = Wire::CHAT;
    let mediator = Mediator::start(wire).await;
    mediator.model.will(wire.will_say("three"));
    let mut request = wire.chat();
    within("an answer", mediator.request(&request).send())
        .await
        .unwrap();
    request["model"] = json!("no/such");
    within("an answer", mediator.request(&request).send())
        .await
        .unwrap();
    let [refused] = until("the line", || {
        let lines = mediator.log().into_iter();
        let requests = lines.filter(|line| line["message"] == "request");
        requests.collect::<Vec<_>>().try_into().ok()
    })
    .await;
    assert_eq!(refused["error"], "model_not_allowed");
    let turns: Vec<_> = mediator.turns();
    assert_eq!(turns.len(), 2, "{turns:?}");
}

#[tokio::test]
async fn each_request_is_one_line_of_the_log() {
    for wire in Wire::all() {
        let mediator = Mediator::start_with_files(wire, |_| {}, &[]).await;
        mediator.model.will(wire.will_call(&[
            ("c1", "desk__quote", r#"{"symbol":"OTR"}"#),
            ("c2", "shell", "{}"),
        ]));
        mediator.desk.will(Answer::json(json!({"price": 3})));
        mediator.model.will(wire.will_say("three"));
        let mut request = wire.chat_with_shell();
        // A name that would forge a line, and send terminal escapes.
        let forged = "no/such\n{\"message\":\"request\"}\u{1b}[2J\u{9b}2J";
        within("an answer", mediator.request(&request).send())
            .await
            .unwrap();
        request["model"] = json!(forged);
        within("an answer", mediator.request(&request).send())
            .await
            .unwrap();
        // Lines are written in batches, and whole.
        let [served, refused] = until("both lines", || {
            let lines = mediator.log().into_iter();
            let requests = lines.filter(|line| line["message"] == "request");
            requests.collect::<Vec<_>>().try_into().ok()
        })
        .await;
        let text = std::fs::read_to_string(&mediator.stderr).unwrap();
        let acts = |it: char| it.is_control() && it != '\n';
        assert!(!text.contains(acts), "{text:?}");
        for (key, value) in [
            ("manifest_present", json!(true)),
            ("tools_count", json!(2)),
            ("rounds", json!(1)),
            ("status", json!(200)),
            ("agent_id", json!("otter")),
            ("dialect", json!(wire.0.name())),
        ] {
            assert_eq!(served[key], value, "{key}: {served}");
        }
        assert_eq!(refused["model"], forged);
        assert_eq!(refused["error"], "model_not_allowed");
        assert!(
            !text.contains("how deep?") && !text.contains("price"),
            "{text}"
        );
    }
}

/// Variables that a webhook or an image adds to the environment do not redirect a request.
#[tokio::test]
async fn proxy_variables_of_the_environment_are_ignored() {
    let wire = Wire::CHAT;
    let proxy = Fake::start().await;
    let url = proxy.url();
    let set = |command: &mut Command| {
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, &url).env(name.to_lowercase(), &url);
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        // If it is set, programs take HTTP_PROXY for a CGI header and ignore it.
        command.env_remove("REQUEST_METHOD");
    };
    let mediator = Mediator::start_with(wire, |_| {}, set).await;
    mediator
        .model
        .will(wire.will_call(&[("c1", "desk__order", ORDER)]));
    mediator.desk.will(Answer::json(json!({"bought": 3})));
    mediator.model.will(wire.will_say("done"));
    let (status, body) = mediator.ask().await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(mediator.desk.requests().len(), 1);
    assert_eq!(proxy.connections(), 0);
}

/// The families of a text in Prometheus' format: name and type.
fn families(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| {
            let total = if kind == "counter" { "_total" } else { "" };
            (format!("{name}{total}"), kind.to_string())
        })
        .collect()
}

#[tokio::test]
async fn a_fresh_process_exposes_exactly_the_documented_metrics() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let name = cells.next()?.trim_end_matches('`');
            Some((name.to_string(), cells.next()?.to_string()))
        })
        .collect();
    assert!(listed.len() > 20, "{listed:?}");
    let mediator = Mediator::start(Wire::CHAT).await;
    let text = mediator.metrics().await;
    assert_eq!(families(&text), listed);
    // Present at zero, so an alert can use their rate before the first event.
    for series in [
        r#"toolcrib_mediator_tool_calls_total{tool="desk.order",outcome="ok"} 0"#,
        r#"toolcrib_mediator_requests_total{dialect="openai_chat",status="502"} 0"#,
        r#"toolcrib_mediator_record_missed_total{sink="disk"} 0"#,
    ] {
        assert!(text.contains(series), "{series}\n{text}");
    }
}
