//! Model servers that others wrote, unmodified, as providers of the real mediator: `./e2e/run providers`.
//!
//! `e2e/providers` has the servers' settings and the programs behind the mediator; docs/providers.md has the result.
//! Not here: the packages, which [`packages`] installs with a network before the servers run without one.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[expect(dead_code, reason = "the tests of the laptop use the rest")]
#[path = "laptop/machine.rs"]
mod machine;

use std::{
    fs::{self, File},
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use machine::{DEADLINE, Laptop, example_files, lines, repository, stderr, stdout};

/// LiteLLM reads its Python files for up to two minutes at its first start.
const START: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);
/// `master_key` in litellm.yaml.
const KEY: &str = "sk-server-4b1e";
const WRONG_KEY: &str = "sk-another-92d0";
/// Two prompts, each whole and streamed, in three APIs; one prompt of the two calls a tool.
const CALLS_OF_TEXTS: usize = 6;
/// One in each API.
const CALLS_OF_OWN: usize = 3;

/// A server's process. Dropping it kills the server.
struct Server {
    process: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a server that listens at `address`, and waits until it accepts connections.
    fn start(command: &mut Command, address: SocketAddr, log: PathBuf) -> Self {
        let output = File::create(&log).unwrap();
        let process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut server = Self {
            process,
            address,
            log,
        };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.process.try_wait().unwrap();
            assert!(
                ended.is_none() && begin.elapsed() < START,
                "the server does not listen: {}",
                fs::read_to_string(&server.log).unwrap()
            );
            thread::sleep(POLL);
        }
        server
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have been killed by its test.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Passes bytes on, and counts connections.
struct CountingProxy {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl CountingProxy {
    /// The thread ends with the test's process.
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                // A client of a server that is gone sees its connection closed.
                let Ok(server) = TcpStream::connect(target) else {
                    continue;
                };
                pump(client.try_clone().unwrap(), server.try_clone().unwrap());
                pump(server, client);
            }
        });
        Self { address, accepted }
    }

    /// The number of connections since the last call.
    fn connections(&self) -> usize {
        self.accepted.swap(0, Ordering::Relaxed)
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // An error ends the connection, as the end of the stream does.
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
}

/// A CA of a name, and a certificate for 127.0.0.1 that it signed.
struct Authority {
    pem: String,
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let authority = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&authority).unwrap().pem();
        let issuer = Issuer::new(params, authority);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Self {
            pem,
            certificate,
            key: key.serialize_pem(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Streaming {
    Buffered,
    Live,
}

/// The ModelProvider of a run.
#[derive(Clone, Copy)]
struct Provider<'a> {
    url: &'a str,
    key: &'a str,
    authority: &'a str,
    streaming: Streaming,
}

impl Provider<'_> {
    /// Writes the example's files with this provider.
    fn write(self, files: &Path) {
        for (name, text) in example_files() {
            fs::write(files.join(name), text).unwrap();
        }
        let certificate = self.authority.trim_end().replace('\n', "\n    ");
        let provider = fs::read_to_string(folder().join("provider.yaml")).unwrap();
        let provider = provider
            .replace("{key: KEY}", &format!("{{key: {}}}", self.key))
            .replace("CERTIFICATE", &certificate);
        fs::write(files.join("90-server.yaml"), provider).unwrap();
        match self.streaming {
            Streaming::Buffered => {}
            Streaming::Live => {
                let live = repository().join("e2e/sdk/live.yaml");
                fs::copy(live, files.join("95-live.yaml")).unwrap();
            }
        }
    }
}

/// One run of cases.py behind a mediator of its own.
struct Run {
    command: Command,
    folder: tempfile::TempDir,
}

impl Run {
    fn new(laptop: &Laptop, provider: Provider<'_>, case: &str) -> Self {
        let work = tempfile::tempdir().unwrap();
        let [files, history] = ["files", "history"].map(|it| work.path().join(it));
        fs::create_dir(&files).unwrap();
        provider.write(&files);
        let at = format!("provider:server={}", provider.url);
        let flags = ["--at", &at, "--history-dir", text(&history)];
        let (python, cases) = (python(), folder().join("cases.py"));
        // -B: writes no caches beside the sources.
        let program = [text(&python), "-B", text(&cases), case];
        let command = laptop.command(&[], &files, "analyst", &flags, &program);
        Self {
            command,
            folder: work,
        }
    }

    fn check(mut self, case: &str) -> Vec<Value> {
        let output = self.command.output().unwrap();
        succeeded(&output, case);
        self.turns()
    }

    /// The record's lines of requests.
    fn turns(&self) -> Vec<Value> {
        let record = self.folder.path().join("history/history.jsonl");
        let record = fs::read_to_string(record).unwrap();
        let lines = record.lines().map(|it| serde_json::from_str(it).unwrap());
        lines.filter(|it: &Value| it["kind"] == "turn").collect()
    }
}

fn succeeded(output: &Output, case: &str) {
    assert!(
        output.status.success(),
        "{case}: {}\n{}",
        stdout(output),
        stderr(output)
    );
    println!("{case}: {}", stdout(output).trim());
}

/// Runs the cases that all servers pass, and returns the number of connections to the server.
fn check_answers(laptop: &Laptop, proxy: &CountingProxy, provider: Provider<'_>) {
    for (case, calls) in [("texts", CALLS_OF_TEXTS), ("own", CALLS_OF_OWN)] {
        let before = laptop.desk_log().len();
        proxy.connections();
        let turns = Run::new(laptop, provider, case).check(case);
        assert!(turns.iter().all(|it| it["status"] == "ok"), "{turns:#?}");
        assert_eq!(laptop.desk_log().len() - before, calls, "{case}");
        println!(
            "{case}, {:?}: {} requests, {} connections to the server",
            provider.streaming,
            turns.len(),
            proxy.connections()
        );
    }
}

/// The cause of the failed connection in the record's last line.
fn cause(turns: &[Value]) -> &str {
    turns.last().unwrap()["connection"]["cause"]
        .as_str()
        .unwrap()
}

#[test]
fn packages_are_installed() {
    python();
    packages::node_modules("../providers/npm").unwrap();
}

#[test]
fn litellm_is_a_provider_over_tls() {
    let script = fs::read_to_string(folder().join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let (authority, other) = (Authority::new("right"), Authority::new("wrong"));
    let work = tempfile::tempdir().unwrap();
    let mut server = litellm(&laptop, &authority, work.path());
    let proxy = CountingProxy::start(server.address);
    let url = format!("https://{}", proxy.address);
    let buffered = Provider {
        url: &url,
        key: KEY,
        authority: &authority.pem,
        streaming: Streaming::Buffered,
    };
    let live = Provider {
        streaming: Streaming::Live,
        ..buffered
    };
    for provider in [buffered, live] {
        check_answers(&laptop, &proxy, provider);
        Run::new(&laptop, provider, "errors").check("errors");
    }
    let wrong_key = Provider {
        key: WRONG_KEY,
        ..buffered
    };
    let turns = Run::new(&laptop, wrong_key, "wrong_key").check("wrong_key");
    assert_eq!(turns[0]["error"], "upstream_error");

    let wrong_ca = Provider {
        authority: &other.pem,
        ..buffered
    };
    let turns = Run::new(&laptop, wrong_ca, "unreachable").check("unreachable");
    assert_eq!(cause(&turns), "tls_unknown_ca");

    let mut run = Run::new(&laptop, live, "broken_off");
    let mut child = run.command.stdout(Stdio::piped()).spawn().unwrap();
    let said = lines(&mut child);
    while said.recv_timeout(DEADLINE).unwrap() != "begun" {}
    server.kill();
    assert!(child.wait().unwrap().success());
    assert_eq!(run.turns()[0]["error"], "upstream_unreachable");
}

#[test]
fn aimock_is_a_provider() {
    // The laptop's own model is not asked.
    let laptop = Laptop::start(Script::parse("steps: []").unwrap());
    let work = tempfile::tempdir().unwrap();
    let modules = packages::node_modules("../providers/npm").unwrap();
    let address = toolcrib_ports::free().unwrap();
    let mut command = Command::new("node");
    command
        .arg(modules.join("@copilotkit/aimock/dist/cli.js"))
        .args(["--host", "127.0.0.1"])
        .args(["--port", &address.port().to_string()])
        .args(["--strict", "--fixtures"])
        .arg(folder().join("aimock.json"))
        .env("AIMOCK_API_KEYS", KEY);
    let server = Server::start(&mut command, address, work.path().join("log"));
    let proxy = CountingProxy::start(server.address);
    let url = format!("http://{}", proxy.address);
    let authority = Authority::new("unused");
    for streaming in [Streaming::Buffered, Streaming::Live] {
        let provider = Provider {
            url: &url,
            key: KEY,
            authority: &authority.pem,
            streaming,
        };
        check_answers(&laptop, &proxy, provider);
    }
}

fn litellm(laptop: &Laptop, authority: &Authority, work: &Path) -> Server {
    let [certificate, key, home] = ["server.pem", "server.key", "home"].map(|it| work.join(it));
    fs::write(&certificate, &authority.certificate).unwrap();
    fs::write(&key, &authority.key).unwrap();
    fs::create_dir(&home).unwrap();
    let address = toolcrib_ports::free().unwrap();
    let model = laptop.model_address();
    let mut command = Command::new(python().with_file_name("litellm"));
    // No variable of this process may reach the server: it may hold an address or a key.
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home)
        // Otherwise it downloads a list of prices.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("SCRIPTED_OPENAI", format!("http://{model}/v1"))
        .env("SCRIPTED_ANTHROPIC", format!("http://{model}"))
        .env("SCRIPTED_KEY", &laptop.credentials.provider_key)
        .arg("--config")
        .arg(folder().join("litellm.yaml"))
        .args(["--host", "127.0.0.1"])
        .args(["--port", &address.port().to_string()])
        .arg("--ssl_certfile_path")
        .arg(certificate)
        .arg("--ssl_keyfile_path")
        .arg(key);
    Server::start(&mut command, address, work.join("log"))
}

fn python() -> PathBuf {
    packages::python("../providers/requirements.txt").unwrap()
}

fn folder() -> PathBuf {
    repository().join("e2e/providers")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
