//! A control plane of this test's own, which it may stop, restart and compact: etcd, a
//! kube-apiserver with an audit log, and the controllers that end namespaces and collect orphaned
//! objects. On loopback, without node and root.
//!
//! Not here: the objects installed on it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::config::{AuthInfo, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_e2e::cluster::{Home, Progress, kube_binary};

use crate::program::Program;
use crate::wait::eventually;

const ADMIN: &str = "administrator";
const START: Duration = Duration::from_secs(120);

pub struct Plane {
    // Dropped in this order: a program before those that it needs.
    manager: Option<Program>,
    api: Option<Program>,
    _etcd: Program,
    kube: PathBuf,
    etcd_address: SocketAddr,
    pub api_address: SocketAddr,
    pub client: Client,
    folder: TempDir,
}

impl Plane {
    pub async fn start() -> Result<Self> {
        let kube = kube_binary(&Home::find()?, &Progress::stderr())?;
        let folder = tempfile::tempdir()?;
        let etcd_address = toolcrib_ports::free()?;
        let peer = toolcrib_ports::free()?;
        let api_address = toolcrib_ports::free()?;
        let etcd = Program::start(
            "etcd",
            folder.path(),
            Command::new(&kube).arg("etcd").args([
                format!("--data-dir={}", folder.path().join("etcd").display()),
                format!("--listen-client-urls=http://{etcd_address}"),
                format!("--advertise-client-urls=http://{etcd_address}"),
                format!("--listen-peer-urls=http://{peer}"),
                // The data ends with this test.
                "--unsafe-no-fsync".into(),
            ]),
        )?;
        write_settings(folder.path())?;
        let mut plane = Self {
            manager: None,
            api: None,
            _etcd: etcd,
            client: client(api_address, ADMIN)?,
            kube,
            etcd_address,
            api_address,
            folder,
        };
        plane.start_api().await?;
        let kubeconfig = plane.kubeconfig("manager", api_address, Some(ADMIN))?;
        plane.manager = Some(Program::start(
            "kube-controller-manager",
            plane.folder.path(),
            plane.program("kube-controller-manager").args([
                format!("--kubeconfig={}", kubeconfig.display()),
                "--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller".into(),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
            ]),
        )?);
        Ok(plane)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One of Kubernetes' programs; the caller adds arguments.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.kube);
        command.arg(name);
        command
    }

    pub fn client_of(&self, token: &str) -> Result<Client> {
        client(self.api_address, token)
    }

    /// A kubeconfig with that bearer token; without one the requests go through a proxy that adds
    /// it.
    pub fn kubeconfig(
        &self,
        name: &str,
        server: SocketAddr,
        token: Option<&str>,
    ) -> Result<PathBuf> {
        let cluster = match token {
            Some(_) => {
                json!({"server": format!("https://{server}"), "insecure-skip-tls-verify": true})
            }
            None => json!({"server": format!("http://{server}")}),
        };
        let user = token.map_or(json!({}), |token| json!({"token": token}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Runs `kubectl apply --server-side` on these objects, as Helm does.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.apply_text(&list.to_string())
    }

    pub fn apply_text(&self, text: &str) -> Result<()> {
        let file = self.folder.path().join("objects.yaml");
        std::fs::write(&file, text)?;
        let kubeconfig = self.kubeconfig("admin", self.api_address, Some(ADMIN))?;
        let output = self
            .program("kubectl")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["apply", "--server-side", "--force-conflicts"])
            .arg("--field-manager=helm")
            .arg("--filename")
            .arg(file)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl apply: {said}");
        Ok(())
    }

    /// Kills the API server abruptly.
    pub fn kill_api(&mut self) -> Result<()> {
        self.api.take().context("the API server runs")?.kill()
    }

    /// Starts the API server on its earlier port; returns when it is ready.
    pub async fn start_api(&mut self) -> Result<()> {
        let folder = self.folder.path();
        let path = |name: &str| folder.join(name).display().to_string();
        let mut command = self.program("kube-apiserver");
        command.args([
            format!("--etcd-servers=http://{}", self.etcd_address),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            // No client may use the API server's Service, whose endpoints cannot contain
            // loopback.
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={}", self.api_address.port()),
            format!("--cert-dir={}", path("certificates")),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=RBAC".into(),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-key-file={}", path("tokens.pub")),
            format!("--service-account-signing-key-file={}", path("tokens.key")),
            format!("--audit-policy-file={}", path("audit-policy.json")),
            format!("--audit-log-path={}", path("audit.log")),
        ]);
        let mut api = Program::start("kube-apiserver", folder, &mut command)?;
        let ready = eventually("the API server is ready", START, async || {
            if let Some(status) = api.ended()? {
                anyhow::bail!("the API server ended: {status}:\n{}", api.last_output());
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(self.client.request_text(request).await.ok())
        });
        ready.await?;
        self.api = Some(api);
        Ok(())
    }

    pub fn audit_log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Compacts etcd to the latest revision of every object.
    pub async fn compact(&self) -> Result<()> {
        let ask = async |path: &str, body: Value| -> Result<Value> {
            let answer = reqwest::Client::builder()
                .no_proxy()
                .build()?
                .post(format!("http://{}/v3/kv/{path}", self.etcd_address))
                .body(body.to_string())
                .send()
                .await?
                .error_for_status()?;
            Ok(serde_json::from_str(&answer.text().await?)?)
        };
        // Any key works: every answer has the revision.
        let now = ask("range", json!({"key": "AA=="})).await?;
        let revision = now["header"]["revision"].clone();
        ensure!(revision.is_string(), "etcd tells its revision: {now}");
        ask(
            "compaction",
            json!({"revision": revision, "physical": true}),
        )
        .await
        .map(drop)
    }

    /// The last output of the programs, for the message of a failure.
    pub fn last_output(&self) -> String {
        let mut all = String::new();
        for program in [&self.api, &self.manager].into_iter().flatten() {
            write!(all, "\n--- {}\n{}", program.name, program.last_output())
                .expect("a String grows");
        }
        all
    }
}

fn write_settings(folder: &Path) -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(folder.join("tokens.key"), key.serialize_pem())?;
    std::fs::write(folder.join("tokens.pub"), key.public_key_pem())?;
    let tokens = format!("{ADMIN},{ADMIN},1,\"system:masters\"\n");
    std::fs::write(folder.join("tokens.csv"), tokens)?;
    // Logs every request of an installation's accounts, and nothing else.
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        // A watch is logged when it begins: most of them never end.
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    });
    std::fs::write(folder.join("audit-policy.json"), policy.to_string())?;
    Ok(())
}

fn client(address: SocketAddr, token: &str) -> Result<Client> {
    let mut config = Config::new(format!("https://{address}").parse()?);
    // The API server signs its own certificate when it starts, and nothing here is a secret.
    config.accept_invalid_certs = true;
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    Ok(Client::try_from(config)?)
}
