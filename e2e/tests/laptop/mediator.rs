//! Runs the mediator's program on files that a test swaps as the kubelet does.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::machine::{DEADLINE, Laptop, POLL, built};

const RUNNER: &str = "analyst:laptop-0c7a51e2";

/// The four files of one version.
pub struct Version {
    files: Vec<(String, String)>,
    /// The digest that the mediator reports when it has loaded them.
    digest: Value,
}

impl Version {
    /// Compiles the objects in this folder for this agent, with the example's credentials and
    /// this machine's addresses, as the operator would.
    pub fn compiled(laptop: &Laptop, folder: &Path, agent: &str) -> Self {
        Self::compiled_with(laptop, folder, agent, &[])
    }

    /// Like [`Version::compiled`], with more services, each with its address on this machine.
    pub fn compiled_with(
        laptop: &Laptop,
        folder: &Path,
        agent: &str,
        services: &[(&str, SocketAddr)],
    ) -> Self {
        let output = Command::new(built("kubectl-toolcrib"))
            .args(["compile", "--output", "json", "--agent", agent])
            .arg("-f")
            .arg(folder)
            .output()
            .unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let secret = &list["items"][0];
        assert_eq!(
            secret["metadata"]["name"],
            format!("toolcrib-{agent}-mediator")
        );
        let credentials = &laptop.credentials;
        let filled = |text: &Value| {
            let text = text.as_str().unwrap();
            [
                (
                    "${secret:trading/scripted-model-key/key}",
                    &credentials.provider_key,
                ),
                (
                    "${secret:trading/trading-api-reader/token}",
                    &credentials.reader,
                ),
                (
                    "scripted-model.trading.svc:8080",
                    &laptop.model_address().to_string(),
                ),
                (
                    "trading-api.trading.svc:4000",
                    &laptop.desk_address().to_string(),
                ),
            ]
            .iter()
            .fold(text.to_string(), |text, (from, to)| text.replace(from, to))
        };
        let filled = |text: &Value| {
            services
                .iter()
                .fold(filled(text), |text, (service, place)| {
                    text.replace(service, &place.to_string())
                })
        };
        let mut files: Vec<(String, String)> = ["feeds.json", "providers.json", "tools.json"]
            .iter()
            .map(|name| (name.to_string(), filled(&secret["stringData"][name])))
            .collect();
        let mut about: Value =
            serde_json::from_str(&filled(&secret["stringData"]["agent.json"])).unwrap();
        about["tokens"] = json!([{"id": "laptop", "sha256": sha256(RUNNER)}]);
        about["files"] = files
            .iter()
            .map(|(name, text)| (name.clone(), json!(sha256(text))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        files.push(("agent.json".to_string(), about.to_string()));
        Self {
            files,
            digest: about["digest"]["manifest"].clone(),
        }
    }

    /// Sets this member in `agent.json`.
    pub fn native(mut self, member: &str, value: Value) -> Self {
        for (name, text) in &mut self.files {
            if name == "agent.json" {
                let mut about: Value = serde_json::from_str(text).unwrap();
                about[member] = value.clone();
                *text = about.to_string();
            }
        }
        self
    }
}

pub struct Mediator {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    files: tempfile::TempDir,
    swaps: usize,
}

impl Mediator {
    /// Starts the mediator on these files; they are in force when this returns.
    pub fn start(version: &Version) -> Self {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("config");
        fs::create_dir(&config).unwrap();
        write(&config, 1, version);
        let [address, admin] = [(); 2].map(|()| toolcrib_ports::free().unwrap());
        let child = Command::new(built("toolcrib-sidecar"))
            .env_clear()
            .arg("--config-dir")
            .arg(&config)
            .arg("--history-dir")
            .arg(files.path().join("history"))
            .args(["--listen", &address.to_string()])
            .args(["--admin-listen", &admin.to_string()])
            .args(["--pod", "analyst-0", "--allow-local"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(files.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut mediator = Self {
            child,
            address,
            admin,
            files,
            swaps: 1,
        };
        mediator.until_loaded(version);
        mediator
    }

    /// Replaces the version, and waits until the new one is in force.
    pub fn swap(&mut self, version: &Version) {
        self.swaps += 1;
        let config = self.files.path().join("config");
        let before = fs::read_link(config.join("..data")).unwrap();
        write(&config, self.swaps, version);
        fs::remove_dir_all(config.join(before)).unwrap();
        self.until_loaded(version);
    }

    /// The process id; fails if the started process has ended.
    pub fn process(&mut self) -> u32 {
        let ended = self.child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "the mediator ended: {ended:?}\n{}",
            self.log()
        );
        self.child.id()
    }

    fn until_loaded(&mut self, version: &Version) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.process();
            // An error means that the mediator does not listen yet.
            let ready = ask(self.admin, "GET /readyz", "", "").ok();
            let loaded = ready
                .as_ref()
                .map(|(_, ready)| &ready["digest"]["manifest"]);
            if loaded == Some(&version.digest) {
                return;
            }
            let late = Instant::now() >= deadline;
            assert!(!late, "not in force: {ready:?}\n{}", self.log());
            std::thread::sleep(POLL);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("log")).unwrap()
    }

    /// A runner's environment variables, as injection would write them.
    pub fn runner_environment(&self) -> [(&'static str, String); 4] {
        let address = self.address;
        [
            ("MCP_URL", format!("http://{address}/mcp")),
            ("TOOLCRIB_TOKEN", RUNNER.to_string()),
            ("OPENAI_BASE_URL", format!("http://{address}/v1")),
            ("OPENAI_API_KEY", RUNNER.to_string()),
        ]
    }

    /// The mediator's address, and the runner's token.
    pub fn place(&self) -> (SocketAddr, &'static str) {
        (self.address, RUNNER)
    }

    /// A runner that can be used from another thread.
    pub fn runner(&self) -> Runner {
        Runner(self.address)
    }
}

impl Drop for Mediator {
    fn drop(&mut self) {
        // Err: the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub struct Runner(SocketAddr);

impl Runner {
    /// The text of the answer to this prompt.
    pub fn ask(&self, prompt: &str) -> String {
        let body = json!({"model": "scripted/otter-1",
            "messages": [{"role": "user", "content": prompt}]});
        let authorization = format!("authorization: Bearer {RUNNER}\r\n");
        let target = "POST /v1/chat/completions";
        let (status, answer) = ask(self.0, target, &authorization, &body.to_string()).unwrap();
        assert_eq!(status, 200, "{answer}");
        let text = &answer["choices"][0]["message"]["content"];
        text.as_str().unwrap().to_string()
    }
}

/// Writes a version's folder, then renames one link to put it in force.
fn write(config: &Path, number: usize, version: &Version) {
    let folder = format!("..2026_02_03_04_05_{number:02}.1234567890");
    fs::create_dir(config.join(&folder)).unwrap();
    for (name, text) in &version.files {
        fs::write(config.join(&folder).join(name), text).unwrap();
        let shown = config.join(name);
        if !shown.is_symlink() {
            symlink(Path::new("..data").join(name), shown).unwrap();
        }
    }
    let next = config.join("..data_tmp");
    symlink(&folder, &next).unwrap();
    fs::rename(next, config.join("..data")).unwrap();
}

/// Sends one request and reads its JSON answer. It uses HTTP/1.0, so the answer ends with its
/// connection.
fn ask(
    address: SocketAddr,
    target: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let length = body.len();
    let request = format!(
        "{target} HTTP/1.0\r\nhost: {address}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
    Ok((status, body))
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
