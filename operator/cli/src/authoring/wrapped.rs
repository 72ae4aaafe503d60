//! An MCP server that is a program, as objects: its pods, the rule on who may connect, and its
//! Surface.
//!
//! The server's image needs nothing of Toolcrib's: an init container installs the wrapper
//! (`toolcrib-mcp-stdio`), which runs the program and serves it over HTTP. Pods pass Pod Security
//! `restricted`. Credentials are keys of Secrets and stay in these pods, except for the wrapper's
//! own token, which mediators send. The token is needed because a NetworkPolicy selects pods, not
//! containers: by itself it would let an agent's own container call tools without a grant.
//!
//! Not here: the tools, which only the program knows.

use serde_json::{Value, json};
use toolcrib_compile::names;

/// Default port of a wrapped server.
pub const WRAPPED_PORT: u16 = 8080;
/// The wrapper's image, of the same release as this program.
pub const WRAPPER_IMAGE: &str = concat!("docker.io/toolcrib/mcp-stdio:", env!("CARGO_PKG_VERSION"));
/// Path at which the wrapper serves MCP.
pub const PATH: &str = "/mcp";
/// The user of our own images; any other than root would do.
const USER: u32 = 65532;
const FOLDER: &str = "/toolcrib";
const PROGRAM: &str = "/toolcrib/toolcrib-mcp-stdio";

/// Key of the token in its Secret, and file name in its volume.
pub const TOKEN_KEY: &str = "token";
const TOKEN_FOLDER: &str = "/toolcrib-token";
/// Header of the token. `Authorization` would be consumed by the API server's proxy.
const TOKEN_HEADER: &str = "X-API-Key";

pub const WHO_MAY_CONNECT: &str = "Only pods of agents, in this namespace, may connect. For agents of other namespaces add a \
     namespaceSelector.";
pub const WHO_MAY_CALL: &str = "What mediators bring, and agents' own containers do not have. Put its value here with \
     envsubst, such as one of `openssl rand -hex 32`, or make this Secret in your own way.";

#[derive(Debug)]
pub struct WrappedServer<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    /// The image with the program.
    pub image: &'a str,
    /// The image with the wrapper.
    pub wrapper: &'a str,
    pub port: u16,
    /// `env` of the container.
    pub env: Vec<Value>,
    /// The command as typed; `$(NAME)` is escaped, since Kubernetes would expand it.
    pub command: &'a [String],
}

impl WrappedServer<'_> {
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
            // The only folder that the program may write.
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

    /// The Secret with the token that mediators send to the wrapper, without its value.
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

    /// Allows connections from pods of agents only.
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
                // No list of tools: applying this file again would empty the list.
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

/// Returns the Surface's `auth`: the token of the wrapper with this name.
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

/// Returns the host in the form of a Secret's annotation.
pub fn host(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}.svc")
}

/// Returns a variable of a container, from a key of a Secret.
pub fn variable(name: &str, secret: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
}

/// There is no CPU limit: it would only make calls slower.
fn resources(requested: &str, limit: &str) -> Value {
    json!({"requests": {"cpu": "10m", "memory": requested}, "limits": {"memory": limit}})
}
