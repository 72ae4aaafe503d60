//! A pod that no node runs, and its real mediator in this process.
//!
//! The test stands in for the kubelet: it copies the compiled Secret into the mediator's folder.
//! It also stands in for the cluster's DNS: every name has the address of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use toolcrib_compile::names;
use toolcrib_sidecar::app::Limits;
use toolcrib_sidecar::http::server::Server;
use toolcrib_sidecar::process::args::{Cli, ServeArgs};

use super::harness::Harness;

pub const AGENT: &str = "analyst";
/// Interval at which the kubelet of this test syncs.
const SYNC: Duration = Duration::from_millis(100);

/// Whether the webhook edited the pod when it was created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    Yes,
    No,
}

/// Creates the agent's pod. It never runs; the operator only reads the object.
pub async fn pod(harness: &Harness, namespace: &str, injected: Injection, phase: &str) -> Pod {
    let accounts: Api<ServiceAccount> = harness.api(namespace);
    harness
        .eventually("the default ServiceAccount", || async {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
    let mut pod = json!({
        "metadata": {"name": AGENT, "labels": {"toolcrib.dev/agent": AGENT}},
        "spec": {"schedulerName": "none", "containers": [{"name": "agent", "image": "none"}]},
    });
    if injected == Injection::Yes {
        pod["metadata"]["annotations"] = json!({ names::INJECTED_ANNOTATION: "2" });
        pod["spec"]["initContainers"] = json!([
            {"name": names::MEDIATOR_CONTAINER, "image": "none", "restartPolicy": "Always"},
        ]);
    }
    let pods: Api<Pod> = harness.api(namespace);
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let phase = json!({"status": {"phase": phase}});
    pods.patch_status(AGENT, &PatchParams::default(), &Patch::Merge(&phase))
        .await
        .unwrap()
}

/// The token of the pod's ServiceAccount for the link, as the kubelet projects it.
pub async fn link_token(harness: &Harness, pod: &Pod) -> String {
    let metadata = &pod.metadata;
    let accounts: Api<ServiceAccount> = harness.api(metadata.namespace.as_deref().unwrap());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec!["toolcrib.dev/link".to_owned()],
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            }),
            expiration_seconds: Some(600),
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token
}

/// Returns the compiled Secret's files; none without the Secret, like the optional volume.
pub async fn files(secrets: &Api<Secret>) -> BTreeMap<String, Vec<u8>> {
    let found = secrets.get_opt(&format!("toolcrib-{AGENT}-mediator")).await;
    let data = found.unwrap().and_then(|secret| secret.data);
    let data = data.unwrap_or_default().into_iter();
    data.map(|(name, bytes)| (name, bytes.0)).collect()
}

/// A serving mediator, and the program beside it.
pub struct MediatedPod {
    pub server: Server,
    key: String,
    output: Output,
    kubelet: Option<JoinHandle<()>>,
    _files: TempDir,
    _history: TempDir,
    token: NamedTempFile,
}

impl Drop for MediatedPod {
    fn drop(&mut self) {
        self.kubelet_stops();
    }
}

impl MediatedPod {
    /// Returns once the compiled files exist and are served.
    pub async fn start(harness: &Harness, namespace: &str) -> Self {
        let pod = pod(harness, namespace, Injection::Yes, "Running").await;
        let secrets: Api<Secret> = harness.api(namespace);
        let identity = harness
            .eventually("the runner's token", || async {
                let name = format!("toolcrib-{AGENT}-identity");
                secrets.get_opt(&name).await.unwrap()
            })
            .await;
        let key = String::from_utf8(identity.data.unwrap()["token"].0.clone()).unwrap();
        let first = harness
            .eventually("the compiled files", || async {
                Some(files(&secrets).await).filter(|files| !files.is_empty())
            })
            .await;
        let folder = tempfile::tempdir().unwrap();
        swap(folder.path(), 0, &first);
        let history = tempfile::tempdir().unwrap();
        let token = NamedTempFile::new().unwrap();
        fs::write(token.path(), link_token(harness, &pod).await).unwrap();
        let mut arguments = arguments(folder.path(), history.path());
        arguments.link_token_file = Some(token.path().to_owned());
        let output = Output::default();
        let server = Server::start(arguments, Limits::default(), output.clone())
            .await
            .unwrap();
        let kubelet = kubelet(secrets, folder.path().to_owned(), first);
        Self {
            server,
            key,
            output,
            kubelet: Some(kubelet),
            _files: folder,
            _history: history,
            token,
        }
    }

    /// Stops the kubelet's copying; the files stay.
    pub fn kubelet_stops(&mut self) {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.abort();
        }
    }

    /// Lets each further report fail.
    pub fn link_ends(&self) {
        fs::write(self.token.path(), "none").unwrap();
    }

    /// Asks the model as the program does. Returns the status and the text of the answer.
    pub async fn ask(&self) -> String {
        let url = format!("http://{}/v1/chat/completions", self.server.address);
        let body = json!({
            "model": "scripted/any",
            "messages": [{"role": "user", "content": "What is my market context?"}],
        });
        let request = reqwest::Client::new().post(url).bearer_auth(&self.key);
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let message = &answer["choices"][0]["message"];
        let text = if let Value::String(text) = &message["content"] {
            text.clone()
        } else if let Value::String(name) = &message["tool_calls"][0]["function"]["name"] {
            format!("a call of {name}, which the program itself has to answer")
        } else {
            answer["error"].to_string()
        };
        format!("{status} {text}")
    }

    /// The record's line of the last request.
    pub fn record(&self) -> Option<Value> {
        let text = String::from_utf8(self.output.0.lock().unwrap().clone()).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.rfind(|line: &Value| line["kind"] == "turn")
    }

    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.server.admin_address);
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }
}

/// Returns the log of a mediator that never gets its files.
pub async fn without_files() -> String {
    let (folder, history) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arguments = arguments(folder.path(), history.path());
    let error = Server::start(arguments, Limits::default(), io::sink()).await;
    let said = format!("toolcrib-sidecar: {}", error.unwrap_err());
    said.replace(folder.path().to_str().unwrap(), "/etc/toolcrib/config")
}

fn arguments(folder: &Path, history: &Path) -> ServeArgs {
    let cli = Cli::parse_from([
        "toolcrib-sidecar",
        "--allow-local",
        "--listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--pod=analyst",
    ]);
    ServeArgs {
        config_dir: folder.to_owned(),
        history_dir: history.to_owned(),
        ..cli.serve
    }
}

fn kubelet(
    secrets: Api<Secret>,
    folder: PathBuf,
    mut shown: BTreeMap<String, Vec<u8>>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut looks = tokio::time::interval(SYNC);
        for version in 1.. {
            let next = loop {
                looks.tick().await;
                let next = files(&secrets).await;
                if next != shown {
                    break next;
                }
            };
            swap(&folder, version, &next);
            shown = next;
        }
    })
}

/// Writes a Secret as the kubelet does: a folder per version, and the link `..data` to the newest.
fn swap(folder: &Path, version: u32, files: &BTreeMap<String, Vec<u8>>) {
    let name = format!("..version-{version}");
    fs::create_dir(folder.join(&name)).unwrap();
    for (file, bytes) in files {
        fs::write(folder.join(&name).join(file), bytes).unwrap();
    }
    let pointer = folder.join("..data_tmp");
    symlink(&name, &pointer).unwrap();
    fs::rename(pointer, folder.join("..data")).unwrap();
}

/// The mediator's standard output.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The cluster's DNS: every name has the address 127.0.0.1 and no other.
pub struct NameServer {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    pub async fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut query = [0; 1024];
            loop {
                let (length, from) = socket.recv_from(&mut query).await.unwrap();
                let answer = answer(&query[..length]);
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self { address, task }
    }
}

/// RFC 1035: the header, the question as it came, and for a question about A one record.
fn answer(query: &[u8]) -> Vec<u8> {
    const HEADER: usize = 12;
    const TYPE_A: [u8; 2] = [0, 1];
    let labels = query[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    let end = HEADER + labels + 5;
    let about_a = query[end - 4..end - 2] == TYPE_A;
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(about_a), 0, 0, 0, 0]);
    answer.extend(&query[HEADER..end]);
    if about_a {
        // The question's name, A, IN, 30 s, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
