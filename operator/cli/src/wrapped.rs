//! An MCP server that is a program, as objects: its pods, who may reach them, and its Surface.
//!
//! The server's image needs nothing of ours: an init container brings the wrapper
//! (`toolcrib-mcp-stdio`), which runs the program and serves it over HTTP. Pods pass Pod
//! Security `restricted`; credentials are keys of Secrets and stay in these pods, but for the
//! wrapper's own token, which mediators bring. A NetworkPolicy knows pods and no containers: by
//! itself it would let an agent's own container call what nobody granted.
//!
//! Not here: the tools, which only the program knows.

use serde_json::{Value, json};
use toolcrib_compile::names;

/// Where a wrapped server is, if nothing else is said.
pub const WRAPPED_PORT: u16 = 8080;
/// Of the same release as this program.
pub const WRAPPER_IMAGE: &str = concat!("toolcrib/mcp-stdio:", env!("CARGO_PKG_VERSION"));
/// Where the wrapper serves.
pub const PATH: &str = "/mcp";
/// The user of the images that we make: any that is not root will do.
const USER: u32 = 65532;
const FOLDER: &str = "/toolcrib";
const PROGRAM: &str = "/toolcrib/toolcrib-mcp-stdio";

/// Of the token's Secret and in its volume.
pub const TOKEN_KEY: &str = "token";
const TOKEN_FOLDER: &str = "/toolcrib-token";
/// Not `Authorization`, which the API server's proxy would keep for itself.
const TOKEN_HEADER: &str = "X-API-Key";

pub const WHO_MAY_CONNECT: &str = "Only pods of agents, in this namespace, may connect. For agents of other namespaces add a \
     namespaceSelector.";
pub const WHO_MAY_CALL: &str = "What mediators bring, and agents' own containers do not have. Put its value here with \
     envsubst, such as one of `openssl rand -hex 32`, or make this Secret in your own way.";

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
                            "command": [
                                PROGRAM,
                                "--listen", format!(":{}", self.port),
                                "--token-file", format!("{TOKEN_FOLDER}/{TOKEN_KEY}"),
                                "--",
                            ],
                            "args": args,
                            "env": env,
                            "ports": [{"name": "mcp", "containerPort": self.port}],
                            "readinessProbe": probe("/readyz"),
                            "livenessProbe": probe("/healthz"),
                            "resources": resources("128Mi", "512Mi"),
                            "securityContext": locked,
                            "volumeMounts": [
                                {"name": "wrapper", "mountPath": FOLDER, "readOnly": true},
                                {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": true},
                                {"name": "tmp", "mountPath": "/tmp"},
                            ],
                        }],
                        "volumes": [
                            {"name": "wrapper", "emptyDir": {"sizeLimit": "64Mi"}},
                            {"name": "token", "secret": {
                                "secretName": token_secret(self.name),
                                "items": [{"key": TOKEN_KEY, "path": TOKEN_KEY}],
                            }},
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

    /// What mediators bring to the wrapper, without its value.
    pub fn token(&self) -> Value {
        let name = token_secret(self.name);
        let variable = format!("{name}_{TOKEN_KEY}")
            .to_ascii_uppercase()
            .replace('-', "_");
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {names::CREDENTIAL_LABEL: names::TRUE},
                "annotations": {names::HOSTS_ANNOTATION: host(self.name, self.namespace)},
            },
            "stringData": {TOKEN_KEY: format!("${{{variable}}}")},
        })
    }

    /// Only pods of agents: nobody else has anything to ask.
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
                "auth": auth(self.name),
                "mcp": {"path": PATH},
                // No list of tools: who applies this file would own it, and empty it each time.
                "descriptor": {"version": 2},
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

/// How mediators bring the token of the wrapper that serves this name: a Surface's `auth`.
pub fn auth(name: &str) -> Value {
    json!({
        "type": "Header",
        "headerName": TOKEN_HEADER,
        "secretKeyRef": {"name": token_secret(name), "key": TOKEN_KEY},
    })
}

pub fn token_secret(name: &str) -> String {
    format!("{name}-mcp")
}

/// As a Secret's annotation names it.
pub fn host(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}.svc")
}

/// A variable of a container, from a key of a Secret.
pub fn variable(name: &str, secret: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
}

/// No limit on the processor: it would only make calls slower.
fn resources(requested: &str, limit: &str) -> Value {
    json!({"requests": {"cpu": "10m", "memory": requested}, "limits": {"memory": limit}})
}
