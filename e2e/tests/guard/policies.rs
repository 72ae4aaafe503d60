//! Puts the policies in force for a test: Helm renders them as for a user, and the test removes
//! them at its end.

use std::future::Future;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize as _;
use serde_json::{Value, json};
use toolcrib_compile::names;
use toolcrib_e2e::cluster::{Cluster, Name};

use crate::pods::{self, IMAGE_REPOSITORY, Kind, NamespaceKind};

const DEADLINE: Duration = Duration::from_secs(60);

/// Key of the namespace label that names the test whose policies apply.
const TEST_LABEL: &str = "toolcrib-test";

/// One test's policies and namespaces.
pub struct Guard {
    pub client: Client,
    cluster: Cluster,
    release: String,
    rendered: String,
    namespaces: Vec<String>,
}

impl Guard {
    /// Creates namespaces with the existing pods, then the policies.
    pub async fn open(test: &str, settings: &[&str]) -> Result<Guard> {
        let cluster = cluster()?;
        let client = client(&cluster).await?;
        let release = format!("guard-{test}-{}", std::process::id());
        let rendered = render(&cluster, &release, settings)?;
        let mut guard = Guard {
            client,
            cluster,
            release,
            rendered,
            namespaces: Vec::new(),
        };
        for place in NamespaceKind::ALL {
            guard.make_namespace(place).await?;
            let namespace = guard.namespace(place);
            if place == NamespaceKind::Pond {
                for kind in Kind::ALL {
                    pods::stand(&guard.pods(&namespace), kind).await?;
                }
            }
        }
        guard.kubectl_apply()?;
        guard.in_force().await?;
        Ok(guard)
    }

    /// Returns a client for a test that needs no policies.
    pub async fn client() -> Result<Client> {
        client(&cluster()?).await
    }

    pub fn namespace(&self, place: NamespaceKind) -> String {
        let part = match place {
            NamespaceKind::Pond => "pond",
            NamespaceKind::Meshed => "mesh",
            NamespaceKind::Restricted => "strict",
        };
        format!("{}-{part}", self.release)
    }

    /// Returns a client that impersonates this user, as a member of the group.
    pub async fn member(&self, user: &str, group: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec![group.to_owned()]);
        Ok(Client::try_from(config)?)
    }

    /// Returns a selector of this test's namespaces.
    pub fn selector(&self) -> Value {
        json!({"matchLabels": {TEST_LABEL: self.release}})
    }

    pub fn kubeconfig(&self) -> &Path {
        self.cluster.kubeconfig()
    }

    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns the address at which the API server reaches this process.
    pub fn this_side(&self) -> Result<IpAddr> {
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig())?;
        let cluster = kubeconfig
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref());
        let server = cluster.and_then(|cluster| cluster.server.as_ref());
        let server: http::Uri = server.context("a server")?.parse()?;
        // Connecting a UDP socket sends nothing: it picks the route.
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let host = server.host().context("a host")?;
        socket.connect((host, server.port_u16().unwrap_or(443)))?;
        Ok(socket.local_addr()?.ip())
    }

    async fn make_namespace(&mut self, place: NamespaceKind) -> Result<()> {
        let name = self.namespace(place);
        let mut labels = pods::labels(place);
        labels[TEST_LABEL] = json!(self.release);
        let annotations = pods::annotations(place);
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        }))?;
        Api::<Namespace>::all(self.client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .context("namespace")?;
        // No pod is admitted before its ServiceAccount exists.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &name);
        self.namespaces.push(name);
        eventually("the ServiceAccount", || async {
            Ok(accounts.get_opt("default").await?.is_some().then_some(()))
        })
        .await
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn kubectl_apply(&self) -> Result<()> {
        let mut kubectl = self.cluster.kubectl();
        feed(kubectl.args(["apply", "-f", "-"]), &self.rendered)
    }

    /// Waits until the API server has compiled the policies.
    async fn in_force(&self) -> Result<()> {
        let pods = self.pods(&self.namespace(NamespaceKind::Pond));
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        for (probe, words) in [
            (pods::base(Kind::Bare)?, "no mediator"),
            (pods::thief()?, "mediator alone"),
        ] {
            eventually("the policies are in force", || async {
                match pods.create(&dry, &probe).await {
                    Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(Some(())),
                    Err(kube::Error::Api(status)) if status.code == 403 => bail!(status.message),
                    Err(error) => Err(error.into()),
                    Ok(_) => Ok(None),
                }
            })
            .await?;
        }
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let label = Patch::Merge(json!({"metadata": {"labels": {names::AGENT_LABEL: "otter"}}}));
        eventually("the policy on labels is in force", || async {
            let answer = pods.patch_status(Kind::Plain.name(), &dry, &label).await;
            match answer {
                Err(kube::Error::Api(status)) if status.message.contains("cannot change") => {
                    Ok(Some(()))
                }
                Err(error) => Err(error.into()),
                Ok(_) => Ok(None),
            }
        })
        .await
    }

    /// Returns the warnings of the API server, which checks expressions against the pod's schema.
    pub async fn type_warnings(&self) -> Result<Vec<String>> {
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let mut warnings = Vec::new();
        for part in [
            "guard",
            "secrets",
            "labels",
            "connections",
            "tokens",
            "compiled-secrets",
            "compiled-configmaps",
        ] {
            let name = format!("{}-toolcrib-{part}", self.release);
            let status = eventually("the policy is type-checked", || async {
                let policy = api.get(&name).await?;
                Ok(policy
                    .status
                    .filter(|status| status.observed_generation == policy.metadata.generation))
            })
            .await?;
            let checked = status.type_checking.context("type checking")?;
            for warning in checked.expression_warnings.into_iter().flatten() {
                warnings.push(format!("{}: {}", warning.field_ref, warning.warning));
            }
        }
        Ok(warnings)
    }

    /// Removes the policies. A failed test does not call this: the objects that are left help to
    /// debug it.
    pub async fn close(self) -> Result<()> {
        let mut kubectl = self.cluster.kubectl();
        feed(
            kubectl.args(["delete", "--wait=false", "-f", "-"]),
            &self.rendered,
        )?;
        let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        for namespace in &self.namespaces {
            let pods = self.pods(namespace);
            for pod in pods.list(&Default::default()).await? {
                let name = pod.metadata.name.context("a name")?;
                pods.patch(&name, &PatchParams::default(), &unheld).await?;
            }
            Api::<Namespace>::all(self.client.clone())
                .delete(namespace, &DeleteParams::background())
                .await?;
        }
        Ok(())
    }
}

fn cluster() -> Result<Cluster> {
    let name: Name = std::env::var("TOOLCRIB_E2E_CLUSTER")
        .context("TOOLCRIB_E2E_CLUSTER must name the cluster; ./e2e/run test does it")?
        .parse()?;
    Cluster::find(&name)?
        .with_context(|| format!("cluster {name} is not up: ./e2e/run test brings it up"))
}

async fn client(cluster: &Cluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(Client::try_from(config)?)
}

fn render(cluster: &Cluster, release: &str, settings: &[&str]) -> Result<String> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/toolcrib");
    let image = format!("--set=mediator.image.repository={IMAGE_REPOSITORY}");
    let mut helm = cluster.helm();
    helm.args(["template", release, chart, &image])
        .args(["--set-string", "mediator.image.tag=7"])
        .args(["--show-only", "templates/guard.yaml"])
        .args(["--show-only", "templates/tokens.yaml"])
        .args(["--show-only", "templates/compiled.yaml"])
        .args(settings.iter().map(|setting| format!("--set={setting}")));
    let output = helm.output()?;
    ensure!(
        output.status.success(),
        "helm template: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_slice(&output.stdout) {
        let mut object = Value::deserialize(document)?;
        if object["kind"] == "ValidatingAdmissionPolicyBinding" {
            // Binds to this test's namespaces alone, since other tests run at the same time.
            object["spec"]["matchResources"] =
                json!({"namespaceSelector": {"matchLabels": {TEST_LABEL: release}}});
        }
        documents.push(serde_yaml::to_string(&object)?);
    }
    Ok(documents.join("---\n"))
}

fn feed(command: &mut Command, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("stdin")?
        .write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Polls until `look` returns something.
pub async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let begun = tokio::time::Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(begun.elapsed() < DEADLINE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
