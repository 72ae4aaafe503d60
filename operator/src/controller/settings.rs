//! The controller's flags and settings.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::SignedDuration;
use toolcrib_compile::{NetworkSettings, ObjectRef};
use toolcrib_crds::EgressRule;
use toolcrib_manifest::{ClusterDomain, NameServer};

use crate::claw::ClawScope;
use crate::cluster_args::ClusterArgs;
use crate::objects::stores::SecretScope;

/// Memory limit of the chart, in bytes.
const DEFAULT_MEMORY_LIMIT: u64 = 512 * 1024 * 1024;
/// Smallest memory limit: a controller without any object takes half of it.
const MIN_MEMORY_LIMIT: u64 = 64 * 1024 * 1024;

/// Flags of `toolcrib-operator controller`. Each can be given by an environment variable.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Name of this pod: the lease's holder; the leader labels its pod.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: String,
    /// Name of the Lease.
    #[arg(long, env = "TOOLCRIB_LEASE", default_value = "toolcrib-controller")]
    pub lease: String,
    /// Name of the mutating and of the validating webhook configuration whose caBundle and
    /// secret path the controller writes. Empty: none.
    #[arg(long, env = "TOOLCRIB_WEBHOOK_CONFIG_NAME", default_value = "toolcrib")]
    pub webhook_config_name: String,
    /// Label selector of the webhook's pods in the operator's namespace. While a pod of an earlier
    /// release runs, which answers the plain paths only, no secret path is set.
    #[arg(long, env = "TOOLCRIB_WEBHOOK_PODS", default_value = "")]
    pub webhook_pods: String,
    /// Port of the link's Service.
    #[arg(long, env = "TOOLCRIB_LINK_SERVICE_PORT", default_value_t = 443)]
    pub link_service_port: u16,
    /// Name of the Secret that holds CA and serving certificates.
    #[arg(
        long,
        env = "TOOLCRIB_CERTIFICATE_SECRET",
        default_value = "toolcrib-certificates"
    )]
    pub certificate_secret: String,
    /// Namespaces whose Secrets and ConfigMaps may be read and written, separated by
    /// commas. Agents of other namespaces are not served.
    #[arg(long, env = "TOOLCRIB_SECRET_NAMESPACES", value_delimiter = ',')]
    pub secret_namespaces: Vec<String>,
    /// The operator has rights to Secrets and ConfigMaps of all namespaces.
    #[arg(
        long,
        env = "TOOLCRIB_CLUSTER_WIDE_SECRETS",
        conflicts_with = "secret_namespaces"
    )]
    pub cluster_wide_secrets: bool,
    /// Address for /healthz, /readyz and /metrics (plain HTTP).
    #[arg(long, env = "TOOLCRIB_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Address of the link (HTTPS).
    #[arg(long, env = "TOOLCRIB_LINK_LISTEN", default_value = "[::]:8443")]
    pub link_listen: SocketAddr,
    /// Address of claw-api (HTTPS), which answers agents that are granted it. Left out: not
    /// served.
    #[arg(long, env = "TOOLCRIB_CLAW_API_LISTEN")]
    pub claw_api_listen: Option<SocketAddr>,
    /// Name of claw-api's Service: in its certificate.
    #[arg(
        long,
        env = "TOOLCRIB_CLAW_API_SERVICE",
        default_value = "toolcrib-claw-api"
    )]
    pub claw_api_service: String,
    /// Name of claw-api's Surface, in the operator's own namespace. Tools of any other Surface
    /// permit nothing, whatever their names.
    #[arg(long, env = "TOOLCRIB_CLAW_API_SURFACE", default_value = "claw-api")]
    pub claw_api_surface: String,
    /// The agents that a caller of claw-api may see.
    #[arg(
        long,
        env = "TOOLCRIB_CLAW_API_SCOPE",
        value_enum,
        default_value = "namespace"
    )]
    pub claw_api_scope: ClawScope,
    /// Egress to the name servers, which `egress: Declared` opens to every agent: egress rules
    /// as in `Agent.spec.extraEgress`, as JSON. Left out: the pods of kube-dns, and the
    /// cache on the node at 169.254.20.10.
    #[arg(long, env = "TOOLCRIB_DNS_EGRESS", value_parser = egress_rules)]
    pub dns_egress: Option<DnsEgress>,
    /// Name servers that mediators ask, as IP or IP:PORT, separated by commas. Left out: the
    /// addresses of Service kube-dns in namespace kube-system.
    #[arg(
        long,
        env = "TOOLCRIB_NAME_SERVERS",
        value_delimiter = ',',
        value_parser = NameServer::outside
    )]
    pub name_servers: Vec<NameServer>,
    /// Base URL of the mediators' OpenTelemetry receiver, which `egress: Declared` opens to every
    /// agent. Left out: there is none.
    #[arg(long, env = "TOOLCRIB_COLLECTOR")]
    pub collector: Option<String>,
    /// Address ranges inside the cluster, separated by commas. With `egress: Declared`, a url
    /// with a host name opens none of them. Left out: all private and link-local ranges.
    #[arg(long, env = "TOOLCRIB_CLUSTER_RANGES", value_delimiter = ',')]
    pub cluster_ranges: Vec<String>,
    /// The process' memory limit in bytes; a third of it is for cached objects.
    #[arg(long, env = "TOOLCRIB_MEMORY_LIMIT", default_value_t = DEFAULT_MEMORY_LIMIT, value_parser = clap::value_parser!(u64).range(MIN_MEMORY_LIMIT..))]
    pub memory_limit: u64,
    /// Number of objects that are reconciled at a time.
    #[arg(long, env = "TOOLCRIB_WORKERS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Seconds between two writes of one agent's usage.
    #[arg(long, env = "TOOLCRIB_USAGE_INTERVAL_SECONDS", default_value_t = 300)]
    pub usage_interval_seconds: u64,
    /// Seconds after which a pod that has not loaded the current manifest is stale. A pod that has
    /// stopped reporting is stale 30 seconds later.
    #[arg(long, env = "TOOLCRIB_STALE_SECONDS", default_value_t = 120)]
    pub stale_seconds: u64,
    /// Annotate running pods after a change that gives them something, so that their kubelets refresh
    /// the files at once. Needs the right to patch pods, and the chart's policy that limits it.
    #[arg(long, env = "TOOLCRIB_REFRESH_HINTS")]
    pub refresh_hints: bool,
    /// Seconds for which a ToolApproval is kept after its end, and a ToolDecision that is about nothing.
    #[arg(long, env = "TOOLCRIB_APPROVALS_KEPT_SECONDS", default_value_t = 3600)]
    pub approvals_kept_seconds: u32,
    /// Seconds between two reconciles of an object without an event.
    #[arg(long, env = "TOOLCRIB_RESYNC_SECONDS", default_value_t = 1800)]
    pub resync_seconds: u64,
}

/// Settings of claw-api.
#[derive(Clone, Debug)]
pub struct ClawApi {
    pub listen: SocketAddr,
    pub service: String,
    /// Name of the Surface, in the operator's own namespace.
    pub surface: String,
    pub scope: ClawScope,
}

/// The rules of the flag. The type makes clap read a single value instead of a list.
#[derive(Clone, Debug)]
pub struct DnsEgress(Vec<EgressRule>);

fn egress_rules(text: &str) -> Result<DnsEgress, serde_json::Error> {
    serde_json::from_str(text).map(DnsEgress)
}

/// The configuration of [`super::run`].
#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    pub pod_name: String,
    pub lease: String,
    pub lease_timing: crate::leadership::lease::Timing,
    /// `None`: no webhook configuration is written.
    pub webhook_config_name: Option<String>,
    /// Empty: all running webhook pods read their path from the configuration.
    pub webhook_pods: String,
    pub webhook_service: String,
    pub link_service: String,
    pub link_service_port: u16,
    pub certificate_secret: String,
    pub secrets: SecretScope,
    pub listen: SocketAddr,
    pub link_listen: SocketAddr,
    /// `None`: not served.
    pub claw_api: Option<ClawApi>,
    pub refused_hosts: Vec<String>,
    pub dns_egress: Vec<EgressRule>,
    /// Empty: the addresses of kube-dns.
    pub name_servers: Vec<NameServer>,
    pub cluster_domain: ClusterDomain,
    pub cluster_ranges: Vec<String>,
    /// URL of the mediators' OpenTelemetry receiver.
    pub collector: Option<String>,
    /// Most bytes of all cached objects.
    pub objects_budget: usize,
    pub workers: u16,
    pub usage_interval: Duration,
    pub stale_after: Duration,
    pub resync: Duration,
    pub refresh_hints: bool,
    /// The time for which a ToolApproval is kept after its end.
    pub approvals_kept: SignedDuration,
}

impl From<Args> for Settings {
    fn from(args: Args) -> Self {
        Self {
            secrets: if args.cluster_wide_secrets {
                SecretScope::Cluster
            } else {
                SecretScope::Namespaces(
                    args.secret_namespaces
                        .into_iter()
                        .filter(|name| !name.is_empty())
                        .collect(),
                )
            },
            namespace: args.cluster.namespace,
            pod_name: args.pod_name,
            lease: args.lease,
            lease_timing: crate::leadership::lease::Timing::default(),
            webhook_config_name: Some(args.webhook_config_name).filter(|name| !name.is_empty()),
            webhook_pods: args.webhook_pods,
            webhook_service: args.cluster.webhook_service,
            link_service: args.cluster.link_service,
            link_service_port: args.link_service_port,
            certificate_secret: args.certificate_secret,
            listen: args.listen,
            link_listen: args.link_listen,
            claw_api: args.claw_api_listen.map(|listen| ClawApi {
                listen,
                service: args.claw_api_service,
                surface: args.claw_api_surface,
                scope: args.claw_api_scope,
            }),
            refused_hosts: args.cluster.refused_hosts,
            dns_egress: args
                .dns_egress
                .map_or_else(|| NetworkSettings::default().dns, |rules| rules.0),
            name_servers: args.name_servers,
            cluster_domain: args.cluster.cluster_domain,
            cluster_ranges: if args.cluster_ranges.is_empty() {
                NetworkSettings::default().cluster_ranges
            } else {
                args.cluster_ranges
            },
            collector: args.collector.filter(|url| !url.is_empty()),
            objects_budget: objects_budget(args.memory_limit),
            workers: args.workers,
            usage_interval: Duration::from_secs(args.usage_interval_seconds),
            stale_after: Duration::from_secs(args.stale_seconds),
            resync: Duration::from_secs(args.resync_seconds),
            refresh_hints: args.refresh_hints,
            approvals_kept: SignedDuration::from_secs(i64::from(args.approvals_kept_seconds)),
        }
    }
}

/// The budget of cached objects, a third of the memory limit. The rest is for lists that are read
/// and decoded, for compilations, and for pages that the allocator retains (docs/bounds.md has the
/// figures).
pub fn objects_budget(memory_limit: u64) -> usize {
    usize::try_from(memory_limit / 3).unwrap_or(usize::MAX)
}

impl Settings {
    /// `name.namespace.svc` of one of the operator's Services.
    pub fn service_host(&self, service: &str) -> String {
        format!("{service}.{}.svc", self.namespace)
    }

    /// claw-api's Surface, if it is served.
    pub fn claw_api_surface(&self) -> Option<ObjectRef> {
        let claw_api = self.claw_api.as_ref()?;
        Some(ObjectRef::new(&*self.namespace, &*claw_api.surface))
    }

    /// The base URL of the link for mediators.
    pub fn link_url(&self) -> String {
        format!(
            "https://{}:{}",
            self.service_host(&self.link_service),
            self.link_service_port
        )
    }
}
