//! Runs other mutating webhooks on the same API server, before ours and after it.
//!
//! Our webhook runs in this process with the guard policies behind it; the others make the edits of
//! `operator/compile/tests/mutators`. The API server calls webhooks in the order of their
//! configurations' names, and ours again when a later one changed the pod.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use toolcrib_compile::names;
use toolcrib_crds::{Agent, AgentSpec};
use toolcrib_operator::webhook;

use crate::pods::{IMAGE_REPOSITORY, NamespaceKind};
use crate::policies::{Guard, eventually};

#[path = "../../../operator/compile/tests/mutators/mod.rs"]
mod mutators;
pub use mutators::Mutator;

/// Labels of a pod: the webhook that edits the pod, and when.
pub const THEIRS: &str = "toolcrib-test-mutator";
pub const WHEN: &str = "toolcrib-test-order";

/// Times relative to our webhook. The API server calls webhooks in the order of their
/// configurations' names, and the name of ours begins with `m`.
pub const ORDERS: [&str; 2] = ["before", "later"];

pub fn all_mutators() -> Vec<Mutator> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    mutators::all(&here.join("../operator/compile/tests/mutators"))
}

/// Our webhook and the others, with the API server's configurations of them.
pub struct Webhooks {
    guard: Guard,
    configurations: Vec<String>,
    stop: Vec<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    args: webhook::Args,
}

struct Certificate {
    pem: String,
    key: String,
    directory: tempfile::TempDir,
}

impl Webhooks {
    pub async fn start(test: &str, settings: &[&str]) -> Result<Webhooks> {
        let guard = Guard::open(test, settings).await?;
        define(&guard).await?;
        for place in NamespaceKind::ALL {
            let agents: Api<Agent> = Api::namespaced(guard.client.clone(), &guard.namespace(place));
            let otter = Agent::new("otter", AgentSpec::default());
            agents.create(&PostParams::default(), &otter).await?;
        }
        let mut this = Webhooks {
            guard,
            configurations: Vec::new(),
            stop: Vec::new(),
            tasks: Vec::new(),
        };
        let address = this.guard.this_side()?;
        let certificate = certificate(address)?;
        this.start_ours(address, &certificate).await?;
        this.start_theirs(address, &certificate).await?;
        Ok(this)
    }

    async fn start_ours(&mut self, address: IpAddr, certificate: &Certificate) -> Result<()> {
        let listen = toolcrib_ports::free_at(address)?;
        let status = toolcrib_ports::free()?;
        let flags = Flags::try_parse_from([
            "webhook".to_owned(),
            format!("--listen={listen}"),
            format!("--status-listen={status}"),
            format!(
                "--certificate-dir={}",
                certificate.directory.path().display()
            ),
            "--agent-wait-ms=0".to_owned(),
            "--drain-seconds=0".to_owned(),
            format!("--mediator-image={IMAGE_REPOSITORY}:7"),
        ])?;
        let client = self.guard.client.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        self.stop.push(stop);
        self.tasks.push(tokio::spawn(async move {
            webhook::run_until(client, flags.args, async {
                stopped.await.unwrap_or(());
            })
            .await
        }));
        eventually("the webhook is ready", || async {
            // The connection is refused until the webhook listens.
            let Ok(mut stream) = TcpStream::connect(status).await else {
                return Ok(None);
            };
            let (mut read, mut write) = stream.split();
            let request = b"GET /readyz HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut write, request).await?;
            let mut answer = String::new();
            tokio::io::AsyncReadExt::read_to_string(&mut read, &mut answer).await?;
            Ok(answer.starts_with("HTTP/1.1 200").then_some(()))
        })
        .await?;
        let ours = self.entry(
            "inject.toolcrib.dev",
            format!("https://{listen}/inject"),
            certificate,
            json!({"matchExpressions": [{"key": names::AGENT_LABEL, "operator": "Exists"}]}),
            "IfNeeded",
        );
        self.configure("m", vec![ours]).await
    }

    async fn start_theirs(&mut self, address: IpAddr, certificate: &Certificate) -> Result<()> {
        let listen = toolcrib_ports::free_at(address)?;
        let mutators = Arc::new(all_mutators());
        let router = Router::new()
            .route("/{mutator}", post(mutate))
            .with_state(Arc::clone(&mutators));
        let listener = TcpListener::bind(listen).await?;
        let tls = Tls {
            listener,
            acceptor: acceptor(certificate)?,
        };
        self.tasks.push(tokio::spawn(async move {
            axum::serve(tls, router).await?;
            Ok(())
        }));
        for order in ORDERS {
            let entries = mutators.iter().map(|mutator| {
                self.entry(
                    &format!("{}.theirs.test", mutator.name),
                    format!("https://{listen}/{}", mutator.name),
                    certificate,
                    json!({"matchLabels": {THEIRS: mutator.name, WHEN: order}}),
                    "Never",
                )
            });
            let entries = entries.collect();
            let name = if order == "before" { "a" } else { "z" };
            self.configure(name, entries).await?;
        }
        Ok(())
    }

    fn entry(
        &self,
        name: &str,
        url: String,
        certificate: &Certificate,
        selector: Value,
        reinvocation: &str,
    ) -> Value {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": if reinvocation == "IfNeeded" { "Ignore" } else { "Fail" },
            "reinvocationPolicy": reinvocation,
            "timeoutSeconds": 10,
            "namespaceSelector": self.guard.selector(),
            "objectSelector": selector,
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"], "scope": "Namespaced",
            }],
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(&certificate.pem)},
        })
    }

    async fn configure(&mut self, order: &str, entries: Vec<Value>) -> Result<()> {
        let name = format!("{order}-{}", self.guard.release());
        let configuration: MutatingWebhookConfiguration =
            serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": entries}))?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.guard.client.clone());
        api.create(&PostParams::default(), &configuration).await?;
        self.configurations.push(name);
        Ok(())
    }

    /// Returns the pod as the API server would store it, or the API server's refusal.
    pub async fn admit(&self, place: NamespaceKind, pod: &Value) -> Result<Result<Pod, String>> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let pods = self.guard.pods(&self.guard.namespace(place));
        match pods.create(&dry, &pod).await {
            Ok(admitted) => Ok(Ok(admitted)),
            Err(kube::Error::Api(status)) => Ok(Err(status.message)),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the API server's watch has delivered a webhook configuration.
    pub async fn asked(&self, pod: &Value, sign: impl Fn(&Pod) -> bool) -> Result<()> {
        eventually("the API server asks the webhook", || async {
            let admitted = self.admit(NamespaceKind::Meshed, pod).await?;
            Ok(admitted.is_ok_and(|pod| sign(&pod)).then_some(()))
        })
        .await
    }

    pub async fn close(self) -> Result<()> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.guard.client.clone());
        for name in &self.configurations {
            api.delete(name, &DeleteParams::default()).await?;
        }
        for stop in self.stop {
            ensure!(stop.send(()).is_ok(), "the webhook ended by itself");
        }
        let mut tasks = self.tasks.into_iter();
        tasks.next().context("ours")?.await??;
        tasks.for_each(|theirs| theirs.abort());
        self.guard.close().await
    }
}

async fn define(guard: &Guard) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(guard.client.clone());
    let params = PatchParams::apply("toolcrib-test").force();
    for definition in toolcrib_crds::definitions() {
        let name = definition.name_any();
        api.patch(&name, &params, &Patch::Apply(&definition))
            .await?;
        eventually("the definition is served", || async {
            let conditions = api
                .get(&name)
                .await?
                .status
                .and_then(|status| status.conditions);
            let served = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == "Established" && condition.status == "True");
            Ok(served.then_some(()))
        })
        .await?;
    }
    Ok(())
}

fn certificate(address: IpAddr) -> Result<Certificate> {
    let made = rcgen::generate_simple_self_signed([address.to_string()])?;
    let certificate = Certificate {
        pem: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        directory: tempfile::tempdir()?,
    };
    let directory = certificate.directory.path();
    std::fs::write(directory.join("tls.crt"), &certificate.pem)?;
    std::fs::write(directory.join("tls.key"), &certificate.key)?;
    Ok(certificate)
}

/// Answers one AdmissionReview with the mutator's edit of the pod.
async fn mutate(
    State(mutators): State<Arc<Vec<Mutator>>>,
    Path(name): Path<String>,
    Json(review): Json<Value>,
) -> Json<Value> {
    let before = &review["request"]["object"];
    let mut after = before.clone();
    let mutator = mutators.iter().find(|mutator| mutator.name == name);
    mutator.expect("one that was configured").apply(&mut after);
    let patch = json!([{"op": "replace", "path": "", "value": after}]);
    Json(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"],
            "allowed": true,
            "patchType": "JSONPatch",
            "patch": STANDARD.encode(patch.to_string()),
        },
    }))
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor> {
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // A failed connection does not end the server.
            let Ok((stream, address)) = self.listener.accept().await else {
                continue;
            };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
