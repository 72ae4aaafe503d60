//! Measures the cost of a pod's admission, against a real API server.
//!
//! `./e2e/run bench-admission` brings a control plane up and runs this. The webhook is the real
//! program in a process of its own, which watches the API server's Agents. This program sends it
//! the API server's requests over HTTPS. The reference is a server that reads the same requests
//! over the same TLS and answers with as many bytes, in alternating slices of the same run: the
//! difference is the webhook's own cost. No time is asserted; that each pod gets its mediator is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use toolcrib_crds::{Agent, definitions};

const KUBECONFIG: &str = "TOOLCRIB_TEST_KUBECONFIG";
/// Set for the reference process: its address and the length of its answers.
const REFERENCE: &str = "TOOLCRIB_ADMISSION_REFERENCE";
const POND: &str = "admission";
const DEADLINE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
const AT_A_TIME: usize = 16;
/// Alternating slices of the reference and the webhook.
const PAIRS: usize = 5;

#[derive(Parser)]
struct Arguments {
    /// Number of Agents at the first measurement of memory.
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Number of Agents that are added after it.
    #[arg(long, default_value_t = 1_000)]
    more: usize,
    /// Number of admissions of each side.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Number of connections, each with one request at a time.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// One small round: shows that the bench runs; its figures mean nothing.
    #[arg(long)]
    short: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider is installed"))?;
    if let Ok(told) = std::env::var(REFERENCE) {
        return be_reference(&told).await;
    }
    let mut arguments = Arguments::parse();
    if arguments.short {
        arguments.agents = 5;
        arguments.more = 5;
        arguments.requests = 10 * PAIRS;
    }
    let path = std::env::var(KUBECONFIG)
        .with_context(|| format!("{KUBECONFIG} names no kubeconfig: ./e2e/run bench-admission"))?;
    let kubeconfig = Kubeconfig::read_from(&path)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let result = run(&client, Path::new(&path), &arguments).await;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(POND, &DeleteParams::background()).await?;
    result
}

async fn run(client: &Client, kubeconfig: &Path, arguments: &Arguments) -> Result<()> {
    define(client).await?;
    make(client, 0..arguments.agents).await?;
    let files = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(files.path().join("tls.crt"), made.cert.pem())?;
    std::fs::write(
        files.path().join("tls.key"),
        made.signing_key.serialize_pem(),
    )?;

    let webhook = Process::webhook(kubeconfig, files.path())?;
    webhook.knows(arguments.agents).await?;
    let ask = Ask::new(arguments)?;
    let answer = ask.answer(&webhook).await?;
    ensure!(
        answer["response"]["patch"].is_string(),
        "no patch: {answer}"
    );
    let reference = Process::reference(files.path(), answer.to_string().len())?;
    reference.listens().await?;

    let mut ours = Slices::default();
    let mut bare = Slices::default();
    for _ in 0..PAIRS {
        bare.add(&ask, &reference).await?;
        ours.add(&ask, &webhook).await?;
    }
    println!(
        "{} admissions of each, {} at a time",
        ours.took.len(),
        arguments.connections
    );
    println!("| | p50 | p90 | p99 | max | CPU each |\n|---|---|---|---|---|---|");
    println!("| a server that reads and answers | {bare} |");
    println!("| the webhook | {ours} |");
    println!(
        "the webhook's own histogram: {}",
        webhook.histogram().await?
    );

    let few = webhook.memory()?;
    println!("memory with {} Agents: {few:.1} MiB", arguments.agents);
    make(client, arguments.agents..arguments.agents + arguments.more).await?;
    webhook.knows(arguments.agents + arguments.more).await?;
    let many = webhook.memory()?;
    println!(
        "memory with {} more: {many:.1} MiB, {:.2} KiB for each",
        arguments.more,
        (many - few) * 1024.0 / arguments.more as f64
    );
    Ok(())
}

async fn define(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        let params = PatchParams::apply("toolcrib-admission").force();
        api.patch(&definition.name_any(), &params, &Patch::Apply(&definition))
            .await?;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let pond = serde_json::from_value(json!({"metadata": {"name": POND}}))?;
    namespaces
        .create(&PostParams::default(), &pond)
        .await
        .context("the namespace of an earlier run is left: take the cluster down first")?;
    let agents: Api<Agent> = Api::namespaced(client.clone(), POND);
    eventually("Agents are served", async || {
        agents.list(&Default::default()).await.is_ok()
    })
    .await
}

/// Creates Agents as people write them: with labels, and with the annotations of `kubectl apply`.
async fn make(client: &Client, numbers: std::ops::Range<usize>) -> Result<()> {
    let agents: Api<Agent> = Api::namespaced(client.clone(), POND);
    futures::stream::iter(numbers.map(Ok::<_, anyhow::Error>))
        .map_ok(|number| {
            let agents = agents.clone();
            async move {
                let spec = json!({
                    "surfaces": [{"name": "reed"}, {"name": "mud", "alias": "bank"}],
                });
                let agent = serde_json::from_value(json!({
                    "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
                    "metadata": {
                        "name": format!("otter-{number}"), "namespace": POND,
                        "labels": {"app.kubernetes.io/part-of": "pond"},
                        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": spec.to_string()},
                    },
                    "spec": spec,
                }))?;
                agents.create(&PostParams::default(), &agent).await?;
                Ok(())
            }
        })
        .try_buffer_unordered(AT_A_TIME)
        .try_collect()
        .await
}

/// Polls until a condition holds that no event announces.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        ensure!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// A server in a process of its own, so its memory and CPU are measured separately.
struct Process {
    child: Child,
    admission: SocketAddr,
    status: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("cannot wait for a server to end");
        }
    }
}

impl Process {
    fn webhook(kubeconfig: &Path, certificates: &Path) -> Result<Self> {
        let (admission, status) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let child = Command::new(env!("CARGO_BIN_EXE_toolcrib-operator"))
            .arg("webhook")
            .arg(format!("--listen={admission}"))
            .arg(format!("--status-listen={status}"))
            .arg(format!("--certificate-dir={}", certificates.display()))
            .arg("--mediator-image=mediator.example/mediator:1")
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start the webhook")?;
        Ok(Self {
            child,
            admission,
            status,
        })
    }

    fn reference(certificates: &Path, length: usize) -> Result<Self> {
        let admission = toolcrib_ports::free()?;
        let told = format!("{admission} {length} {}", certificates.display());
        let child = Command::new(std::env::current_exe()?)
            .env(REFERENCE, told)
            .spawn()
            .context("start the reference")?;
        Ok(Self {
            child,
            admission,
            status: admission,
        })
    }

    async fn listens(&self) -> Result<()> {
        let address = self.admission;
        eventually("the reference listens", async || {
            tokio::net::TcpStream::connect(address).await.is_ok()
        })
        .await
    }

    async fn metrics(&self) -> Result<String> {
        let answer = reqwest::get(format!("http://{}/metrics", self.status)).await?;
        Ok(answer.text().await?)
    }

    /// Waits until the webhook knows at least this many Agents: others may have theirs in the
    /// same cluster.
    async fn knows(&self, agents: usize) -> Result<()> {
        eventually("the webhook knows the Agents", async || {
            let ready = reqwest::get(format!("http://{}/readyz", self.status)).await;
            ready.is_ok_and(|answer| answer.status() == 200)
                && self.agents().await.is_some_and(|known| known >= agents)
        })
        .await
    }

    async fn agents(&self) -> Option<usize> {
        let text = self.metrics().await.ok()?;
        let mut counts = text
            .lines()
            .filter_map(|line| line.strip_prefix("toolcrib_webhook_agents "));
        counts.next()?.parse().ok()
    }

    /// Formats the histogram of admission times: how many took at most how long.
    async fn histogram(&self) -> Result<String> {
        let text = self.metrics().await?;
        let buckets = text
            .lines()
            .filter_map(|line| line.strip_prefix("toolcrib_webhook_admission_seconds_bucket{le=\""))
            .filter_map(|line| {
                let (seconds, count) = line.split_once("\"} ")?;
                Some(format!("{count} ≤ {seconds} s"))
            });
        Ok(buckets.collect::<Vec<_>>().join(", "))
    }

    /// Resident memory, in MiB.
    fn memory(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = line
            .and_then(|line| line.split_whitespace().next())
            .context("no memory in /proc")?
            .parse()?;
        Ok(kib / 1024.0)
    }

    /// CPU time of user and system.
    fn cpu(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = text.rsplit_once(')').context("a stat line")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 10))
    }
}

/// The requests to send, and their destination.
struct Ask {
    http: reqwest::Client,
    body: Bytes,
    /// Requests in one slice.
    requests: usize,
    connections: usize,
}

impl Ask {
    fn new(arguments: &Arguments) -> Result<Self> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "otter-0-1", "namespace": POND,
                "labels": {"app": "otter", "toolcrib.dev/agent": "otter-0"},
            },
            "spec": {"containers": [{
                "name": "runner", "image": "runner.example/runner:1", "command": ["run"],
                "env": [{"name": "DEPTH", "value": "3"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }]},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7c1e52f0-41d9-4b7a-9c3e-2f6a8d0b5e11",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "name": "otter-0-1", "namespace": POND, "operation": "CREATE",
                "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
                "object": pod, "oldObject": null, "dryRun": false,
                "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            },
        });
        Ok(Self {
            http: reqwest::Client::builder()
                .tls_danger_accept_invalid_certs(true)
                .no_proxy()
                .build()?,
            body: review.to_string().into(),
            requests: arguments.requests / PAIRS,
            connections: arguments.connections,
        })
    }

    async fn once(&self, server: &Process) -> Result<Bytes> {
        let answer = self
            .http
            .post(format!("https://{}/inject", server.admission))
            .header("content-type", "application/json")
            .body(self.body.clone())
            .send()
            .await?
            .error_for_status()?;
        Ok(answer.bytes().await?)
    }

    async fn answer(&self, server: &Process) -> Result<Value> {
        Ok(serde_json::from_slice(&self.once(server).await?)?)
    }
}

/// Measurements of all slices of one side.
#[derive(Default)]
struct Slices {
    took: Vec<Duration>,
    cpu: Duration,
}

impl Slices {
    async fn add(&mut self, ask: &Ask, server: &Process) -> Result<()> {
        let length = ask.once(server).await?.len();
        let before = server.cpu()?;
        let took: Vec<Duration> = futures::stream::iter(0..ask.requests)
            .map(|_| async {
                let begun = Instant::now();
                let answer = ask.once(server).await?;
                ensure!(answer.len() == length, "another answer: {answer:?}");
                Ok(begun.elapsed())
            })
            .buffer_unordered(ask.connections)
            .try_collect()
            .await?;
        self.cpu += server.cpu()? - before;
        self.took.extend(took);
        self.took.sort();
        Ok(())
    }
}

impl std::fmt::Display for Slices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(last) = self.took.len().checked_sub(1) else {
            return f.write_str("- | - | - | - | -");
        };
        for share in [0.5, 0.9, 0.99, 1.0] {
            let at = (share * last as f64).round() as usize;
            write!(f, "{:.2} ms | ", self.took[at].as_secs_f64() * 1e3)?;
        }
        let each = self.cpu.as_secs_f64() * 1e6 / self.took.len() as f64;
        write!(f, "{each:.0} µs")
    }
}

/// Runs the reference: reads and answers, over the same TLS.
async fn be_reference(told: &str) -> Result<()> {
    let mut told = told.splitn(3, ' ');
    let mut next = || told.next().context("an address, a length and a folder");
    let address: SocketAddr = next()?.parse()?;
    let answer = Bytes::from(vec![b'x'; next()?.parse()?]);
    let files = PathBuf::from(next()?);
    let certificate = CertificateDer::from_pem_file(files.join("tls.crt"))?;
    let key = PrivateKeyDer::from_pem_file(files.join("tls.key"))?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        tokio::spawn(async move {
            // A client that only checks for a listener makes no handshake.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    // A request that breaks off is the client's failure to report.
                    drop(request.into_body().collect().await);
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(answer)))
                }
            });
            let served = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(served);
        });
    }
}
