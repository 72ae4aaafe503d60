//! Pods of an agent, each with its own program.
//!
//! Not here: the agents of the trading desk, which are files of the example.

use serde_json::{Value, json};

/// Returns a pod that runs the Python text `program` once, with the agent's rights and without
/// privileges on the node.
pub fn pod(namespace: &str, name: &str, agent: &str, program: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"toolcrib.dev/agent": agent}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "runner",
                "image": "docker.io/toolcrib/runner-python:dev",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "-c", program],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}
