//! An MCP server that is a program, as objects: its pods, who may reach them, and its Surface.
//!
//! The server's image needs nothing of ours: an init container brings the wrapper
//! (`toolcrib-mcp-stdio`), which runs the program and serves it over HTTP. Pods pass Pod
//! Security `restricted`; credentials are keys of Secrets and stay in these pods.
//!
//! Not here: the tools, which only the program knows.

use serde_json::{Value, json};
use toolcrib_compile::names;

/// Where the wrapper serves.
pub const PATH: &str = "/mcp";
/// The user of the images that we make: any that is not root will do.
const USER: u32 = 65532;
const FOLDER: &str = "/toolcrib";
const PROGRAM: &str = "/toolcrib/toolcrib-mcp-stdio";

pub const WHO_MAY_CONNECT: &str = "Only pods of agents, in this namespace, may connect: the server itself asks nobody who they \
     are. For agents of other namespaces add a namespaceSelector.";

#[derive(Debug)]
pub struct Wrapped<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    /// Has the program.
    pub image: &'a str,
    /// Has the wrapper.
    pub wrapper: &'a str,
    pub port: u16,
    /// As a container's.
    pub env: Vec<Value>,
    /// As it is typed; Kubernetes would expand `$(NAME)`.
    pub command: &'a [String],
}

impl Wrapped<'_> {
    pub fn deployment(&self) -> Value {
        let args: Vec<String> = self
            .command
            .iter()
            .map(|word| word.replace("$(", "$$("))
            .collect();
        let probe = |path: &str| json!({"httpGet": {"path": path, "port": "mcp"}});
        let locked = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        });
        let mut env = self.env.clone();
        if !env.iter().any(|variable| variable["name"] == "HOME") {
            // The one place where it may write.
            env.push(json!({"name": "HOME", "value": "/tmp"}));
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": self.labels()},
                "template": {
                    "metadata": {"labels": self.labels()},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "enableServiceLinks": false,
                        "securityContext": {
                            "runAsNonRoot": true,
                            "runAsUser": USER,
                            "runAsGroup": USER,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "initContainers": [{
                            "name": "wrapper",
                            "image": self.wrapper,
                            "args": ["--install", FOLDER],
                            "resources": resources("16Mi", "64Mi"),
                            "securityContext": locked,
                            "volumeMounts": [{"name": "wrapper", "mountPath": FOLDER}],
                        }],
                        "containers": [{
                            "name": self.name,
                            "image": self.image,
                            "command": [PROGRAM, "--listen", format!(":{}", self.port), "--"],
                            "args": args,
                            "env": env,
                            "ports": [{"name": "mcp", "containerPort": self.port}],
                            "readinessProbe": probe("/readyz"),
                            "livenessProbe": probe("/healthz"),
                            "resources": resources("128Mi", "512Mi"),
                            "securityContext": locked,
                            "volumeMounts": [
                                {"name": "wrapper", "mountPath": FOLDER, "readOnly": true},
                                {"name": "tmp", "mountPath": "/tmp"},
                            ],
                        }],
                        "volumes": [
                            {"name": "wrapper", "emptyDir": {"sizeLimit": "64Mi"}},
                            {"name": "tmp", "emptyDir": {"sizeLimit": "512Mi"}},
                        ],
                    },
                },
            },
        })
    }

    pub fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(),
            "spec": {
                "selector": self.labels(),
                "ports": [{"name": "mcp", "port": self.port, "targetPort": self.port}],
            },
        })
    }

    /// The wrapper asks nobody who they are, so this does: only pods of agents.
    pub fn network_policy(&self) -> Value {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self.metadata(),
            "spec": {
                "podSelector": {"matchLabels": self.labels()},
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [{"podSelector": {
                        "matchExpressions": [{"key": names::AGENT_LABEL, "operator": "Exists"}],
                    }}],
                    "ports": [{"port": self.port, "protocol": "TCP"}],
                }],
            },
        })
    }

    pub fn surface(&self) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": "Surface",
            "metadata": self.metadata(),
            "spec": {
                "service": {"name": self.name, "port": self.port},
                "mcp": {"path": PATH},
                "descriptor": {"version": 2, "tools": []},
            },
        })
    }

    fn metadata(&self) -> Value {
        json!({"name": self.name, "namespace": self.namespace})
    }

    fn labels(&self) -> Value {
        json!({"app": self.name})
    }
}

/// A variable of a container, from a key of a Secret.
pub fn variable(name: &str, secret: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
}

/// No limit on the processor: it would only make calls slower.
fn resources(requested: &str, limit: &str) -> Value {
    json!({"requests": {"cpu": "10m", "memory": requested}, "limits": {"memory": limit}})
}
