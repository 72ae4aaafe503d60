//! Starts a node from the host: creates namespaces, veth pair and cgroups, and waits until the
//! cluster is ready.
//!
//! Not here: the programs inside (`node.rs`). Invariant: the node's programs start only after its
//! processes are recorded. If the host's process is killed in between, nothing keeps running.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::image_archive::Archive;
use super::layout::{DNS_READY_PORT, Index, Layout, PAUSE_IMAGE};
use super::node::{GO, READY};
use super::process::{Identity, ip, only_child, output, poll, run};
use super::progress::Progress;
use super::state::{Extent, NodeProcesses, State};
use super::{Cluster, config, pki, sweep};

/// Timeout from the first program's start until the cluster is ready, on a busy machine.
const READY_DEADLINE: Duration = Duration::from_secs(240);

/// The cgroup controllers that the kubelet and runc set for pods.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Starts a node and returns when the cluster is ready.
pub fn launch(layout: &Layout, mut state: State, progress: &Progress) -> Result<Cluster> {
    progress.stage(format!(
        "cluster {}: certificates and configuration",
        layout.name
    ));
    fs::create_dir_all(layout.logs())?;
    fs::create_dir_all(layout.data(""))?;
    config::write(layout, state.index)?;
    pki::write(layout, state.index)?;
    make_cgroups(layout, state.index)?;

    progress.stage(format!(
        "cluster {}: node at {}",
        layout.name,
        state.index.node_address()
    ));
    let mut outer = start(layout, &state)?;
    let node = identify(layout, &mut outer)?;
    state.node = Some(node.clone());
    state.write(layout)?;
    connect(layout, state.index, node.outer.pid)?;
    let mut stdin = outer.stdin.take().context("the node's input is piped")?;
    writeln!(stdin, "{GO}").context("the node ended before it started")?;
    drop(stdin);

    let cluster = Cluster::of(layout, &state, &node);
    await_ready(&cluster, layout, &state, progress)?;
    Ok(cluster)
}

/// Runs `unshare`, which creates the namespaces. If `unshare` or the node's first process is
/// killed, the other ends too. `unshare` has a session of its own, so a terminal's Ctrl-C or hangup
/// does not reach it.
fn start(layout: &Layout, state: &State) -> Result<Child> {
    let log = File::create(layout.log("node")).context("create the node's log")?;
    Command::new("setsid")
        .args([
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(supervisor()?)
        .arg("node")
        .arg("--name")
        .arg(layout.name.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .env("TOOLCRIB_HOME", layout.home())
        .env("TOOLCRIB_KUBE", &state.kube)
        .spawn()
        .context("start setsid and unshare (package util-linux)")
}

/// Path of the `toolcrib-e2e` program: this one, or in a test the one that Cargo built beside it.
fn supervisor() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the own program")?;
    let name = "toolcrib-e2e";
    if own.file_name().is_some_and(|own| own == name) {
        return Ok(own);
    }
    own.ancestors()
        .skip(1)
        .take(3)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .with_context(|| format!("no {name} beside {}: cargo build -p {name}", own.display()))
}

/// Waits until the node reports that it started, and records its processes.
fn identify(layout: &Layout, outer: &mut Child) -> Result<NodeProcesses> {
    let stdout = outer.stdout.take().context("the node's output is piped")?;
    let mut word = String::new();
    BufReader::new(stdout).read_line(&mut word)?;
    if word.trim() != READY {
        bail!(
            "the node did not start (does this user have the rights of root?): see {}",
            layout.log("node").display()
        );
    }
    let outer = i32::try_from(outer.id())?;
    let inner = only_child(outer)?.context("unshare has no child")?;
    match (Identity::of(outer)?, Identity::of(inner)?) {
        (Some(outer), Some(inner)) => Ok(NodeProcesses { outer, inner }),
        _ => bail!(
            "the node ended at once: see {}",
            layout.log("node").display()
        ),
    }
}

fn connect(layout: &Layout, index: Index, node: i32) -> Result<()> {
    let device = index.device();
    ip(&format!(
        "link add {device} type veth peer name eth0 netns {node}"
    ))?;
    ip(&format!("link set {device} alias {}", layout.mark()))?;
    ip(&format!(
        "address add {}/30 dev {device}",
        index.host_address()
    ))?;
    ip(&format!("link set {device} up"))
}

/// Creates the kubelet's root cgroup, which must exist in every hierarchy. With cgroup v2 its
/// controllers must be delegated, too.
fn make_cgroups(layout: &Layout, index: Index) -> Result<()> {
    for hierarchy in sweep::hierarchies()? {
        let folder = hierarchy.join(layout.cgroup(index));
        hand_down(&hierarchy)?;
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        hand_down(&folder)?;
    }
    Ok(())
}

/// Delegates the controllers. Does nothing in a cgroup v1 hierarchy, nor in a v2 hierarchy whose
/// controllers v1 uses.
fn hand_down(folder: &Path) -> Result<()> {
    let offered = folder.join("cgroup.controllers");
    if !offered.exists() {
        return Ok(());
    }
    let offered =
        fs::read_to_string(&offered).with_context(|| format!("read {}", offered.display()))?;
    let wanted: Vec<String> = offered
        .split_whitespace()
        .filter(|controller| CONTROLLERS.contains(controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let path = folder.join("cgroup.subtree_control");
    fs::write(&path, wanted.join(" ")).with_context(|| format!("write {}", path.display()))
}

/// Waits until a new pod can start, with its ServiceAccount and DNS. For a control plane, waits
/// until the API server answers.
fn await_ready(
    cluster: &Cluster,
    layout: &Layout,
    state: &State,
    progress: &Progress,
) -> Result<()> {
    let succeeds = |what: &str, arguments: &[&str]| {
        progress.stage(format!("cluster {}: waiting for {what}", layout.name));
        let missed = || format!("no {what}: see the logs in {}", layout.logs().display());
        poll(READY_DEADLINE, missed, || {
            cluster.check_running()?;
            let done = output(cluster.kubectl().args(arguments))?.status.success();
            Ok(done.then_some(()))
        })
    };
    succeeds("API server", &["get", "--raw=/readyz"])?;
    match state.extent {
        Extent::ControlPlane => return Ok(()),
        Extent::Node => {}
    }
    let addons = layout.config("addons.json");
    run(cluster
        .kubectl()
        .args(["apply", "--server-side", "-f"])
        .arg(addons))?;
    import_pause(cluster, layout)?;
    succeeds(
        "node",
        &[
            "wait",
            "node",
            layout.name.as_str(),
            "--for=condition=Ready",
            "--timeout=5s",
        ],
    )?;
    succeeds(
        "default ServiceAccount",
        &["get", "serviceaccount", "default"],
    )?;

    progress.stage(format!("cluster {}: waiting for DNS", layout.name));
    let missed = || format!("DNS is not ready: see {}", layout.log("coredns").display());
    let address = std::net::SocketAddr::from((state.index.node_address(), DNS_READY_PORT));
    poll(READY_DEADLINE, missed, || {
        cluster.check_running()?;
        Ok(dns_ready(address).then_some(()))
    })
}

/// Returns true if CoreDNS is ready. CoreDNS opens this port at once, and answers 200 when it has
/// read the Services.
fn dns_ready(address: std::net::SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n")?;
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status)?;
        Ok(status)
    };
    ask().is_ok_and(|status| status.contains(" 200 "))
}

/// Imports the pause image, whose container keeps a pod's namespaces open.
fn import_pause(cluster: &Cluster, layout: &Layout) -> Result<()> {
    let program = cluster.kube().with_file_name("pause");
    let tar = layout.dir.join("pause.tar");
    let mut archive = Archive::new(PAUSE_IMAGE, &["/pause"]);
    archive.program("/pause", &program);
    archive.write(&tar)?;
    cluster.import_image(&tar)
}
