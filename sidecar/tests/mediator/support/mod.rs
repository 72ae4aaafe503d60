//! One agent ("otter" in "pond"), its mediator, model and tool service.

pub mod collector;
mod dns;
mod fake;
mod files;
pub mod mcp;
pub mod native;
mod operator;
mod raw;
mod server;
mod streams;
mod wire;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use tempfile::TempDir;
use toolcrib_dialect::Dialect;
use toolcrib_sidecar::app::Limits;
use toolcrib_sidecar::http::server::Server;
use toolcrib_sidecar::process::args::Cli;

pub use dns::{NameServer, Reply};
pub use fake::{Answer, Fake, RecordedRequest};
pub use files::{Files, MODEL_KEY, RUNNER, TOOL_TOKEN, hash};
pub use operator::{Operator, decision};
pub use raw::{Raw, RawAnswer};
pub use server::TestServer;
pub use wire::{StreamedReply, Wire};

/// Bound of every wait; a longer wait fails the test.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// Polling interval.
pub const POLL: Duration = Duration::from_millis(5);

pub async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

/// Polls until a condition holds that no event announces.
pub async fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(found) = seen() {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}

pub struct World {
    pub model: Fake,
    pub desk: Fake,
    pub files: Files,
    pub server: Server,
    pub stdout: Sink,
    pub history: TempDir,
    pub runner: reqwest::Client,
    /// The runner's dialect.
    pub wire: Wire,
}

impl World {
    /// Starts a mediator with a model and a desk service; the agent may call `desk.quote` and
    /// `desk.order`.
    pub async fn start() -> World {
        Self::start_with(|_| {}, |_| {}, &[]).await
    }

    /// Like [`World::start`], with a runner and a provider of this dialect.
    pub async fn speaking(wire: Wire) -> World {
        Self::speaking_with(wire, |_| {}, &[]).await
    }

    pub async fn speaking_with(wire: Wire, edit: impl FnOnce(&mut Files), flags: &[&str]) -> World {
        let speak = |files: &mut Files| {
            files.speak(wire.0);
            edit(files);
        };
        let mut world = Self::start_with(speak, |_| {}, flags).await;
        world.wire = wire;
        world
    }

    /// Runs `test` once in each dialect.
    pub async fn each(edit: impl Fn(&mut Files), flags: &[&str], test: impl AsyncFn(World)) {
        for wire in Wire::all() {
            // Shown if the test fails.
            println!("{wire:?}");
            test(Self::speaking_with(wire, &edit, flags).await).await;
        }
    }

    pub async fn start_with(
        edit: impl FnOnce(&mut Files),
        limit: impl FnOnce(&mut Limits),
        flags: &[&str],
    ) -> World {
        let model = Fake::start().await;
        let desk = Fake::start().await;
        let mut files = Files::new(&model.url(), &desk.url());
        edit(&mut files);
        files.publish();
        let history = tempfile::tempdir().unwrap();
        let stdout = Sink::default();
        let mut limits = Limits::default();
        limit(&mut limits);
        let server = start_server(&files, &history, limits, stdout.clone(), flags)
            .await
            .unwrap();
        World {
            model,
            desk,
            files,
            server,
            stdout,
            history,
            runner: reqwest::Client::builder()
                .no_proxy()
                .tls_backend_preconfigured(no_tls())
                .build()
                .unwrap(),
            wire: Wire::CHAT,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    pub fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let dialect = self.wire.0;
        let request = self
            .runner
            .post(self.url(&format!("/v1{}", dialect.resource())))
            .header("content-type", "application/json")
            .body(body.to_string());
        match dialect {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => {
                request.header("authorization", format!("Bearer {RUNNER}"))
            }
            Dialect::AnthropicMessages => request
                .header("x-api-key", RUNNER)
                .header("anthropic-version", "2023-06-01"),
        }
    }

    pub async fn ask(&self, body: Value) -> (u16, Value) {
        let response = within("an answer", self.request(&body).send())
            .await
            .unwrap();
        let status = response.status().as_u16();
        let text = within("its body", response.text()).await.unwrap();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, value)
    }

    /// Sends the usual request, which must be answered with 200.
    pub async fn chat(&self) -> Value {
        let (status, body) = self.ask(self.wire.chat()).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Stops the mediator cleanly and starts another on the same files.
    pub async fn restart(self) -> World {
        self.server.drain().await;
        let (stdout, limits) = (self.stdout.clone(), Limits::default());
        let server = start_server(&self.files, &self.history, limits, stdout, &[])
            .await
            .unwrap();
        World { server, ..self }
    }

    /// The same with these bounds and flags.
    #[cfg(feature = "collector")]
    pub async fn restart_as(self, limits: Limits, flags: &[String]) -> World {
        self.server.drain().await;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let stdout = self.stdout.clone();
        let server = start_server(&self.files, &self.history, limits, stdout, &flags)
            .await
            .unwrap();
        World { server, ..self }
    }

    /// Publishes the files and waits until they are in force.
    pub async fn publish(&mut self) {
        let digest = self.files.publish();
        self.until(|now| {
            now.version().is_ok_and(|it| {
                it.agent
                    .digest
                    .as_ref()
                    .is_some_and(|it| it.manifest == digest)
            })
        })
        .await;
    }

    pub async fn until(&self, seen: impl Fn(&toolcrib_sidecar::config::EffectiveConfig) -> bool) {
        let current = &self.server.app.current;
        let mut changes = current.subscribe();
        within("a change of what is in force", async {
            while !seen(&current.now()) {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }

    /// Waits until stdout, which is written after the answers, contains this.
    pub async fn stdout_has(&self, text: &str) {
        until(text, || self.stdout.text().contains(text).then_some(())).await;
    }

    /// Waits for the line of a request whose runner has disconnected.
    pub async fn turn_is_recorded(&self) {
        let is_turn = |line: &Value| line["kind"] == "turn";
        until("the record", || {
            self.lines().iter().any(is_turn).then_some(())
        })
        .await;
    }

    /// The text of the metrics endpoint.
    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.server.admin_address);
        let answer = within("metrics", self.runner.get(url).send())
            .await
            .unwrap();
        within("their text", answer.text()).await.unwrap()
    }

    /// The record's lines so far, in order, without the intents of model calls.
    pub fn lines(&self) -> Vec<Value> {
        let mut lines = self.all_lines();
        lines.retain(|line| line["kind"] != "model_call");
        lines
    }

    /// The record's lines so far, in order, after the one that begins its chain.
    pub fn all_lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.history.path().join("history.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["kind"] != "start")
            .collect()
    }

    /// The last line alone: the lines before it may be long.
    pub fn last_line(&self) -> Value {
        let text = std::fs::read_to_string(self.history.path().join("history.jsonl")).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }

    /// The tool results in the model's last request, by call id.
    pub fn results(&self) -> Vec<(String, Value)> {
        let body = self.model.requests().last().unwrap().json();
        self.wire.results(&body)
    }

    /// The one result in the last request.
    pub fn result(&self) -> Value {
        let mut results = self.results();
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0).1
    }
}

/// A flag of tests: the mediator dials no address of its own machine.
pub const IN_A_POD: &str = "in-a-pod";

pub async fn start_server(
    files: &Files,
    history: &TempDir,
    limits: Limits,
    stdout: Sink,
    flags: &[&str],
) -> Result<Server, toolcrib_sidecar::http::server::StartError> {
    let config = files.dir().to_str().unwrap();
    let history = history.path().to_str().unwrap();
    let mut line = vec![
        "toolcrib-sidecar",
        "--config-dir",
        config,
        "--history-dir",
        history,
    ];
    line.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    if !flags.contains(&"--pod") {
        line.extend(["--pod", "otter-0"]);
    }
    // The models and services of the tests are on this machine.
    if !flags.contains(&IN_A_POD) {
        line.push("--allow-local");
    }
    line.extend(flags.iter().filter(|flag| **flag != IN_A_POD));
    Server::start(Cli::parse_from(line).serve, limits, stdout).await
}

/// The runner speaks plain HTTP; without this reqwest needs a process-wide TLS provider.
pub fn no_tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// A chat completions request, for tests that hold in any dialect.
pub fn chat() -> Value {
    Wire::CHAT.chat()
}

pub fn calls(calls: &[(&str, &str, &str)]) -> Value {
    Wire::CHAT.calls(calls)
}

pub fn says(text: &str) -> Value {
    Wire::CHAT.says(text)
}

#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
