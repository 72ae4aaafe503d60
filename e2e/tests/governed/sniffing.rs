//! A pod's containers share its network, but a root runner must not read the mediator's traffic.

use anyhow::{Result, ensure};

use crate::support::Desk;

/// Tries to open both kinds of sockets that a sniffer needs.
const SNIFF: &str = r#"
import socket
ways = {
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)),
    "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
}
for name, way in ways.items():
    try:
        socket.socket(*way)
        print(name, "open")
    except PermissionError:
        print(name, "refused")
"#;

#[test]
fn a_root_runner_cannot_sniff_its_mediators_traffic() -> Result<()> {
    let desk = Desk::open("sniffed")?;
    // A namespace that allows root runners does not enforce Pod Security.
    desk.platform.kubectl(&[
        "label",
        "namespace",
        "sniffed",
        "--overwrite",
        "pod-security.kubernetes.io/enforce=privileged",
    ])?;
    desk.platform
        .apply(&pod("root", "  labels: {toolcrib.dev/agent: executor}\n"))?;
    desk.platform.apply(&pod("bystander", ""))?;
    desk.platform
        .wait_ready("sniffed", &["root", "bystander"])?;
    let sniff = |name: &str| {
        desk.platform
            .exec("sniffed", name, &["python3", "-c", SNIFF])
    };

    // A pod without an agent can open both: the cause is the dropped capability, not the image or
    // the node.
    let said = sniff("bystander")?;
    ensure!(said.contains("packet open"), "{said}");
    ensure!(said.contains("raw open"), "{said}");

    let said = sniff("root")?;
    ensure!(said.contains("packet refused"), "{said}");
    ensure!(said.contains("raw refused"), "{said}");

    // The capability cannot be regained: no container with it is admitted.
    let debug = desk.platform.kubectl(&[
        "debug",
        "--namespace",
        "sniffed",
        "root",
        "--image=docker.io/toolcrib/runner-python:dev",
        "--profile=netadmin",
        "--",
        "sleep",
        "1",
    ]);
    let refusal = debug.err().map(|error| format!("{error:#}"));
    let refusal = refusal.unwrap_or_default();
    ensure!(refusal.contains("NET_RAW"), "{refusal}");
    desk.passed()
}

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: sniffed
{labels}spec:
  automountServiceAccountToken: false
  containers:
  - name: runner
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {{runAsUser: 0}}
"
    )
}
