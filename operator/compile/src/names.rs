//! Every name that the operator gives or reads: objects, labels, annotations, volumes,
//! paths, environment variables, ports. Compile, inject, controller and CLI agree because
//! none of them spells one itself. What the mediator must know too stands in
//! `toolcrib_manifest::names` and is re-exported here.

pub use toolcrib_manifest::names::*;

// ---- API ------------------------------------------------------------------------------

pub const GROUP: &str = "toolcrib.dev";
/// `fieldManager` of everything we apply, and the value of [`MANAGED_BY_LABEL`].
pub const FIELD_MANAGER: &str = "toolcrib";
/// `fieldManager` of the tools that `surface discover` writes into a Surface.
pub const DISCOVER_FIELD_MANAGER: &str = "toolcrib-discover";
/// The one ToolDefaults of a namespace that counts.
pub const TOOL_DEFAULTS: &str = "default";
/// Label that the API server puts on every namespace.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

// ---- Labels and annotations -------------------------------------------------------------

/// On a pod: it runs this agent.
pub const AGENT_LABEL: &str = "toolcrib.dev/agent";
/// On an object that we wrote: the agent it was compiled for. Not [`AGENT_LABEL`], which
/// selects pods.
pub const COMPILED_FOR_LABEL: &str = "toolcrib.dev/compiled-for";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// On a source Secret, with [`TRUE`]: its owner lets it be sent to a surface or provider.
pub const CREDENTIAL_LABEL: &str = "toolcrib.dev/credential";
/// On a source Secret: the hosts it may be sent to, separated by commas.
pub const HOSTS_ANNOTATION: &str = "toolcrib.dev/hosts";
/// On an Agent: any new value makes a new runner token.
pub const ROTATE_ANNOTATION: &str = "toolcrib.dev/rotate";
/// On the operator's pod that leads; the link's Service selects it.
pub const LEADER_LABEL: &str = "toolcrib.dev/leader";
/// On a Surface that was written from an image: which one, with its digest.
pub const IMAGE_ANNOTATION: &str = "toolcrib.dev/image";
pub const TRUE: &str = "true";
/// On a pod: what happens to a container's own environment variables of the names that we
/// set. `override`: ours replace them. `keep`: a model API that the container sets up itself
/// stays as it is, past the mediator.
pub const ENV_ANNOTATION: &str = "toolcrib.dev/env";
pub const ENV_OVERRIDE: &str = "override";
pub const ENV_KEEP: &str = "keep";
/// On a pod that was injected: the version of the injection.
pub const INJECTED_ANNOTATION: &str = "toolcrib.dev/injected";
/// On what we compiled: the manifest's digest.
pub const MANIFEST_DIGEST_ANNOTATION: &str = "toolcrib.dev/manifest-digest";
/// On the compiled Secret: which credentials it holds, without hashing a secret.
pub const CREDENTIALS_REVISION_ANNOTATION: &str = "toolcrib.dev/credentials-revision";
/// On the compiled Secret: names only; where each reference's value stands.
pub const REFERENCES_ANNOTATION: &str = "toolcrib.dev/references";
/// On the identity Secret: the value of [`ROTATE_ANNOTATION`] its token was made for.
pub const ROTATED_FOR_ANNOTATION: &str = "toolcrib.dev/rotated-for";

// ---- Objects per agent ------------------------------------------------------------------

/// Secret with the four files; only the mediator mounts it.
pub fn mediator_secret(agent: &str) -> String {
    format!("toolcrib-{agent}-mediator")
}

/// Secret with the runner's bearer token.
pub fn identity_secret(agent: &str) -> String {
    format!("toolcrib-{agent}-identity")
}

/// ConfigMap with `tools.json` without credentials.
pub fn manifest_config_map(agent: &str) -> String {
    format!("toolcrib-{agent}-manifest")
}

/// ConfigMap that the runner mounts.
pub fn context_config_map(agent: &str) -> String {
    format!("toolcrib-{agent}-context")
}

/// NetworkPolicy with `egress: Declared`.
pub fn network_policy(agent: &str) -> String {
    format!("toolcrib-{agent}")
}

/// Key of the runner's current token (`agent:secret`) in the identity Secret.
pub const TOKEN_KEY: &str = "token";
/// Prefix of the keys of earlier tokens that are still valid.
pub const PREVIOUS_TOKEN_PREFIX: &str = "previous-";
/// The tools document in the context ConfigMap.
pub const CONTEXT_DOCUMENT: &str = "TOOLCRIB.md";

/// In the context ConfigMap: what connects the runner's MCP client to the mediator.
pub const MCP_CONFIG: &str = "mcp.json";
/// What that file calls the mediator.
pub const MCP_SERVER: &str = "toolcrib";

/// Key of a surface's skill in the context ConfigMap.
pub fn skill_file(surface: &str) -> String {
    format!("skill.{surface}.md")
}

// ---- In the pod -------------------------------------------------------------------------

pub const MEDIATOR_CONTAINER: &str = "toolcrib-mediator";
pub const CONFIG_VOLUME: &str = "toolcrib-config";
pub const CONTEXT_VOLUME: &str = "toolcrib-context";
pub const HISTORY_VOLUME: &str = "toolcrib-history";
pub const LINK_VOLUME: &str = "toolcrib-link";
/// The empty volume that keeps the API server from mounting an API token.
pub const NO_API_TOKEN_VOLUME: &str = "toolcrib-no-api-token";
/// All volumes that are ours; nobody else's container may mount one but the context.
pub const VOLUMES: [&str; 5] = [
    CONFIG_VOLUME,
    CONTEXT_VOLUME,
    HISTORY_VOLUME,
    LINK_VOLUME,
    NO_API_TOKEN_VOLUME,
];
/// Where the runner finds the context.
pub const CONTEXT_DIR: &str = "/etc/toolcrib/context";
pub const LINK_TOKEN_DIR: &str = "/etc/toolcrib/link";
/// Last part of [`LINK_TOKEN_FILE`].
pub const LINK_TOKEN_FILE_NAME: &str = "token";
pub const API_TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment of the runner: what the official SDKs read.
pub const ENV_OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
pub const ENV_OPENAI_API_KEY: &str = "OPENAI_API_KEY";
pub const ENV_ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
pub const ENV_ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
pub const ENV_NO_PROXY: &str = "NO_PROXY";
/// Environment of the runner: its bearer token under a name of our own, which `mcp.json` says.
pub const ENV_TOKEN: &str = "TOOLCRIB_TOKEN";
/// Environment of the runner: the folder of the context.
pub const ENV_CONTEXT: &str = "TOOLCRIB_CONTEXT";

/// `http://127.0.0.1:4141/v1`: the OpenAI SDKs add the resource only.
pub fn openai_base_url() -> String {
    format!("http://127.0.0.1:{LISTEN_PORT}/v1")
}

/// `http://127.0.0.1:4141`: the Anthropic SDKs add `/v1` themselves.
pub fn anthropic_base_url() -> String {
    format!("http://127.0.0.1:{LISTEN_PORT}")
}

/// `http://127.0.0.1:4141/mcp`.
pub fn mcp_url() -> String {
    format!("http://127.0.0.1:{LISTEN_PORT}{MCP_PATH}")
}

/// What a variable on the mediator may not begin with: flags of ours, the loader, trust.
pub const REFUSED_VARIABLE_PREFIXES: [&str; 3] = ["TOOLCRIB_", "LD_", "SSL_"];
/// And what it may not be called: the C library looks names up by these, which is what
/// `dnsConfig.searches` and `hostAliases` are refused for.
pub const REFUSED_VARIABLES: [&str; 5] = [
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
];

/// Capabilities that no container of an agent's pod may be given: to read or steer the pod's
/// network, its processes or the node.
pub const REFUSED_CAPABILITIES: [&str; 10] = [
    "ALL",
    "BPF",
    "DAC_READ_SEARCH",
    "NET_ADMIN",
    "NET_RAW",
    "PERFMON",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
];
/// The one of them that container runtimes give without being asked.
pub const DROPPED_CAPABILITY: &str = "NET_RAW";

/// Where other webhooks mount what they give to every container. Elsewhere a mount could
/// replace the mediator's program, or what it resolves names and trusts hosts by.
pub const FOREIGN_MOUNT_PREFIXES: [&str; 4] = [
    "/var/run/secrets/",
    "/run/secrets/",
    "/vault/",
    "/var/run/datadog",
];

/// Init containers of meshes, after which the mediator goes (a closed list: an open one
/// would let a pod author run something before the mediator by its name).
pub const MESH_INIT_CONTAINERS: [&str; 8] = [
    "istio-init",
    "istio-validation",
    "istio-proxy",
    "linkerd-init",
    "linkerd-network-validator",
    "linkerd-proxy",
    "kuma-init",
    "kuma-sidecar",
];

/// Those of them that redirect the pod's traffic, run once and end. They keep the network's
/// capabilities, which everybody else is refused.
pub const MESH_SETUP_CONTAINERS: [&str; 3] = ["istio-init", "linkerd-init", "kuma-init"];

/// What those may be given of [`REFUSED_CAPABILITIES`].
pub const MESH_SETUP_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];

/// App containers that other injectors add; they get none of the runner's environment.
pub const SIDECAR_CONTAINERS: [&str; 5] = [
    "istio-proxy",
    "linkerd-proxy",
    "kuma-sidecar",
    "envoy-sidecar",
    "vault-agent",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_objects_have_names_of_their_own() {
        let names = [
            mediator_secret("otter"),
            identity_secret("otter"),
            manifest_config_map("otter"),
            context_config_map("otter"),
            network_policy("otter"),
        ];
        assert_eq!(
            names,
            [
                "toolcrib-otter-mediator",
                "toolcrib-otter-identity",
                "toolcrib-otter-manifest",
                "toolcrib-otter-context",
                "toolcrib-otter",
            ]
        );
    }

    #[test]
    fn the_link_token_file_is_in_its_directory() {
        assert_eq!(
            LINK_TOKEN_FILE,
            format!("{LINK_TOKEN_DIR}/{LINK_TOKEN_FILE_NAME}")
        );
    }
}
