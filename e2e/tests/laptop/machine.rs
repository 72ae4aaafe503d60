//! A developer's machine: the scripted model and the trading desk on loopback, and `kubectl
//! toolcrib run` on the trading-desk example. No cluster, no internet.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

use axum::{extract::Request, middleware::Next};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot, watch};
use toolcrib_e2e::cargo::cargo;
use toolcrib_e2e::services::desk::DeskState;
use toolcrib_e2e::services::model::{ModelState, Script};
use toolcrib_e2e::services::serving::serve_on;
use toolcrib_e2e::services::{desk, model};

/// Timeout of every wait; a timeout fails the test. Other builds may load the machine.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Polling interval.
pub const POLL: Duration = Duration::from_millis(5);

/// The values in the example's Secrets, by their use.
pub struct Credentials {
    pub provider_key: String,
    pub reader: String,
    pub executor: String,
}

pub struct Laptop {
    pub credentials: Credentials,
    gate: Arc<Gate>,
    model: Service<ModelState>,
    desk: Service<DeskState>,
    /// The folder of the key and token files, which the services read. Dropping it removes the
    /// files.
    _files: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

struct Service<T> {
    state: Arc<T>,
    address: SocketAddr,
    /// Dropping it stops the service.
    _stop: oneshot::Sender<()>,
}

/// The gate where the model's requests wait for the test.
struct Gate {
    asked: watch::Sender<usize>,
    leave: Semaphore,
}

impl Laptop {
    /// Starts a model that answers at once.
    pub fn start(script: Script) -> Self {
        Self::start_gated(script, Semaphore::MAX_PERMITS)
    }

    /// Starts a model that answers a request when [`Laptop::let_model_answer`] is called.
    pub fn start_stepped(script: Script) -> Self {
        Self::start_gated(script, 0)
    }

    fn start_gated(script: Script, leave: usize) -> Self {
        let gate = Arc::new(Gate {
            asked: watch::Sender::new(0),
            leave: Semaphore::new(leave),
        });
        let credentials = credentials();
        let files = tempfile::tempdir().unwrap();
        let key = files.path().join("key");
        let tokens = files.path().join("tokens");
        fs::write(&key, &credentials.provider_key).unwrap();
        fs::create_dir(&tokens).unwrap();
        fs::write(tokens.join("reader"), &credentials.reader).unwrap();
        fs::write(tokens.join("executor"), &credentials.executor).unwrap();

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let model = ModelState::new(key, script);
        let desk = DeskState::new(tokens);
        let gated = gate.clone();
        let hold = axum::middleware::from_fn(move |request: Request, next: Next| {
            let gate = gated.clone();
            async move {
                gate.pass().await;
                next.run(request).await
            }
        });
        let router = model::router(model.clone()).layer(hold);
        let model = Service::start(&runtime, model, router);
        let desk = Service::start(&runtime, desk.clone(), desk::router(desk));
        Self {
            credentials,
            gate,
            model,
            desk,
            _files: files,
            runtime,
        }
    }

    pub fn model_address(&self) -> SocketAddr {
        self.model.address
    }

    pub fn desk_address(&self) -> SocketAddr {
        self.desk.address
    }

    /// Waits until the model has got this many requests, answered or not.
    pub fn model_was_asked(&self, times: usize) {
        let mut asked = self.gate.asked.subscribe();
        let wait =
            async { tokio::time::timeout(DEADLINE, asked.wait_for(|it| *it >= times)).await };
        let waited = self.runtime.block_on(wait);
        assert!(waited.is_ok(), "the model was not asked {times} times");
    }

    /// Lets the model answer one more request.
    pub fn let_model_answer(&self) {
        self.gate.leave.add_permits(1);
    }

    /// Runs `kubectl toolcrib run` on the example with both local services.
    pub fn run(&self, agent: &str, flags: &[&str], command: &[&str]) -> Output {
        self.run_with(&[], &example(), agent, flags, command)
    }

    /// Like [`Laptop::run`], with variables in its environment, on other files.
    pub fn run_with(
        &self,
        variables: &[(&str, &str)],
        files: &Path,
        agent: &str,
        flags: &[&str],
        command: &[&str],
    ) -> Output {
        self.command(variables, files, agent, flags, command)
            .output()
            .unwrap()
    }

    /// Returns the command of [`Laptop::run_with`] without starting it.
    pub fn command(
        &self,
        variables: &[(&str, &str)],
        files: &Path,
        agent: &str,
        flags: &[&str],
        command: &[&str],
    ) -> Command {
        let mut run = Command::new(built("kubectl-toolcrib"));
        run.envs(variables.iter().copied())
            .arg("run")
            .arg("-f")
            .arg(files)
            .args(["--agent", agent])
            .args(["--at", &format!("trading-api=http://{}", self.desk.address)])
            .args([
                "--at",
                &format!("provider:scripted=http://{}", self.model.address),
            ])
            .arg("--sidecar")
            .arg(built("toolcrib-sidecar"))
            .args(flags)
            .arg("--")
            .args(command);
        run
    }

    /// The desk's requests, in order.
    pub fn desk_log(&self) -> Vec<Value> {
        let log = self.desk.state.ledger().log_since(0);
        log["requests"].as_array().unwrap().clone()
    }

    /// The model's requests, in order.
    pub fn model_requests(&self) -> Vec<Value> {
        let requests = serde_json::to_string(&self.model.state.recorder().since(0)).unwrap();
        let requests: Value = serde_json::from_str(&requests).unwrap();
        requests["requests"].as_array().unwrap().clone()
    }
}

impl Gate {
    async fn pass(&self) {
        self.asked.send_modify(|asked| *asked += 1);
        self.leave.acquire().await.unwrap().forget();
    }
}

impl<T> Service<T> {
    fn start(runtime: &tokio::runtime::Runtime, state: Arc<T>, router: axum::Router) -> Self {
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            serve_on(listener, router, async { drop(stopped.await) })
                .await
                .unwrap();
        });
        Self {
            state,
            address,
            _stop: stop,
        }
    }
}

/// Names of the tools in a recorded model request.
pub fn offered(request: &Value) -> Vec<&str> {
    let tools = request["body"]["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    tools
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

/// The values of a recorded request's headers, by lower-case name.
pub fn headers(request: &Value) -> BTreeMap<&str, &str> {
    let pairs = request["headers"].as_array().unwrap();
    pairs
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        .collect()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The lines that a program prints, as they come. The thread that reads them ends with the program's
/// stdout.
pub fn lines(child: &mut Child) -> mpsc::Receiver<String> {
    let (said, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Parses the program's stdout as one JSON document. Panics with stdout and stderr if it is none.
pub fn document(output: &Output) -> Value {
    let shown = || format!("stdout: {}\nstderr: {}", stdout(output), stderr(output));
    assert!(output.status.success(), "{}\n{}", output.status, shown());
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| panic!("{error}\n{}", shown()))
}

/// The script that the binary plays by default.
pub fn demo() -> Script {
    Script::default_script()
}

/// Returns the desk's answer for this claw id and principal, as the model gets it.
pub fn market(claw_id: &str, principal: &str) -> Value {
    let data = desk::market_context(claw_id, principal);
    json!({"ok": true, "status_code": 200, "data": data})
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

pub fn runner(name: &str) -> String {
    repository()
        .join("e2e/runner")
        .join(name)
        .to_str()
        .unwrap()
        .to_string()
}

pub fn example() -> PathBuf {
    repository().join("crds/examples/trading-desk")
}

/// Returns the example's files by name. Like `kubectl apply -f`, it skips the folder with the
/// policy tests.
pub fn example_files() -> BTreeMap<String, String> {
    let paths = fs::read_dir(example()).unwrap();
    paths
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Reads the credentials from the example's own Secrets, so the values are in one place.
fn credentials() -> Credentials {
    let mut values = BTreeMap::new();
    for (_, text) in example_files() {
        for document in serde_yaml::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).unwrap();
            if object["kind"] == "Secret" {
                let data = object["stringData"]
                    .as_object()
                    .unwrap()
                    .values()
                    .next()
                    .unwrap();
                let name = object["metadata"]["name"].as_str().unwrap().to_string();
                values.insert(name, data.as_str().unwrap().to_string());
            }
        }
    }
    let value = |secret: &str| values[secret].clone();
    Credentials {
        provider_key: value("scripted-model-key"),
        reader: value("trading-api-reader"),
        executor: value("trading-api-executor"),
    }
}

/// Builds a program of another package of this workspace; returns its path.
pub fn built(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let status = cargo()
            // Builds a test too, so that Cargo resolves the same features as for this test.
            .args(["build", "--quiet", "--workspace", "--bins"])
            .args(["--test", "laptop"])
            .current_dir(repository())
            .status()
            .unwrap();
        assert!(status.success(), "the programs do not build");
        // This test is target/<profile>/deps/<name>; the programs are two levels up.
        let test = std::env::current_exe().unwrap();
        test.parent().and_then(Path::parent).unwrap().to_path_buf()
    });
    folder.join(program)
}
