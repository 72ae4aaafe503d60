//! Toolcrib on a cluster, installed as a user installs it: images, `helm`, `kubectl`.
//!
//! Not here: the tests (`tests/`) and the demonstration ([`crate::demo`]) that use it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::process::{poll, run};
use crate::cluster::{Cluster, Name, Progress};
use crate::images::{self, Profile};

/// The operator's namespace.
pub const NAMESPACE: &str = "toolcrib-system";
pub const RELEASE: &str = "toolcrib";
/// Timeout of Helm: covers scheduling and starting pods, whose images are imported already.
const HELM_TIMEOUT: &str = "--timeout=180s";

/// The images of the product and of the demonstration's pods. The demonstration does not use
/// `mcp-stdio`, but the Deployment that `surface from-stdio` writes needs it.
const IMAGES: [&str; 5] = ["operator", "sidecar", "mcp-stdio", "demo", "runner-python"];

/// A cluster on which Toolcrib is, or will be, installed.
#[derive(Clone, Debug)]
pub struct Platform {
    cluster: Cluster,
}

impl Platform {
    pub fn on(cluster: Cluster) -> Self {
        Self { cluster }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Starts the cluster and builds the images, and `more` of them, in parallel, because each waits
    /// at times, for example for the network. Then installs or upgrades the chart. The operator
    /// gets rights on Secrets in `namespaces` and nowhere else. Missing namespaces are created,
    /// because the rights are objects in them.
    pub fn install(
        name: &Name,
        namespaces: &[&str],
        more: &[String],
        progress: &Progress,
    ) -> Result<Platform> {
        let mut images = IMAGES.map(str::to_owned).to_vec();
        images.extend_from_slice(more);
        let (cluster, archives) = thread::scope(|scope| {
            let archives = scope.spawn(|| {
                images::build_programs(&images, Profile::Quick, progress)?.write_archives(progress)
            });
            (Cluster::up(name, progress), archives.join())
        });
        let platform = Self { cluster: cluster? };
        let archives = archives.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        archives.import(&platform.cluster, progress)?;
        platform.install_chart(namespaces, progress)?;
        Ok(platform)
    }

    fn install_chart(&self, namespaces: &[&str], progress: &Progress) -> Result<()> {
        for namespace in namespaces {
            self.apply(&format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n"
            ))?;
        }
        progress.stage("installing the chart");
        self.helm_upgrade(namespaces)?;
        progress.stage("Toolcrib is installed");
        Ok(())
    }

    /// Runs `helm upgrade --install` with the images of this build; returns once all resources are
    /// ready.
    pub fn helm_upgrade(&self, namespaces: &[&str]) -> Result<String> {
        let chart = repository().join("charts/toolcrib");
        run(self
            .cluster
            .helm()
            .args(["upgrade", "--install", RELEASE])
            .arg(chart)
            .args([
                "--namespace",
                NAMESPACE,
                "--create-namespace",
                "--wait",
                HELM_TIMEOUT,
            ])
            .args(["--set", "image.tag=dev,mediator.image.tag=dev"])
            .args([
                "--set",
                &format!("secretNamespaces={{{}}}", namespaces.join(",")),
            ]))
    }

    pub fn helm_uninstall(&self) -> Result<String> {
        run(self.cluster.helm().args([
            "uninstall",
            RELEASE,
            "--namespace",
            NAMESPACE,
            "--wait",
            HELM_TIMEOUT,
        ]))
    }

    /// The trading-desk example of the repository as one text, moved to another namespace if one
    /// is named.
    pub fn example(namespace: Option<&str>) -> Result<String> {
        let folder = repository().join("crds/examples/trading-desk");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .with_context(|| format!("read {}", folder.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        // Skips folders, like `kubectl apply -f`: the policy tests are in one.
        files.retain(|file| file.is_file());
        files.sort();
        let mut all = String::new();
        for file in files {
            all += "---\n";
            all += &std::fs::read_to_string(&file)
                .with_context(|| format!("read {}", file.display()))?;
        }
        Ok(match namespace {
            None => all,
            Some(namespace) => all
                .replace("namespace: trading\n", &format!("namespace: {namespace}\n"))
                .replace("name: trading\n", &format!("name: {namespace}\n"))
                .replace(".trading.svc", &format!(".{namespace}.svc")),
        })
    }

    /// Runs kubectl, which must succeed; returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        run(self.cluster.kubectl().args(arguments))
    }

    /// Runs kubectl and returns its output, successful or not.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut child = self
            .cluster
            .kubectl()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        // Takes stdin, so that the pipe is closed after writing.
        child
            .stdin
            .take()
            .context("kubectl's standard input")?
            .write_all(input.as_bytes())
            .context("write to kubectl")?;
        child.wait_with_output().context("wait for kubectl")
    }

    /// Runs `kubectl apply` on this text, which must succeed.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        let output = self.try_kubectl(&["apply", "--filename=-"], manifests)?;
        if !output.status.success() {
            bail!("kubectl apply: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `kubectl create` on this text, which must be refused; returns the refusal.
    pub fn refused(&self, manifests: &str) -> Result<String> {
        let output = self.try_kubectl(&["create", "--filename=-"], manifests)?;
        if output.status.success() {
            bail!("created: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// One object or list as JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["get", "--output=json"];
        all.extend(arguments);
        serde_json::from_str(&self.kubectl(&all)?).context("kubectl's JSON")
    }

    /// Polls until `ask` has an answer; an error names `what` and the last state seen.
    pub fn eventually<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut ask: impl FnMut() -> Result<PollResult<T>>,
    ) -> Result<T> {
        let last = std::cell::RefCell::new(String::new());
        poll(
            deadline,
            || format!("waited for {what}; last seen: {}", last.borrow()),
            || match ask()? {
                PollResult::Yes(answer) => Ok(Some(answer)),
                PollResult::NotYet(seen) => {
                    *last.borrow_mut() = seen;
                    Ok(None)
                }
            },
        )
    }

    /// Waits until the pods' containers, sidecars too, are ready.
    pub fn wait_ready(&self, namespace: &str, pods: &[&str]) -> Result<String> {
        let pods: Vec<String> = pods.iter().map(|pod| format!("pod/{pod}")).collect();
        let mut arguments = vec!["wait", "--for=condition=Ready", "--timeout=120s"];
        arguments.extend(["--namespace", namespace]);
        arguments.extend(pods.iter().map(String::as_str));
        self.kubectl(&arguments)
    }

    /// Runs a command in a pod's first container.
    pub fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<String> {
        let mut arguments = vec!["exec", "--namespace", namespace, pod, "--"];
        arguments.extend(command);
        self.kubectl(&arguments)
    }
}

/// The result of one poll.
#[derive(Clone, Debug)]
pub enum PollResult<T> {
    Yes(T),
    /// The state seen instead, for the error when time runs out.
    NotYet(String),
}

impl PollResult<()> {
    pub fn when(condition: bool, seen: impl Into<String>) -> Self {
        if condition {
            PollResult::Yes(())
        } else {
            PollResult::NotYet(seen.into())
        }
    }
}

/// The root of the source tree.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
