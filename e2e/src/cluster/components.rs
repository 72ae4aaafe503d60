//! The programs of the node: their command lines and the order in which they start.
//!
//! Not here: starting them (`node.rs`) or their configuration files (`config.rs`).

use std::ffi::OsString;
use std::path::Path;

use super::layout::{API_PORT, CONTAINERD_SOCKET, Index, Layout, SERVICE_RANGE};
use super::state::Extent;

const ETCD: &str = "http://127.0.0.1:2379";

/// One program of the node. Its log has the same name.
#[derive(Debug)]
pub struct Component {
    pub name: &'static str,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The probe that must succeed before the next program starts: later programs exit at once if
    /// an earlier one does not answer.
    pub ready: Ready,
}

#[derive(Debug)]
pub enum Ready {
    AtOnce,
    /// A Unix socket that accepts connections.
    Socket(&'static str),
    /// A TCP address that accepts connections.
    Port(std::net::SocketAddr),
    /// `kubectl get --raw /readyz` succeeds.
    Api,
}

/// Lists the programs of this extent in the order of starting. `kube` is the binary of all but
/// containerd.
pub fn components(layout: &Layout, index: Index, extent: Extent, kube: &Path) -> Vec<Component> {
    let mut all = whole(layout, index, kube);
    match extent {
        Extent::Node => {}
        Extent::ControlPlane => all.retain(|component| CONTROL_PLANE.contains(&component.name)),
    }
    all
}

/// The programs of a control plane. The controller manager is one of them: without it, namespaces
/// are not deleted, owned objects are not garbage collected, and ServiceAccounts are not created.
const CONTROL_PLANE: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

fn whole(layout: &Layout, index: Index, kube: &Path) -> Vec<Component> {
    let node = index.node_address();
    let pki = |file: &str| layout.pki(file).display().to_string();
    let config = |file: &str| layout.config(file).display().to_string();
    let kube = |name: &'static str, ready: Ready, flags: Vec<String>| Component {
        name,
        command: [kube.into(), name.into()]
            .into_iter()
            .chain(flags.into_iter().map(OsString::from))
            .collect(),
        ready,
    };
    vec![
        Component {
            name: "containerd",
            command: ["containerd", "--config", &config("containerd.toml")]
                .map(OsString::from)
                .into(),
            ready: Ready::Socket(CONTAINERD_SOCKET),
        },
        kube(
            "etcd",
            Ready::Port(([127, 0, 0, 1], 2379).into()),
            vec![
                format!("--data-dir={}", layout.data("etcd").display()),
                format!("--listen-client-urls={ETCD}"),
                format!("--advertise-client-urls={ETCD}"),
                "--listen-peer-urls=http://127.0.0.1:2380".into(),
                // etcd's default quota of 2 GiB is too small for thousands of large objects and
                // their history.
                "--quota-backend-bytes=8589934592".into(),
                // A cluster does not outlive its node, so nothing is lost if the machine crashes.
                "--unsafe-no-fsync".into(),
            ],
        ),
        kube(
            "kube-apiserver",
            Ready::Api,
            vec![
                format!("--etcd-servers={ETCD}"),
                format!("--advertise-address={node}"),
                format!("--secure-port={API_PORT}"),
                format!("--service-cluster-ip-range={SERVICE_RANGE}"),
                "--authorization-mode=Node,RBAC".into(),
                // Allowed as in nearly every cluster: here a policy refuses privileged pods.
                "--allow-privileged=true".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                format!("--client-ca-file={}", pki("ca.crt")),
                format!("--tls-cert-file={}", pki("apiserver.crt")),
                format!("--tls-private-key-file={}", pki("apiserver.key")),
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
                format!("--service-account-key-file={}", pki("tokens.pub")),
                format!("--service-account-signing-key-file={}", pki("tokens.key")),
                "--kubelet-preferred-address-types=InternalIP".into(),
                format!("--kubelet-certificate-authority={}", pki("ca.crt")),
                format!(
                    "--kubelet-client-certificate={}",
                    pki("apiserver-kubelet.crt")
                ),
                format!("--kubelet-client-key={}", pki("apiserver-kubelet.key")),
                format!("--audit-policy-file={}", config("audit.json")),
                format!("--audit-log-path={}", layout.audit_log().display()),
                // In MiB. A high limit keeps the log in one file, so a reader gets all of it.
                "--audit-log-maxsize=4096".into(),
            ],
        ),
        kube(
            "kube-controller-manager",
            Ready::AtOnce,
            vec![
                format!("--kubeconfig={}", config("controller-manager.kubeconfig")),
                "--bind-address=127.0.0.1".into(),
                "--leader-elect=false".into(),
                // The default directory is on the machine itself.
                format!(
                    "--flex-volume-plugin-dir={}",
                    layout.data("volume-plugins").display()
                ),
                "--use-service-account-credentials=true".into(),
                format!("--root-ca-file={}", pki("ca.crt")),
                format!("--cluster-signing-cert-file={}", pki("ca.crt")),
                format!("--cluster-signing-key-file={}", pki("ca.key")),
                format!("--service-account-private-key-file={}", pki("tokens.key")),
            ],
        ),
        kube(
            "kube-scheduler",
            Ready::AtOnce,
            vec![
                format!("--kubeconfig={}", config("scheduler.kubeconfig")),
                "--bind-address=127.0.0.1".into(),
                "--leader-elect=false".into(),
            ],
        ),
        kube(
            "kubelet",
            Ready::AtOnce,
            vec![
                format!("--config={}", config("kubelet.json")),
                format!("--kubeconfig={}", config("kubelet.kubeconfig")),
                format!("--root-dir={}", layout.data("kubelet").display()),
                format!("--hostname-override={}", layout.name),
                format!("--node-ip={node}"),
            ],
        ),
        kube(
            "kube-proxy",
            Ready::AtOnce,
            vec![format!("--config={}", config("kube-proxy.json"))],
        ),
        kube(
            "coredns",
            Ready::AtOnce,
            vec!["-conf".into(), config("Corefile")],
        ),
    ]
}
