//! Starts the binary with a scripted child, and sends requests to it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

/// Timeout of every wait; builds may slow the machine down.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

pub struct Wrapper {
    process: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<Value>>>,
    client: Client,
}

impl Wrapper {
    pub async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// Starts with extra flags, and extra arguments for the child.
    pub async fn start_with(flags: &[&str], child: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrapper/child.py");
        let command: Vec<&str> = ["python3", script].iter().chain(child).copied().collect();
        Self::start_command(flags, &command).await
    }

    pub async fn start_command(flags: &[&str], command: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_toolcrib-mcp-stdio"))
            .args(["--listen", "127.0.0.1:0"])
            .args(flags)
            .arg("--")
            .args(command)
            .env("OTTER", "swims")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let written = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.unwrap();
                let line = serde_json::from_str(&line).unwrap_or(json!({"raw": line}));
                written.lock().unwrap().push(line);
            }
        });
        let mut wrapper = Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
            client: client(),
        };
        let serving = wrapper.logged(|line| line["message"] == "serving").await;
        wrapper.address = serving["listen"].as_str().unwrap().parse().unwrap();
        wrapper
    }

    /// Waits for the first line of the log that matches.
    pub async fn logged(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = || {
            self.log
                .lock()
                .unwrap()
                .iter()
                .find(|it| is_it(it))
                .cloned()
        };
        eventually("a line of the log", || async { found() }).await
    }

    /// Counts the lines of the log that match now.
    pub fn count(&self, is_it: impl Fn(&Value) -> bool) -> usize {
        self.log
            .lock()
            .unwrap()
            .iter()
            .filter(|it| is_it(it))
            .count()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.url(path))
    }

    pub fn delete(&self, session: &str) -> RequestBuilder {
        let request = self.client.delete(self.url("/mcp"));
        request.header("mcp-session-id", session)
    }

    pub fn post(&self, body: &Value) -> RequestBuilder {
        self.client
            .post(self.url("/mcp"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string())
    }

    pub async fn is_ready(&self) -> bool {
        let ready = self.get("/readyz").send().await.unwrap();
        ready.status() == 200
    }

    /// Starts a session and returns its id.
    pub async fn initialize(&self) -> String {
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        }});
        let response = self.post(&request).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let answer = body(response).await;
        let expected = json!({"jsonrpc": "2.0", "id": 0, "result": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "otter", "version": "7"},
        }});
        assert_eq!(answer, expected);
        session
    }

    /// Sends a request in a session.
    pub async fn ask(&self, session: &str, id: u64, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let request = self.post(&request).header("mcp-session-id", session);
        body(request.send().await.unwrap()).await
    }

    /// Calls a tool in a session.
    pub async fn call(&self, session: &str, id: u64, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask(session, id, "tools/call", params).await
    }

    /// Builds a request of the stateless form with the headers that it requires.
    pub fn stateless(&self, method: &str, mut params: Value) -> RequestBuilder {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let request = json!({"jsonrpc": "2.0", "id": "s", "method": method, "params": params});
        let request = self.post(&request);
        let request = request.header("mcp-protocol-version", "2026-07-28");
        let request = request.header("mcp-method", method);
        match params["name"].as_str() {
            Some(name) => request.header("mcp-name", name),
            None => request,
        }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: &str) {
        kill(signal, self.id());
    }

    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub fn kill(signal: &str, process: u32) {
    let status = Command::new("kill")
        .args(["-s", signal, &process.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Polls until `look` returns a value.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(POLL).await;
    }
}

pub async fn body(response: Response) -> Value {
    let text = response.text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// Returns the text of a result's first content block.
pub fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

fn client() -> Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .unwrap()
}
