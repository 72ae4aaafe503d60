//! Toolcrib as its chart installs it, with processes in place of pods: the chart's objects, its
//! accounts with exactly their rights, and the arguments of its Deployments.
//!
//! This module also does the node's part: the certificate's volume is a folder that is filled
//! some time after the Secret changes, the Service is a [`Balancer`], a pod is an object that
//! never runs. Not here: requests to the installation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use reqwest::tls::TlsInfo;
use rustls::pki_types::CertificateDer;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::balancer::Balancer;
use crate::plane::Plane;
use crate::program::Program;
use crate::wait::{DEADLINE, eventually};

pub const SYSTEM: &str = "toolcrib-system";
pub const RELEASE: &str = "toolcrib";
/// Namespace of the agents.
pub const POND: &str = "pond";
/// A second namespace, where agents may live for a while.
pub const LAKE: &str = "lake";
pub const CERTIFICATES: &str = "toolcrib-certificates";
pub const CONTROLLER: &str = "toolcrib-controller";
pub const WEBHOOK: &str = "toolcrib-webhook";
/// The kubelet takes about a minute for this; no test may depend on the exact time.
const VOLUME_LAG: Duration = Duration::from_secs(2);

pub struct Installation {
    pub balancer: Balancer,
    arguments: BTreeMap<&'static str, Vec<String>>,
    tokens: BTreeMap<&'static str, String>,
    certificate: PathBuf,
    volume: JoinHandle<()>,
    programs: PathBuf,
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.volume.abort();
    }
}

/// A replica of the controller or the webhook.
pub struct Replica {
    pub program: Program,
    /// Address of `/readyz` and `/metrics`.
    pub status: SocketAddr,
    /// Address of the service.
    pub address: SocketAddr,
}

impl Replica {
    pub async fn ready(&self) -> bool {
        let answer = reqwest::get(format!("http://{}/readyz", self.status)).await;
        answer.is_ok_and(|answer| answer.status() == 200)
    }

    /// The sum of a metric's series; `None` if the replica does not answer.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let answer = reqwest::get(format!("http://{}/metrics", self.status)).await;
        let text = answer.ok()?.text().await.ok()?;
        let name = format!("toolcrib_operator_{name}");
        let series = text.lines().filter(|line| line.starts_with(&name));
        Some(
            series
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum(),
        )
    }

    pub async fn metric_is(&self, name: &str, value: f64) -> bool {
        self.metric(name).await == Some(value)
    }

    pub async fn leads(&self) -> bool {
        self.metric_is("leader", 1.0).await
    }

    /// The certificate that a webhook serves to a client that trusts these authorities alone;
    /// `None` if they did not sign it.
    pub async fn certificate(&self, authorities: &[u8]) -> Result<Option<CertificateDer<'static>>> {
        let host = format!("{WEBHOOK}.{SYSTEM}.svc");
        let client = reqwest::Client::builder()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(authorities)?)
            .tls_info(true)
            .resolve(&host, self.address)
            .no_proxy()
            .build()?;
        let url = format!("https://{host}:{}/", self.address.port());
        let Ok(answer) = client.get(url).send().await else {
            return Ok(None);
        };
        let shown = answer.extensions().get::<TlsInfo>();
        let shown = shown.and_then(TlsInfo::peer_certificate);
        Ok(shown.map(|shown| shown.to_vec().into()))
    }
}

impl Installation {
    /// Applies the objects of an earlier chart, but the present chart's rights, because the
    /// processes are the present ones. [`Installation::upgrade`] does the rest.
    pub async fn new(plane: &Plane, chart: &Path, earlier: &Path) -> Result<Self> {
        let balancer = Balancer::start().await?;
        for namespace in [SYSTEM, POND, LAKE] {
            plane.apply(&[
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            ])?;
        }
        let certificate = plane.folder().join("certificate");
        std::fs::create_dir_all(&certificate)?;
        let mut this = Self {
            volume: tokio::spawn(volume(plane.client.clone(), certificate.clone())),
            certificate,
            balancer,
            arguments: BTreeMap::new(),
            tokens: BTreeMap::new(),
            programs: plane.folder().to_owned(),
        };
        let port = this.balancer.address.port();
        let rights = |object: &Value| object["apiVersion"] == "rbac.authorization.k8s.io/v1";
        let mut objects = rendered(plane, earlier, port)?;
        objects.retain(|object| object["kind"] != "Deployment" && !rights(object));
        let mut current = rendered(plane, chart, port)?;
        this.remember(&current)?;
        current.retain(rights);
        objects.extend(current);
        plane.apply(&objects)?;
        for account in [CONTROLLER, WEBHOOK] {
            let token = token(plane, account).await?;
            this.tokens.insert(account, token);
        }
        Ok(this)
    }

    /// Upgrades to the chart in that folder, as `helm upgrade --install` does.
    pub async fn upgrade(&mut self, plane: &Plane, chart: &Path) -> Result<()> {
        let mut objects = rendered(plane, chart, self.balancer.address.port())?;
        self.remember(&objects)?;
        // Deployments cannot run here; only their arguments are used.
        objects.retain(|object| object["kind"] != "Deployment");
        plane.apply(&objects)
    }

    fn remember(&mut self, objects: &[Value]) -> Result<()> {
        for (component, deployment) in [("controller", CONTROLLER), ("webhook", WEBHOOK)] {
            let arguments = arguments(objects, deployment)?;
            self.arguments.insert(component, arguments);
        }
        Ok(())
    }

    /// Starts a controller, with a pod of its name.
    pub async fn controller(&self, plane: &Plane, name: &str) -> Result<Replica> {
        let kubeconfig =
            plane.kubeconfig(name, plane.api_address, Some(&self.tokens[CONTROLLER]))?;
        self.controller_by(plane, name, &kubeconfig).await
    }

    /// Like [`Installation::controller`], with another address of the API server.
    pub async fn controller_by(
        &self,
        plane: &Plane,
        name: &str,
        kubeconfig: &Path,
    ) -> Result<Replica> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/component": "controller"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "controller", "image": "none"}]},
        }))?;
        let pods: Api<Pod> = Api::namespaced(plane.client.clone(), SYSTEM);
        if pods.get_opt(name).await?.is_none() {
            pods.create(&PostParams::default(), &pod).await?;
        }
        let (status, link) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let own = BTreeMap::from([
            ("--listen", status.to_string()),
            ("--link-listen", link.to_string()),
            // A finished approval is deleted while a row waits for it.
            ("--approvals-kept-seconds", "5".to_owned()),
        ]);
        let program = self.start("controller", name, own, kubeconfig)?;
        Ok(Replica {
            program,
            status,
            address: link,
        })
    }

    /// Starts a webhook and waits until it is ready.
    pub async fn webhook(&self, plane: &Plane, name: &str) -> Result<Replica> {
        let kubeconfig = plane.kubeconfig(name, plane.api_address, Some(&self.tokens[WEBHOOK]))?;
        let (status, address) = (toolcrib_ports::free()?, toolcrib_ports::free()?);
        let own = BTreeMap::from([
            ("--listen", address.to_string()),
            ("--status-listen", status.to_string()),
            ("--certificate-dir", self.certificate.display().to_string()),
        ]);
        let program = self.start("webhook", name, own, &kubeconfig)?;
        let mut replica = Replica {
            program,
            status,
            address,
        };
        eventually(&format!("{name} is ready"), DEADLINE, async || {
            ensure!(
                replica.program.ended()?.is_none(),
                "{}",
                replica.program.last_output()
            );
            Ok(replica.ready().await.then_some(()))
        })
        .await?;
        Ok(replica)
    }

    /// Starts a program with the chart's arguments and the values of its own pod.
    fn start(
        &self,
        component: &str,
        name: &str,
        own: BTreeMap<&str, String>,
        kubeconfig: &Path,
    ) -> Result<Program> {
        let mut arguments = self.arguments[component].clone();
        for (flag, value) in own {
            let prefix = format!("{flag}=");
            arguments.retain(|argument| !argument.starts_with(&prefix));
            arguments.push(prefix + &value);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib-operator"));
        command
            .args(arguments)
            .env("POD_NAME", name)
            .env("KUBECONFIG", kubeconfig);
        Program::start(name, &self.programs, &mut command)
    }

    pub fn token(&self, account: &str) -> &str {
        &self.tokens[account]
    }
}

/// Renders the objects of the chart. The webhooks' Service leads to a port of this machine, since
/// there is no kube-proxy.
fn rendered(plane: &Plane, chart: &Path, port: u16) -> Result<Vec<Value>> {
    let output = plane
        .program("helm")
        .args(["template", RELEASE])
        .arg(chart)
        .args(["--namespace", SYSTEM, "--set"])
        .arg(format!("secretNamespaces={{{POND},{LAKE}}}"))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template: {said}");
    let text = String::from_utf8(output.stdout)?;
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let mut object = Value::deserialize(document)?;
        if object.is_null() {
            continue;
        }
        if object["kind"] == "Service" && object["metadata"]["name"] == WEBHOOK {
            object["spec"]["type"] = json!("ExternalName");
            object["spec"]["externalName"] = json!("127.0.0.1");
        }
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            webhook["clientConfig"]["service"]["port"] = json!(port);
        }
        objects.push(object);
    }
    Ok(objects)
}

fn arguments(objects: &[Value], deployment: &str) -> Result<Vec<String>> {
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == deployment)
        .with_context(|| format!("the chart has no Deployment {deployment}"))?;
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    Ok(serde_json::from_value(arguments)?)
}

async fn token(plane: &Plane, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client.clone(), SYSTEM);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.context("a token")?.token)
}

/// Does the kubelet's part: writes the Secret's two keys as files, some time after they change.
async fn volume(client: kube::Client, folder: PathBuf) {
    let secrets: Api<Secret> = Api::namespaced(client, SYSTEM);
    let mut last = BTreeMap::new();
    let mut ticks = tokio::time::interval(VOLUME_LAG);
    loop {
        ticks.tick().await;
        // While the API server is down nothing is written, as with the kubelet.
        let Ok(secret) = secrets.get(CERTIFICATES).await else {
            continue;
        };
        let mut data = secret.data.unwrap_or_default();
        data.retain(|key, _| key == "tls.crt" || key == "tls.key");
        if data == last || data.len() != 2 {
            continue;
        }
        for (key, bytes) in &data {
            if let Err(error) = std::fs::write(folder.join(key), &bytes.0) {
                eprintln!("{key}: {error}");
            }
        }
        last = data;
    }
}
