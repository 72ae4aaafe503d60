//! Tests the local cluster itself: it starts, runs beside another, and leaves nothing behind. After
//! a kill at any moment the next command repairs it.
//!
//! `cargo test -p toolcrib-e2e --test cluster`, as root. The clusters have
//! names of their own, so a cluster in use is left alone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_e2e::cluster::layout::{Layout, PAUSE_IMAGE};
use toolcrib_e2e::cluster::process::{Identity, output, poll, run};
use toolcrib_e2e::cluster::{Cluster, Home, Name, Progress, State, names};

const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster's name. The cluster is taken down at the end, even if the test fails.
struct TestCluster(Name);

impl TestCluster {
    fn new(name: &str) -> TestCluster {
        let named = TestCluster(name.parse().expect("a valid name"));
        named.down();
        named
    }

    fn up(&self) -> Cluster {
        Cluster::up(&self.0, &Progress::stderr()).expect("comes up")
    }

    fn down(&self) {
        Cluster::down(&self.0, &Progress::silent()).expect("goes down");
    }

    fn status(&self) -> String {
        Cluster::status(&self.0).expect("has a status")
    }

    fn folder(&self) -> PathBuf {
        Layout::new(&Home::find().expect("a home"), &self.0).dir
    }

    /// Lists the remains of the cluster on this machine, found by other means than those of `down`.
    fn leftovers(&self) -> Vec<String> {
        let folder = self.folder().display().to_string();
        let cgroup = format!("-{}", self.0);
        let node = format!("node\0--name\0{}\0", self.0);
        let mut left = devices_of_no_cluster();
        if Path::new(&folder).exists() {
            left.push(folder.clone());
        }
        for line in fs::read_to_string("/proc/mounts").expect("mounts").lines() {
            if line.contains(&folder) {
                left.push(format!("mount {line}"));
            }
        }
        for pid in pids() {
            let read = |file: &str| {
                // A process that has just ended counts as gone.
                fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
            };
            let line = read("cmdline");
            if line.contains(&folder)
                || line.contains(&node)
                || read("cgroup").contains(&format!("{cgroup}/"))
            {
                left.push(format!("process {pid}"));
            }
        }
        let folders = run(Command::new("find").args([
            "/sys/fs/cgroup",
            "-name",
            &format!("toolcrib*{cgroup}"),
        ]));
        left.extend(
            folders
                .expect("find works")
                .lines()
                .map(|line| format!("cgroup {line}")),
        );
        left
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.status());
        }
        if let Err(error) = Cluster::down(&self.0, &Progress::stderr()) {
            eprintln!("cluster {} was not removed: {error:#}", self.0);
        }
    }
}

fn devices_of_no_cluster() -> Vec<String> {
    let home = Home::find().expect("a home");
    let mut devices: Vec<String> = fs::read_dir("/sys/class/net")
        .expect("devices")
        .filter_map(|entry| entry.expect("listed").file_name().into_string().ok())
        .filter(|device| device.starts_with("toolcrib"))
        .collect();
    for name in names(&home).expect("listed") {
        let state = State::read(&Layout::new(&home, &name)).expect("readable");
        devices.retain(|device| {
            state
                .as_ref()
                .is_none_or(|state| state.index.device() != *device)
        });
    }
    devices
}

fn pids() -> Vec<i32> {
    fs::read_dir("/proc")
        .expect("processes")
        .filter_map(|entry| entry.expect("listed").file_name().to_str()?.parse().ok())
        .collect()
}

fn kubectl(cluster: &Cluster, arguments: &str) -> String {
    run(cluster.kubectl().args(arguments.split(' '))).expect("kubectl succeeds")
}

fn process(cluster: &Cluster) -> Identity {
    cluster.process().expect("a local cluster").clone()
}

/// Starts a pod of the one image that every node has.
fn start_pod(cluster: &Cluster) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "otter"},
        "spec": {"containers": [
            {"name": "otter", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"},
        ]},
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), pod.to_string()).expect("written");
    run(cluster.kubectl().args(["create", "-f"]).arg(file.path())).expect("created");
    kubectl(
        cluster,
        "wait pod/otter --for=condition=Ready --timeout=120s",
    );
}

#[test]
fn two_clusters_are_independent_and_leave_nothing_behind() {
    let (otter, heron) = (
        TestCluster::new("test-otter"),
        TestCluster::new("test-heron"),
    );
    assert!(otter.status().contains("down"), "{}", otter.status());

    let first = otter.up();
    start_pod(&first);

    let start = Instant::now();
    let again = otter.up();
    assert_eq!(
        process(&again),
        process(&first),
        "a second `up` starts nothing"
    );
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "took {:?}",
        start.elapsed()
    );
    assert!(otter.status().contains(": up"), "{}", otter.status());

    let beside = heron.up();
    start_pod(&beside);
    kubectl(&beside, "create namespace pond");
    let namespaces = kubectl(&first, "get namespaces --output=name");
    assert!(!namespaces.contains("pond"), "{namespaces}");

    // Killing the node's process ends all of the node, and the next `up` starts a new one.
    process(&first).kill(DEADLINE).expect("dies");
    assert!(
        otter.status().contains("it was killed"),
        "{}",
        otter.status()
    );
    let anew = otter.up();
    assert_ne!(process(&anew), process(&first));
    assert_eq!(
        kubectl(&anew, "get pods --output=name"),
        "",
        "the old pod is gone"
    );
    assert_eq!(
        kubectl(&beside, "get pods --output=name"),
        "pod/otter\n",
        "the pod of the other cluster still runs"
    );

    otter.down();
    assert_eq!(otter.leftovers(), Vec::<String>::new());
    assert!(heron.status().contains(": up"), "{}", heron.status());
    heron.down();
    assert_eq!(heron.leftovers(), Vec::<String>::new());
}

#[test]
fn a_node_ends_with_its_first_program_and_names_it() {
    let named = TestCluster::new("test-newt");
    let cluster = named.up();
    let folder = named.folder().display().to_string();
    let etcd = pids().into_iter().find(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains(&folder) && line.split('\0').nth(1) == Some("etcd")
    });
    Identity::of(etcd.expect("etcd runs"))
        .expect("readable")
        .expect("it runs still")
        .kill(DEADLINE)
        .expect("etcd dies");
    poll(
        DEADLINE,
        || "the node still runs without etcd".into(),
        || Ok((!process(&cluster).alive()?).then_some(())),
    )
    .expect("ends");
    let status = named.status();
    assert!(status.contains("etcd ended with signal 9"), "{status}");
    assert!(status.contains("etcd.log"), "{status}");
    named.down();
    assert_eq!(named.leftovers(), Vec::<String>::new());
}

/// Kills `up` after it has printed a stage's message.
#[test]
fn a_killed_up_is_repaired_by_the_next_command() {
    let named = TestCluster::new("test-mole");
    for stage in [
        "certificates",
        "node at",
        "waiting for API server",
        "waiting for node",
    ] {
        let mut up = Command::new(env!("CARGO_BIN_EXE_toolcrib-e2e"))
            .args(["--name", named.0.as_str(), "up"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(up.stderr.take().expect("piped")).lines();
        let said = lines.map_while(Result::ok).any(|line| line.contains(stage));
        assert!(said, "up never said {stage:?}");
        up.kill().expect("killed");
        up.wait().expect("reaped");
        named.down();
        // Processes and devices that were not recorded yet end by themselves.
        poll(
            DEADLINE,
            || format!("after {stage}: {:?}", named.leftovers()),
            || Ok(named.leftovers().is_empty().then_some(())),
        )
        .expect("nothing is left");
    }
    let cluster = named.up();
    let ready = output(cluster.kubectl().args(["get", "nodes"])).expect("kubectl starts");
    assert!(ready.status.success());
}
