//! The export to a real OpenTelemetry Collector with its file exporter, read back by the command line.
//!
//! `./e2e/run collector` builds both programs and names them in the environment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use toolcrib_sidecar::app::Limits;

use super::rig::QUICK;
use crate::support::{Answer, POLL, TOOL_TOKEN, Wire, World, until, within};

/// Bytes of a record of which rotation removes a file after some tens of turns.
const SMALL: &str = "120000";

fn program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    PathBuf::from(path.unwrap_or_else(|| panic!("{variable} is not set: ./e2e/run collector")))
}

/// A collector whose file outlives its process.
struct RealCollector {
    dir: TempDir,
    port: u16,
    child: Option<Child>,
}

impl RealCollector {
    /// `limit_mib`: what the memory limiter allows; the process alone has more than 10 MiB.
    async fn start(limit_mib: u32) -> Self {
        let port = toolcrib_ports::free().unwrap().port();
        let mut collector = Self {
            dir: tempfile::tempdir().unwrap(),
            port,
            child: None,
        };
        collector.configure(limit_mib);
        collector.restart().await;
        collector
    }

    fn configure(&self, limit_mib: u32) {
        let dir = self.dir.path().display();
        let configuration = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": format!("127.0.0.1:{}", self.port)}}}},
            "processors": {"memory_limiter": {"check_interval": "100ms", "limit_mib": limit_mib}},
            // With rotation each message is written before it is answered.
            "exporters": {"file": {"path": format!("{dir}/records.jsonl"), "rotation": {"max_megabytes": 100}}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "error"}},
                "pipelines": {"logs": {
                    "receivers": ["otlp"], "processors": ["memory_limiter"], "exporters": ["file"]}},
            },
        });
        std::fs::write(
            self.dir.path().join("config.yaml"),
            configuration.to_string(),
        )
        .unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("records.jsonl")
    }

    async fn restart(&mut self) {
        self.kill();
        let configuration = self.dir.path().join("config.yaml");
        let mut command = Command::new(program("TOOLCRIB_TEST_COLLECTOR"));
        command.args(["--config", &format!("file:{}", configuration.display())]);
        self.child = Some(command.stdout(Stdio::null()).spawn().unwrap());
        within("the collector", async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }
}

impl Drop for RealCollector {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the command line; returns its exit code and its two outputs.
fn kubectl_toolcrib(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(program("TOOLCRIB_TEST_COMMAND_LINE"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn verified(collector: &RealCollector) -> (i32, String) {
    let file = collector.file();
    let (code, text, error) = kubectl_toolcrib(&["audit", "verify", file.to_str().unwrap()]);
    (code, text + &error)
}

/// The calls of these files by their ids.
fn calls(files: &[PathBuf]) -> BTreeMap<String, Value> {
    assert!(files.iter().any(|file| file.exists()), "{files:?}");
    let mut arguments = vec!["audit", "-o", "json"];
    for file in files.iter().filter(|file| file.exists()) {
        arguments.extend(["-f", file.to_str().unwrap()]);
    }
    let (code, text, error) = kubectl_toolcrib(&arguments);
    assert_eq!(code, 0, "{error}");
    let rows = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        (row["call_id"].as_str().unwrap().to_owned(), row)
    });
    rows.collect()
}

fn flags(collector: &RealCollector, more: &[&str]) -> Vec<String> {
    let url = collector.url();
    let flags = ["--otlp-endpoint", &url, "--export-records"];
    flags.iter().chain(more).map(ToString::to_string).collect()
}

async fn world(flags: &[String]) -> World {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    World::start_with(|_| {}, |limits| *limits = limits_of_tests(), &flags).await
}

/// A quick export, and a flush of at most 6 s.
fn limits_of_tests() -> Limits {
    Limits {
        export: QUICK,
        drain: Duration::from_secs(6),
        closing: Duration::from_secs(6),
        ..Limits::default()
    }
}

/// A turn with one call; returns the status that the runner got.
async fn turn(world: &World, number: usize) -> u16 {
    let arguments = json!({"symbol": format!("OTR-{number}")}).to_string();
    let wire = Wire::CHAT;
    world
        .model
        .will(wire.will_call(&[("c1", "desk__quote", &*arguments)]));
    world
        .desk
        .will(Answer::json(json!({"price": number, "key": TOOL_TOKEN})));
    world.model.will(wire.will_say("done"));
    world.ask(wire.chat()).await.0
}

/// Kills and pauses the collector, and restarts the mediator, under load: each line arrives, and the
/// collector's file equals the record.
#[tokio::test]
async fn each_line_arrives_over_kills_of_the_collector_and_restarts_of_the_mediator() {
    let mut collector = RealCollector::start(500).await;
    let flags = flags(&collector, &["--export-arguments"]);
    let mut world = world(&flags).await;
    let mut number = 0;
    for round in 0..16 {
        match round % 8 {
            1 => collector.restart().await,
            2 => collector.signal(Signal::STOP),
            3 => collector.signal(Signal::CONT),
            4 => collector.kill(),
            // The mediator ends while the collector is down, and what it could not send remains.
            5 => world = world.restart_as(limits_of_tests(), &flags).await,
            6 => collector.restart().await,
            _ => {}
        }
        for _ in 0..8 {
            number += 1;
            assert_eq!(turn(&world, number).await, 200);
        }
    }
    world.server.drain().await;
    let (code, said) = verified(&collector);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(": whole\n").count(), 3, "{said}");
    let record = ["history.jsonl.1", "history.jsonl"].map(|it| world.history.path().join(it));
    let (here, there) = (calls(&record), calls(&[collector.file()]));
    assert_eq!(there.len(), number);
    assert_eq!(here, there);
    let text = std::fs::read_to_string(collector.file()).unwrap();
    assert!(!text.contains("how deep?") && !text.contains(TOOL_TOKEN));
}

/// Seconds for which the collector is stopped; `TOOLCRIB_COLLECTOR_STOPPED` sets others.
const STOPPED: u64 = 5;
/// Time to send the lines of minutes.
const CATCH_UP: Duration = Duration::from_secs(300);

/// Bytes of the record that the collector has not taken.
async fn lag(world: &World) -> u64 {
    let text = world.metrics().await;
    let mut lines = text.lines();
    let lag = lines.find_map(|line| line.strip_prefix("toolcrib_mediator_export_lag_bytes "));
    lag.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// The collector does not answer for some time. Meanwhile the mediator works on and restarts, and with
/// `Refuse` no line that it wrote is lost.
#[tokio::test]
async fn a_collector_that_was_stopped_gets_each_line() {
    let collector = RealCollector::start(500).await;
    let more = [
        "--export-arguments",
        "--export-when-behind",
        "Refuse",
        "--history-max-bytes",
        "8000000",
    ];
    let flags = flags(&collector, &more);
    let mut world = world(&flags).await;
    let seconds = std::env::var("TOOLCRIB_COLLECTOR_STOPPED");
    let seconds = seconds.map_or(STOPPED, |text| text.parse().unwrap());
    let half = Duration::from_secs(seconds) / 2;
    let (mut asked, mut answered) = (0, 0);
    collector.signal(Signal::STOP);
    for _ in 0..2 {
        let began = Instant::now();
        while began.elapsed() < half {
            asked += 1;
            answered += usize::from(turn(&world, asked).await == 200);
        }
        world = world.restart_as(limits_of_tests(), &flags).await;
    }
    collector.signal(Signal::CONT);
    let caught_up = async {
        while lag(&world).await != 0 {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(CATCH_UP, caught_up).await.unwrap();
    world.server.drain().await;
    println!("stopped for {seconds} s: {answered} of {asked} turns answered");
    let (code, said) = verified(&collector);
    assert_eq!(code, 0, "{said}");
    // A process that was refused all lines has no chain.
    let chains = said.matches("chain ").count();
    assert!(
        chains > 1 && said.matches(": whole\n").count() == chains,
        "{said}"
    );
    assert!(answered > 0 && calls(&[collector.file()]).len() >= answered);
}

/// The memory limiter refuses with 503; with more memory the same collector takes the lines.
#[tokio::test]
async fn a_collector_without_memory_gets_the_lines_later() {
    let mut collector = RealCollector::start(1).await;
    let world = world(&flags(&collector, &["--export-arguments"])).await;
    for number in 0..5 {
        assert_eq!(turn(&world, number).await, 200);
    }
    assert_ne!(lag(&world).await, 0);
    collector.configure(500);
    collector.restart().await;
    world.server.drain().await;
    assert_eq!(verified(&collector).0, 0);
    assert_eq!(calls(&[collector.file()]).len(), 5);
}

/// Without arguments a missing line is found all the same; a changed one is not, and that is said.
#[tokio::test]
async fn without_arguments_missing_lines_are_found() {
    let collector = RealCollector::start(500).await;
    let world = world(&flags(&collector, &[])).await;
    for number in 0..5 {
        assert_eq!(turn(&world, number).await, 200);
    }
    world.server.drain().await;
    let (code, said) = verified(&collector);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(": whole\n") && said.contains("without arguments: 16 lines"),
        "{said}"
    );
    let rows = calls(&[collector.file()]);
    assert_eq!(rows.len(), 5);
    assert!(
        rows.values()
            .all(|row| row["arguments"] == "[not exported]")
    );
    let text = std::fs::read_to_string(collector.file()).unwrap();
    assert!(!text.contains("OTR-"), "{text}");
    // One record less, as a store loses it.
    let lines: Vec<String> = text.lines().map(|line| without_intent(line, 4)).collect();
    std::fs::write(collector.file(), lines.join("\n")).unwrap();
    let (code, said) = verified(&collector);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("missing: line "), "{said}");
}

/// Removes the record with a `seq` from a message.
fn without_intent(line: &str, seq: u64) -> String {
    let mut message: Value = serde_json::from_str(line).unwrap();
    let records = &mut message["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    records.as_array_mut().unwrap().retain(|record| {
        let text = record["body"]["stringValue"].as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()["seq"] != seq
    });
    message.to_string()
}

#[tokio::test]
async fn with_drop_verify_shows_what_rotation_took() {
    let mut collector = RealCollector::start(500).await;
    let flags = flags(
        &collector,
        &["--export-arguments", "--history-max-bytes", SMALL],
    );
    let world = world(&flags).await;
    collector.kill();
    for number in 0..150 {
        assert_eq!(turn(&world, number).await, 200);
    }
    collector.restart().await;
    world.server.drain().await;
    let (code, said) = verified(&collector);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("missing: lines "), "{said}");
    let file = collector.file();
    let (_, _, notes) = kubectl_toolcrib(&["audit", "-f", file.to_str().unwrap()]);
    assert!(notes.contains("missing"), "{notes}");
}

#[tokio::test]
async fn with_refuse_each_line_arrives() {
    let mut collector = RealCollector::start(500).await;
    let more = [
        "--export-arguments",
        "--export-when-behind",
        "Refuse",
        "--history-max-bytes",
        SMALL,
    ];
    let world = world(&flags(&collector, &more)).await;
    collector.kill();
    let mut answered = 0;
    while turn(&world, answered).await == 200 {
        answered += 1;
        assert!(answered < 500, "never refused");
    }
    collector.restart().await;
    until("room", || world.server.app.history.ready().ok()).await;
    world.server.drain().await;
    let (code, said) = verified(&collector);
    assert_eq!(code, 0, "{said}");
    assert!(calls(&[collector.file()]).len() >= answered);
}
