//! Every name that the operator writes or reads: objects, labels, annotations, volumes, paths,
//! environment variables, ports. Compile, inject, controller and CLI agree because none of them
//! spells a name itself. Names that the mediator needs too are in `toolcrib_manifest::names`, and
//! are re-exported here.

use toolcrib_manifest::HttpMethod;

pub use toolcrib_manifest::names::*;

// ---- API ------------------------------------------------------------------------------

pub const GROUP: &str = "toolcrib.dev";
/// `fieldManager` of all objects that the operator applies, and the value of [`MANAGED_BY_LABEL`].
pub const FIELD_MANAGER: &str = "toolcrib";
/// `fieldManager` of the tools that `surface discover` writes into a Surface.
pub const DISCOVER_FIELD_MANAGER: &str = "toolcrib-discover";
/// `fieldManager` of the suspensions that the command line writes into Agents.
pub const SUSPEND_FIELD_MANAGER: &str = "toolcrib-suspend";
/// Name of a namespace's ToolDefaults; objects of other names are ignored.
pub const TOOL_DEFAULTS: &str = "default";
/// Label that the API server puts on every namespace.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

// ---- Labels and annotations -------------------------------------------------------------

/// On a pod: it runs this agent.
pub const AGENT_LABEL: &str = "toolcrib.dev/agent";
/// On an object that the operator wrote: the agent it was compiled for. Not [`AGENT_LABEL`], which
/// selects pods.
pub const COMPILED_FOR_LABEL: &str = "toolcrib.dev/compiled-for";
/// Prefix of the labels of an Agent by which grants may select it. The chart's policy refuses them to
/// users who may not create ToolGrants.
pub const GRANT_LABEL_PREFIX: &str = "grants.toolcrib.dev/";
/// Name of the Agent that the controller applies by dry run to see whether that policy is in force.
pub const SELECTOR_CHECK_AGENT: &str = "toolcrib-selector-check";
/// Name of the ToolApproval and the ToolDecision that the controller applies by dry run to see whether
/// the chart's policies for them are in force. The policies refuse the ToolApproval to everybody.
pub const APPROVAL_CHECK: &str = "toolcrib-approval-check";
/// The beginning of the policy's refusal of a ToolApproval.
pub const APPROVAL_REFUSAL: &str =
    "toolcrib: only the controller creates ToolApprovals and writes their spec and status";
/// The beginning of the policy's refusal of a ToolDecision.
pub const DECISION_REFUSAL: &str =
    "toolcrib: spec.decidedBy must be the user who creates the ToolDecision";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// On a source Secret, with [`TRUE`]: its owner allows sending it to a surface or provider.
pub const CREDENTIAL_LABEL: &str = "toolcrib.dev/credential";
/// On a source Secret: the hosts it may be sent to, separated by commas: `HOST` or
/// `SCHEME://HOST[:PORT]`.
pub const HOSTS_ANNOTATION: &str = "toolcrib.dev/hosts";
/// On a source Secret: CA bundles that may vouch for its hosts instead of the public roots,
/// separated by commas: `CONFIGMAP/KEY`, `NAMESPACE/CONFIGMAP/KEY` or `sha256:HEX`.
pub const CA_ANNOTATION: &str = "toolcrib.dev/ca";
/// On an Agent: any new value makes a new runner token.
pub const ROTATE_ANNOTATION: &str = "toolcrib.dev/rotate";
/// On an Agent: why it is suspended, in one line.
pub const SUSPEND_REASON_ANNOTATION: &str = "toolcrib.dev/suspend-reason";
/// Name and namespace of the Service of the cluster's name servers, as all installers write it.
pub const DNS_SERVICE: &str = "kube-dns";
pub const DNS_NAMESPACE: &str = "kube-system";
/// On the operator's leading pod; the link's Service selects it.
pub const LEADER_LABEL: &str = "toolcrib.dev/leader";
/// On a webhook configuration, with `named`: the controller writes its path.
pub const WEBHOOK_PATH_ANNOTATION: &str = "toolcrib.dev/webhook-path";
/// On the webhook's pods, with `named`: they answer at the path of their configuration.
pub const WEBHOOK_PATH_LABEL: &str = "toolcrib.dev/webhook-path";
pub const WEBHOOK_PATH_NAMED: &str = "named";
/// On a Surface that was written from an image: the image with its digest.
pub const IMAGE_ANNOTATION: &str = "toolcrib.dev/image";
pub const TRUE: &str = "true";
/// On a pod: the treatment of a container's own values for our environment variables. `override`:
/// ours replace them. `keep`: a model API that the container sets up itself stays as it is, and
/// bypasses the mediator.
pub const ENV_ANNOTATION: &str = "toolcrib.dev/env";
pub const ENV_OVERRIDE: &str = "override";
pub const ENV_KEEP: &str = "keep";
/// On an injected pod: the version of the injection.
pub const INJECTED_ANNOTATION: &str = "toolcrib.dev/injected";
/// On a compiled object: the manifest's digest.
pub const MANIFEST_DIGEST_ANNOTATION: &str = "toolcrib.dev/manifest-digest";
/// On the compiled Secret: the revision of its credentials. It is not a hash of a secret.
pub const CREDENTIALS_REVISION_ANNOTATION: &str = "toolcrib.dev/credentials-revision";
/// On the compiled Secret: the Secret key of each reference; names only.
pub const REFERENCES_ANNOTATION: &str = "toolcrib.dev/references";
/// On the Secret of the operator's certificates: their names and dates, as JSON. It contains no key.
pub const CERTIFICATES_ANNOTATION: &str = "toolcrib.dev/certificates";
/// On an agent's pod: a value that changes when the pod's files have changed, so that the kubelet
/// refreshes its volumes at once.
pub const REFRESH_ANNOTATION: &str = "toolcrib.dev/refresh";
/// On the identity Secret: the value of [`ROTATE_ANNOTATION`] for which its token was made.
pub const ROTATED_FOR_ANNOTATION: &str = "toolcrib.dev/rotated-for";
/// On an identity Secret: the time at which each earlier token was replaced.
pub const REPLACED_ANNOTATION: &str = "toolcrib.dev/replaced";

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

/// In the context ConfigMap: the configuration that connects the runner's MCP client to the
/// mediator.
pub const MCP_CONFIG: &str = "mcp.json";
/// Name of the mediator in that file.
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
/// The empty volume at the path of the API token, so that the API server mounts none.
pub const NO_API_TOKEN_VOLUME: &str = "toolcrib-no-api-token";
/// All of our volumes. Other containers may mount none of them but the context.
pub const VOLUMES: [&str; 5] = [
    CONFIG_VOLUME,
    CONTEXT_VOLUME,
    HISTORY_VOLUME,
    LINK_VOLUME,
    NO_API_TOKEN_VOLUME,
];
/// Folder of the context in the runner.
pub const CONTEXT_DIR: &str = "/etc/toolcrib/context";
pub const LINK_TOKEN_DIR: &str = "/etc/toolcrib/link";
/// Last part of [`LINK_TOKEN_FILE`].
pub const LINK_TOKEN_FILE_NAME: &str = "token";
pub const API_TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment of the runner: variables that the official SDKs read.
pub const ENV_OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
pub const ENV_OPENAI_API_KEY: &str = "OPENAI_API_KEY";
pub const ENV_ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
pub const ENV_ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
pub const ENV_NO_PROXY: &str = "NO_PROXY";
/// Environment of the runner: its bearer token under Toolcrib's own name, which `mcp.json` refers
/// to.
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

/// Prefixes that a variable on the mediator must not have: our flags, the loader, trust.
pub const REFUSED_VARIABLE_PREFIXES: [&str; 3] = ["TOOLCRIB_", "LD_", "SSL_"];
/// Variables that the mediator must not have: the C library's resolver reads them, to the effect
/// for which `dnsConfig.searches` and `hostAliases` are refused.
pub const REFUSED_VARIABLES: [&str; 5] = [
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
];

/// Capabilities that a container of an agent's pod may have: those of Pod Security `baseline`.
/// None of them reads or controls the pod's network, its processes or the node. A list of refused
/// capabilities would be out of date with each kernel.
pub const ALLOWED_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// The capability that container runtimes add by default and that must be dropped.
pub const DROPPED_CAPABILITY: &str = "NET_RAW";

/// Folders of the node that a pod may mount: sockets that Datadog's admission controller mounts.
pub const ALLOWED_HOST_PATHS: [&str; 1] = ["/var/run/datadog"];

/// SELinux types that Pod Security `baseline` allows.
pub const ALLOWED_SELINUX_TYPES: [&str; 4] = [
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];
/// AppArmor profile type that disables the profile.
pub const UNCONFINED: &str = "Unconfined";
/// Prefix of the annotations that held AppArmor profiles before the fields existed.
pub const APP_ARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Mount paths that other webhooks may use in every container. A mount elsewhere could replace the
/// mediator's program, or the files that it uses for name resolution and trust.
pub const FOREIGN_MOUNT_PREFIXES: [&str; 4] = [
    "/var/run/secrets/",
    "/run/secrets/",
    "/vault/",
    "/var/run/datadog",
];

/// Init containers of meshes; the mediator is placed after them. The list is closed: an open one
/// would let a pod author run a container before the mediator by its name.
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

/// Setup containers of meshes: init containers that redirect the pod's traffic and exit. They keep
/// network capabilities, which are refused for all other containers, if they run the program of
/// the mesh's injector.
pub const MESH_SETUPS: [MeshSetup; 3] = [
    MeshSetup {
        name: "istio-init",
        // The image's program is the proxy's agent; this word makes it write the rules.
        commands: &[&[]],
        first_argument: "istio-iptables",
    },
    MeshSetup {
        name: "linkerd-init",
        commands: &[&[], &["/usr/lib/linkerd/linkerd2-proxy-init"]],
        first_argument: "--",
    },
    MeshSetup {
        name: "kuma-init",
        commands: &[&["/usr/bin/kumactl", "install", "transparent-proxy"]],
        first_argument: "--",
    },
];

/// The program of a mesh's setup container, as the mesh's injector writes it.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSetup {
    pub name: &'static str,
    /// Accepted values of `command`; empty stands for the image's own.
    pub commands: &'static [&'static [&'static str]],
    /// Prefix of the first of `args`.
    pub first_argument: &'static str,
}

/// Capabilities that a setup container may have besides [`ALLOWED_CAPABILITIES`].
pub const MESH_SETUP_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];
/// Variables that would make a setup container load other code than its image's.
pub const MESH_SETUP_REFUSED_VARIABLES: [&str; 4] = [
    "PATH",
    "XTABLES_LIBDIR",
    "IPTABLES_LIB_DIR",
    "IP6TABLES_LIB_DIR",
];
/// Prefix of the loader's variables, which a setup container must not have either.
pub const LOADER_VARIABLE_PREFIX: &str = "LD_";
/// Mount paths of setup containers' scratch volumes, besides [`FOREIGN_MOUNT_PREFIXES`].
pub const MESH_SETUP_MOUNTS: [&str; 2] = ["/run", "/tmp"];

/// App containers of other injectors; they get none of the runner's environment.
pub const SIDECAR_CONTAINERS: [&str; 5] = [
    "istio-proxy",
    "linkerd-proxy",
    "kuma-sidecar",
    "envoy-sidecar",
    "vault-agent",
];

/// The name of a feed in [`crate::WithheldItem::what`].
pub(crate) fn feed_name(alias: &str, name: &str) -> String {
    format!("feed {alias}/{name}")
}

/// The name of a provider in [`crate::WithheldItem::what`].
pub(crate) fn provider_name(name: &str) -> String {
    format!("provider {name}")
}

/// Whether `name` is a DNS label in lower case (RFC 1123).
pub(crate) fn is_dns_label(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.chars().all(|c| plain(c) || c == '-')
        && name.starts_with(plain)
        && name.ends_with(plain)
}

/// Returns the name of a method in a request line.
pub fn method_name(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "GET",
        HttpMethod::Head => "HEAD",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    }
}

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
