//! A real Kubernetes cluster of one node, on this machine, without Docker.
//!
//! The node is the distribution's containerd and runc, and Kubernetes built from its Go modules,
//! all in namespaces of their own: killing the node's first process ends all others. The modules in
//! reading order:
//!
//! - [`layout`]: names, addresses, paths
//! - [`go_program`], [`binary`], [`collector`], [`compatibility`]: Kubernetes, and programs that tests need, built
//!   once and cached
//! - [`pki`], [`config`], [`components`]: inputs of the node's programs
//! - [`launch`] (outside) and [`node`] (inside the namespaces): bringing it up
//! - [`sweep`]: taking it down, in any condition
//!
//! Not here: a second node, enforcement of NetworkPolicy objects (they are accepted and do
//! nothing), volumes other than the kubelet's own, access to the internet from a pod.

pub mod image_archive;

mod binary;
mod collector;
mod compatibility;
mod components;
mod config;
mod go_program;
mod launch;
pub mod layout;
pub(crate) mod lock;
pub mod node;
mod pki;
pub mod process;
mod progress;
mod state;
mod sweep;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::binary::kube_binary;
pub use self::collector::collector_binary;
pub use self::compatibility::{CompatibilityPrograms, compatibility_programs};
use self::layout::{CONTAINERD_SOCKET, Layout};
pub use self::layout::{Home, Name};
use self::lock::Lock;
use self::process::{Identity, output, run};
pub use self::progress::Progress;
use self::state::NodeProcesses;
pub use self::state::{Extent, State, names};

/// Timeout of waiting for another `up` or `down` of the same cluster, which may be building
/// Kubernetes.
const TURN_DEADLINE: Duration = Duration::from_secs(50 * 60);

/// A cluster that was up when this value was created.
#[derive(Clone, Debug)]
pub struct Cluster {
    kubeconfig: PathBuf,
    kube: PathBuf,
    /// `None` for a cluster that the user named by `KUBECONFIG`.
    node: Option<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    layout: Layout,
    extent: Extent,
    processes: NodeProcesses,
}

impl Node {
    fn volume(&self, pod_uid: &str, plugin: &str, volume: &str) -> PathBuf {
        let pods = self.layout.data("kubelet").join("pods");
        pods.join(pod_uid).join("volumes").join(plugin).join(volume)
    }
}

impl Cluster {
    /// Returns the cluster that the user named (`TOOLCRIB_E2E_USE_KUBECONFIG=1` and `KUBECONFIG`),
    /// else the local one of this name, which it starts if necessary. A local cluster is ready for
    /// pods when this returns.
    pub fn up(name: &Name, progress: &Progress) -> Result<Cluster> {
        Self::up_to(name, Extent::Node, progress)
    }

    /// Like [`Cluster::up`], with this extent. A running cluster of another extent is an error.
    pub fn up_to(name: &Name, extent: Extent, progress: &Progress) -> Result<Cluster> {
        let home = Home::find()?;
        if let Some(kubeconfig) = named_by_user()? {
            progress.stage(format!("using the cluster of {}", kubeconfig.display()));
            let kube = kube_binary(&home, progress)?;
            return Ok(Cluster {
                kubeconfig,
                kube,
                node: None,
            });
        }
        let layout = Layout::new(&home, name);
        let _turn = turn(&layout, progress)?;
        if let Some(cluster) = running(&layout)? {
            if cluster
                .node
                .as_ref()
                .is_some_and(|node| node.extent != extent)
            {
                bail!("cluster {name} is up with another extent: take it down first");
            }
            if cluster.healthy()? {
                progress.stage(format!("cluster {name} is up already"));
                return Ok(cluster);
            }
            progress.stage(format!(
                "cluster {name} runs but does not answer: starting anew"
            ));
        }
        sweep::sweep(&layout)?;
        let kube = kube_binary(&home, progress)?;
        let state = State::allocate(&home, &layout, extent, kube)?;
        let cluster = launch::launch(&layout, state, progress)?;
        progress.stage(format!("cluster {name} is up"));
        Ok(cluster)
    }

    /// Removes the local cluster of this name, complete or not.
    pub fn down(name: &Name, progress: &Progress) -> Result<()> {
        let layout = Layout::new(&Home::find()?, name);
        let _turn = turn(&layout, progress)?;
        sweep::sweep(&layout)?;
        progress.stage(format!("cluster {name} is down"));
        Ok(())
    }

    /// Returns the local cluster of this name if its node runs. Brings nothing up.
    pub fn find(name: &Name) -> Result<Option<Cluster>> {
        running(&Layout::new(&Home::find()?, name))
    }

    fn of(layout: &Layout, state: &State, processes: &NodeProcesses) -> Cluster {
        Cluster {
            kubeconfig: layout.kubeconfig(),
            kube: state.kube.clone(),
            node: Some(Node {
                layout: layout.clone(),
                extent: state.extent,
                processes: processes.clone(),
            }),
        }
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The binary that contains all Kubernetes programs.
    pub fn kube(&self) -> &Path {
        &self.kube
    }

    /// `kubectl` for this cluster; the caller adds arguments.
    pub fn kubectl(&self) -> Command {
        self.program("kubectl")
    }

    /// `helm` for this cluster; the caller adds arguments.
    pub fn helm(&self) -> Command {
        self.program("helm")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.kube);
        command.arg(name).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// The process whose death ends the node; `None` for a cluster that the user named.
    pub fn process(&self) -> Option<&Identity> {
        Some(&self.node.as_ref()?.processes.outer)
    }

    /// A command inside the node's network, mount and PID namespaces; `None` for a cluster
    /// that the user named.
    pub fn on_node(&self, program: &str) -> Option<Command> {
        let node = self.node.as_ref()?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", node.processes.inner.pid))
            .args(["--net", "--mount", "--pid", "--"])
            .arg(program);
        Some(command)
    }

    /// The logs of the node's programs, one file each; `None` for a cluster that the user
    /// named.
    pub fn logs(&self) -> Option<PathBuf> {
        Some(self.node.as_ref()?.layout.logs())
    }

    /// The audit log, with one JSON event per request to the API server; `None` for a cluster that
    /// the user named.
    pub fn audit_log(&self) -> Option<PathBuf> {
        Some(self.node.as_ref()?.layout.audit_log())
    }

    /// The folder of a pod's Secret volume, as processes outside the node see it; `None` for a
    /// cluster that the user named.
    pub fn secret_volume(&self, pod_uid: &str, volume: &str) -> Option<PathBuf> {
        let node = self.node.as_ref()?;
        let root = PathBuf::from(format!("/proc/{}/root", node.processes.inner.pid));
        let volume = node.volume(pod_uid, "kubernetes.io~secret", volume);
        Some(root.join(volume.strip_prefix("/").unwrap_or(&volume)))
    }

    /// The folder of a pod's `emptyDir`, as [`Cluster::on_node`]'s commands see it; `None` for
    /// a cluster that the user named.
    pub fn empty_dir(&self, pod_uid: &str, volume: &str) -> Option<PathBuf> {
        let node = self.node.as_ref()?;
        Some(node.volume(pod_uid, "kubernetes.io~empty-dir", volume))
    }

    /// Imports an image archive into the node's store. Does nothing for a cluster that the user
    /// named: its images are up to the user.
    pub fn import_image(&self, archive: &Path) -> Result<()> {
        let (Some(node), Some(mut ctr)) = (&self.node, self.on_node("ctr")) else {
            return Ok(());
        };
        ctr.args([
            "--address",
            CONTAINERD_SOCKET,
            "--namespace",
            "k8s.io",
            "images",
            "import",
        ]);
        ctr.args(["--snapshotter", config::snapshotter(&node.layout.dir)?]);
        run(ctr.arg(archive)).with_context(|| format!("import {}", archive.display()))?;
        Ok(())
    }

    /// Lets the node pull images from this registry by HTTP, as an admin of a cluster would. Fails for a
    /// cluster that the user named: its registries are up to the user.
    pub fn pull_by_http(&self, registry: SocketAddr) -> Result<()> {
        let node = self
            .node
            .as_ref()
            .context("the registries of your own cluster are up to you")?;
        config::write_plain_registry(&node.layout, registry)
    }

    /// Fails with the reason if the node has ended.
    fn check_running(&self) -> Result<()> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        if node.processes.alive()? {
            return Ok(());
        }
        bail!("the node ended: {}", failure(&node.layout));
    }

    /// True if the API server answers, and the node, if there is one, is Ready.
    fn healthy(&self) -> Result<bool> {
        let mut kubectl = self.kubectl();
        if self
            .node
            .as_ref()
            .is_some_and(|node| node.extent == Extent::ControlPlane)
        {
            kubectl.args(["--request-timeout=5s", "get", "--raw=/readyz"]);
            return Ok(output(&mut kubectl)?.status.success());
        }
        kubectl.args([
            "--request-timeout=5s",
            "get",
            "nodes",
            "--output",
            READY_CONDITION,
        ]);
        let answer = output(&mut kubectl)?;
        Ok(answer.status.success() && answer.stdout == b"True")
    }

    /// Describes the cluster of this name for a person.
    pub fn status(name: &Name) -> Result<String> {
        let layout = Layout::new(&Home::find()?, name);
        let Some(state) = State::read(&layout)? else {
            return Ok(format!("cluster {name}: down\n"));
        };
        let Some(cluster) = running(&layout)? else {
            return Ok(format!("cluster {name}: ended: {}\n", failure(&layout)));
        };
        let health = if cluster.healthy()? {
            "up"
        } else {
            "runs, but the API server does not answer"
        };
        Ok(format!(
            "cluster {name}: {health}\n  address     {}\n  host        {}\n  process     {}\n  kubeconfig  {}\n  logs        {}\n",
            state.index.node_address(),
            state.index.host_address(),
            state.node.map_or(0, |node| node.outer.pid),
            layout.kubeconfig().display(),
            layout.logs().display(),
        ))
    }
}

const READY_CONDITION: &str =
    r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;

fn named_by_user() -> Result<Option<PathBuf>> {
    match std::env::var("TOOLCRIB_E2E_USE_KUBECONFIG").as_deref() {
        Ok("1") => {}
        _ => return Ok(None),
    }
    let path = std::env::var_os("KUBECONFIG").context(
        "TOOLCRIB_E2E_USE_KUBECONFIG=1 needs KUBECONFIG: set it to a cluster's kubeconfig",
    )?;
    Ok(Some(path.into()))
}

/// The folder of the node's logs, whether the cluster is up or has ended.
pub fn log_folder(name: &Name) -> Result<PathBuf> {
    Ok(Layout::new(&Home::find()?, name).logs())
}

/// Takes the lock that lets one `up` or `down` run at a time.
fn turn(layout: &Layout, progress: &Progress) -> Result<Lock> {
    Lock::take(&layout.lock(), TURN_DEADLINE, |pid| {
        progress.stage(format!(
            "waiting for process {pid}, which brings cluster {} up or down",
            layout.name
        ));
    })
}

fn running(layout: &Layout) -> Result<Option<Cluster>> {
    let Some(state) = State::read(layout)? else {
        return Ok(None);
    };
    match &state.node {
        Some(node) if node.alive()? => Ok(Some(Cluster::of(layout, &state, node))),
        Some(_) | None => Ok(None),
    }
}

fn failure(layout: &Layout) -> String {
    match std::fs::read_to_string(layout.failure()) {
        Ok(reason) => reason.trim().into(),
        Err(_) => "it was killed".into(),
    }
}

/// Runs the node's first process inside the namespaces, see [`node`]. The program's hidden command
/// calls this.
pub fn serve_node(name: &Name) -> Result<()> {
    let home = Home::find()?;
    let layout = Layout::new(&home, name);
    let state = State::read(&layout)?.context("this cluster is not being brought up")?;
    node::serve(&layout, state.index, state.extent, &state.kube)
}
