//! The webhook's flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use k8s_openapi::api::core::v1::ResourceRequirements;
use toolcrib_compile::inject::{
    Allowances, DEFAULT_HISTORY_BYTES, InjectConfig, PullPolicy, RecordExport, WhenBehind,
};
use toolcrib_compile::{Settings, refused_hosts};

use crate::cluster_args::ClusterArgs;

/// The memory limit that the chart sets, in bytes.
const DEFAULT_MEMORY_LIMIT: u64 = 256 * 1024 * 1024;
/// Four times the memory of a webhook that keeps no Agent, in bytes.
const MIN_MEMORY_LIMIT: u64 = 64 * 1024 * 1024;

/// Flags of `toolcrib-operator webhook`. Each can be given by an environment variable.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Address of the admission webhook (HTTPS).
    #[arg(long, env = "TOOLCRIB_LISTEN", default_value = "[::]:9443")]
    pub listen: SocketAddr,
    /// Address for /healthz, /readyz and /metrics (plain HTTP).
    #[arg(long, env = "TOOLCRIB_STATUS_LISTEN", default_value = "[::]:8080")]
    pub status_listen: SocketAddr,
    /// Directory with tls.crt and tls.key, which the controller keeps; read again when they
    /// change. Not ready until they are there.
    #[arg(
        long,
        env = "TOOLCRIB_CERTIFICATE_DIR",
        default_value = "/etc/toolcrib/certificate"
    )]
    pub certificate_dir: PathBuf,
    /// Name of the mutating and of the validating webhook configuration, which contain the paths
    /// that are answered. Empty: /inject and /validate, from any caller.
    #[arg(long, env = "TOOLCRIB_WEBHOOK_CONFIG_NAME", default_value = "")]
    pub webhook_config_name: String,
    /// How long a pod waits for an Agent that was created just before it.
    #[arg(long, env = "TOOLCRIB_AGENT_WAIT_MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub agent_wait_ms: u64,
    /// The process' memory limit in bytes; an eighth of it is for the Agents that are kept.
    #[arg(long, env = "TOOLCRIB_MEMORY_LIMIT", default_value_t = DEFAULT_MEMORY_LIMIT, value_parser = clap::value_parser!(u64).range(MIN_MEMORY_LIMIT..))]
    pub memory_limit: u64,
    /// How long admissions are still answered after SIGTERM.
    #[arg(long, env = "TOOLCRIB_DRAIN_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub drain_seconds: u64,
    /// The mediator's image.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_IMAGE")]
    pub mediator_image: String,
    /// The mediator's imagePullPolicy; left out: the API server's default.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_PULL_POLICY")]
    pub mediator_pull_policy: Option<PullPolicyArg>,
    /// A Secret of the agents' namespaces with which the mediator's image is pulled; may be
    /// given several times.
    #[arg(
        long = "mediator-pull-secret",
        env = "TOOLCRIB_MEDIATOR_PULL_SECRETS",
        value_delimiter = ','
    )]
    pub mediator_pull_secrets: Vec<String>,
    /// The mediator's resources, as JSON: {"requests": {…}, "limits": {…}}.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_RESOURCES", default_value = "{}", value_parser = resources)]
    pub mediator_resources: ResourceRequirements,
    /// Size limit of the volume for the mediator's record.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_HISTORY_BYTES", default_value_t = DEFAULT_HISTORY_BYTES, value_parser = clap::value_parser!(u64).range(1_048_576..))]
    pub mediator_history_bytes: u64,
    /// Longest silence of a stream while the mediator works, in milliseconds.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_KEEPALIVE_MS", value_parser = clap::value_parser!(u64).range(100..))]
    pub mediator_keepalive_ms: Option<u64>,
    /// Mediators print the bodies of requests and responses on stdout too.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_RECORD_BODIES")]
    pub mediator_record_bodies: bool,
    /// Base URL of an OpenTelemetry receiver (OTLP over HTTP) for mediators' spans, and for their
    /// records if --mediator-export-records says so; empty: none.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_OTLP_ENDPOINT", default_value = "")]
    pub mediator_otlp_endpoint: String,
    /// Mediators send their records to the receiver too, as OTLP logs.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_EXPORT_RECORDS")]
    pub mediator_export_records: bool,
    /// Mediators send arguments and results of calls with their records.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_EXPORT_ARGUMENTS")]
    pub mediator_export_arguments: bool,
    /// What a mediator does when its record is full and the receiver has not taken its older file.
    #[arg(
        long,
        env = "TOOLCRIB_MEDIATOR_EXPORT_WHEN_BEHIND",
        value_enum,
        default_value = "Drop"
    )]
    pub mediator_export_when_behind: WhenBehindArg,
    /// Port of every agent's pod where its mediator serves /metrics.
    #[arg(long, env = "TOOLCRIB_MEDIATOR_METRICS_PORT", value_parser = clap::value_parser!(u16).range(1024..))]
    pub mediator_metrics_port: Option<u16>,
    /// A capability that agents' pods may add besides those of Pod Security `baseline`; may be
    /// given several times.
    #[arg(long, env = "TOOLCRIB_ALLOWED_CAPABILITY", value_delimiter = ',')]
    pub allowed_capability: Vec<String>,
    /// A folder of the node that agents' pods may mount; may be given several times.
    #[arg(long, env = "TOOLCRIB_ALLOWED_HOST_PATH", value_delimiter = ',')]
    pub allowed_host_path: Vec<String>,
    /// Agents' pods may take their containers out of AppArmor, and choose SELinux types.
    #[arg(long, env = "TOOLCRIB_ALLOW_UNCONFINED")]
    pub allow_unconfined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PullPolicyArg {
    #[value(name = "Always")]
    Always,
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    #[value(name = "Never")]
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenBehindArg {
    #[value(name = "Drop")]
    Drop,
    #[value(name = "Refuse")]
    Refuse,
}

impl Args {
    /// Limit of the texts of all Agents, in bytes. The rest of the memory is for reviews and the
    /// objects that they are compared with.
    pub fn agents_budget(&self) -> usize {
        usize::try_from(self.memory_limit / 8).unwrap_or(usize::MAX)
    }

    pub(super) fn agent_wait(&self) -> Duration {
        Duration::from_millis(self.agent_wait_ms)
    }

    /// Returns the settings with which compile finds the same mistakes as in the controller.
    pub(super) fn compile_settings(&self) -> Settings {
        let cluster = &self.cluster;
        let services = [&*cluster.link_service, &*cluster.webhook_service];
        Settings {
            cluster_domain: cluster.cluster_domain.clone(),
            refused_hosts: refused_hosts(
                &cluster.namespace,
                services,
                &cluster.cluster_domain,
                &cluster.refused_hosts,
            ),
            ..Settings::default()
        }
    }

    pub(super) fn inject_config(&self) -> InjectConfig {
        InjectConfig {
            image: self.mediator_image.clone(),
            image_pull_policy: self.mediator_pull_policy.map(|policy| match policy {
                PullPolicyArg::Always => PullPolicy::Always,
                PullPolicyArg::IfNotPresent => PullPolicy::IfNotPresent,
                PullPolicyArg::Never => PullPolicy::Never,
            }),
            image_pull_secrets: self.mediator_pull_secrets.clone(),
            resources: self.mediator_resources.clone(),
            history_bytes: self.mediator_history_bytes,
            keepalive: self.mediator_keepalive_ms.map(Duration::from_millis),
            record_bodies: self.mediator_record_bodies,
            otlp_endpoint: Some(self.mediator_otlp_endpoint.clone()).filter(|it| !it.is_empty()),
            export: self.mediator_export_records.then_some(RecordExport {
                arguments: self.mediator_export_arguments,
                when_behind: match self.mediator_export_when_behind {
                    WhenBehindArg::Drop => WhenBehind::Drop,
                    WhenBehindArg::Refuse => WhenBehind::Refuse,
                },
            }),
            metrics_port: self.mediator_metrics_port,
            allowances: Allowances {
                capabilities: self.allowed_capability.clone(),
                host_paths: self.allowed_host_path.clone(),
                unconfined: self.allow_unconfined,
            },
        }
    }
}

fn resources(text: &str) -> Result<ResourceRequirements, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
