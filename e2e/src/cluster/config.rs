//! The configuration files of the node's programs, as values.
//!
//! Not here: their command lines (`components.rs`) and certificates (`pki.rs`). Each setting that
//! differs from the program's default has a reason.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::layout::{
    CONTAINERD_SOCKET, DNS_READY_PORT, DNS_SERVICE, Index, Layout, PAUSE_IMAGE, POD_RANGE,
};
use super::process::write_whole;

/// Folder of the plugins in Debian's `containernetworking-plugins`.
pub const CNI_PLUGINS: &str = "/usr/lib/cni";

/// Writes all configuration files into the cluster's `config` folder.
pub fn write(layout: &Layout, index: Index) -> Result<()> {
    fs::create_dir_all(layout.config("cni")).context("create the configuration folder")?;
    let json = |file: &str, value: Value| write_whole(&layout.config(file), format!("{value:#}\n"));
    json("cni/10-pods.conflist", cni(layout))?;
    json("kubelet.json", kubelet(layout, index))?;
    json("kube-proxy.json", kube_proxy(layout))?;
    json("audit.json", audit())?;
    json("addons.json", addons(index))?;
    write_whole(&layout.config("containerd.toml"), containerd(layout)?)?;
    write_whole(&layout.config("Corefile"), corefile(layout, index))
}

/// Lets containerd pull from this registry by HTTP. containerd reads the file at each pull.
pub fn write_plain_registry(layout: &Layout, registry: SocketAddr) -> Result<()> {
    let folder = layout.registries().join(registry.to_string());
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    write_whole(
        &folder.join("hosts.toml"),
        // Debian's containerd 1.6 refuses a file without a host.
        format!("[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"),
    )
}

/// Chooses the snapshotter. `overlayfs` cannot be mounted on a folder that is itself on
/// overlayfs, as in a container.
pub fn snapshotter(folder: &Path) -> Result<&'static str> {
    const OVERLAYFS: i64 = 0x794c_7630;
    let system =
        rustix::fs::statfs(folder).with_context(|| format!("statfs {}", folder.display()))?;
    Ok(if system.f_type == OVERLAYFS {
        "native"
    } else {
        "overlayfs"
    })
}

fn containerd(layout: &Layout) -> Result<String> {
    // A JSON string is a TOML string.
    let text = |path: std::path::PathBuf| json!(path.to_string_lossy());
    Ok(format!(
        r#"version = 2
root = {root}
state = "/run/containerd"
# It would make /opt/containerd on the machine.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE (a container as the machine) lowering a score is refused, and
  # every sandbox fails with "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  # Not mounted on every machine, and no claim of ours rests on it.
  disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = {cni}

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = {registries}
"#,
        root = text(layout.data("containerd")),
        cni = text(layout.config("cni")),
        registries = text(layout.registries()),
        snapshotter = snapshotter(&layout.dir)?,
    ))
}

/// Configures `ptp` and not `bridge`: every packet between two pods passes the node's routing, so
/// a Service's reply is translated back without the br_netfilter module, which a container cannot
/// load.
fn cni(layout: &Layout) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_RANGE}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": layout.data("cni"),
            },
        }],
    })
}

fn kubelet(layout: &Layout, index: Index) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": index.node_address(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki("kubelet-serving.crt"),
        "tlsPrivateKeyFile": layout.pki("kubelet-serving.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        // Pods resolve only the cluster's names: no test may depend on the machine's network.
        "resolvConf": "",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        // The default directory is on the machine itself, under /usr/libexec.
        "volumePluginDir": layout.data("volume-plugins"),
        "podLogsDir": layout.data("pod-logs"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.cgroup(index)),
        // The node works with both cgroup versions.
        "failCgroupV1": false,
        // The machine is shared with its owner: no limit on all pods together, no eviction
        // because the owner's disk is full, and swap is the owner's choice.
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "failSwapOn": false,
        // The tests run more pods on one node than the kubelet's default maximum of 110.
        "maxPods": 250,
        // Lowering the value takes CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        // kube-proxy uses nftables; nothing here needs iptables.
        "makeIPTablesUtilChains": false,
    })
}

fn kube_proxy(layout: &Layout) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": layout.config("kube-proxy.kubeconfig")},
        "hostnameOverride": layout.name.as_str(),
        "mode": "nftables",
        "clusterCIDR": POD_RANGE,
        "oomScoreAdj": 0,
        // With the default of 1 s, a Service could answer a second after its pods are Ready.
        "nftables": {"minSyncPeriod": "50ms"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        // The sysctls belong to the machine, and a container may not write them.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}

/// Logs every request except those of the cluster's own programs. The rights that a component
/// used are read from this log.
fn audit() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": ["system:nodes"]},
            {"level": "None", "users": [
                "system:apiserver",
                "system:kube-controller-manager",
                "system:kube-scheduler",
                "system:kube-proxy",
                "system:coredns",
            ]},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata"},
        ],
    })
}

/// Configures CoreDNS. It runs beside the kubelet, not in a pod, so it needs no image, and the
/// cluster's names resolve before its first pod. The `template` answers every other name with
/// NXDOMAIN; without it CoreDNS refuses the query, and a resolver takes the refusal for a broken
/// server.
fn corefile(layout: &Layout, index: Index) -> String {
    format!(
        ".:53 {{
    bind {node}
    errors
    ready {node}:{DNS_READY_PORT}
    cache 5
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
",
        node = index.node_address(),
        kubeconfig = layout.config("coredns.kubeconfig").display(),
    )
}

/// Returns the objects that a cluster's installer would add: the DNS Service, with the node as its
/// endpoint, and the RBAC objects that let CoreDNS read what it serves.
fn addons(index: Index) -> Value {
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system",
                         "labels": {"k8s-app": "kube-dns"}},
            "spec": {"clusterIP": DNS_SERVICE, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "kube-dns-node", "namespace": "kube-system",
                         "labels": {"kubernetes.io/service-name": "kube-dns",
                                    "endpointslice.kubernetes.io/managed-by": "toolcrib-e2e"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [index.node_address()], "conditions": {"ready": true}}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "namespaces"],
                 "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                 "verbs": ["list", "watch"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "system:coredns"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                          "name": "system:coredns"}],
        },
    ]})
}
