//! Where the objects come from: files, or a cluster; and the operator's settings for them.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use toolcrib_manifest::ClusterDomain;

use super::values::DnsEgress;

/// The operator's settings that compile depends on, if they differ from the chart's defaults.
#[derive(Clone, Debug, Default, PartialEq, ClapArgs)]
pub struct OperatorArgs {
    /// The operator's namespace
    #[arg(long, help_heading = OPERATOR, env = "TOOLCRIB_NAMESPACE", value_name = "NAME", default_value = DEFAULT_OPERATOR)]
    pub operator_namespace: String,
    /// Hosts that are refused for surfaces and providers, separated by commas. Without -f, they
    /// are read from the cluster if you may read them
    #[arg(
        long,
        help_heading = OPERATOR,
        env = "TOOLCRIB_REFUSED_HOSTS",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub refused_hosts: Vec<String>,
    /// Egress rules, as JSON, for the cluster's name servers, which `egress: Declared` allows
    #[arg(long, help_heading = OPERATOR, env = "TOOLCRIB_DNS_EGRESS", value_name = "RULES", value_parser = DnsEgress::parse)]
    pub dns_egress: Option<DnsEgress>,
    /// The cluster's domain: the part after `name.namespace.svc`
    #[arg(long, help_heading = OPERATOR, env = "TOOLCRIB_CLUSTER_DOMAIN", value_name = "DOMAIN")]
    pub cluster_domain: Option<ClusterDomain>,
    /// Ranges of addresses inside the cluster, separated by commas. With `egress: Declared`, a url
    /// with a public name does not open them
    #[arg(
        long,
        help_heading = OPERATOR,
        env = "TOOLCRIB_CLUSTER_RANGES",
        value_name = "RANGES",
        value_delimiter = ','
    )]
    pub cluster_ranges: Vec<String>,
}

/// Set on each argument: `next_help_heading` would hold for all later arguments too.
pub(super) const OPERATOR: &str = "Settings of the operator";
/// Namespace of the operator in the chart's documentation.
pub(super) const DEFAULT_OPERATOR: &str = "toolcrib-system";

/// The files with the objects.
#[derive(ClapArgs)]
pub struct FileArgs {
    /// YAML or JSON file, or a folder of them (with its subfolders), or - for standard input;
    /// may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// The source of the objects: files, or a cluster.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct SourceArgs {
    /// YAML or JSON file, or a folder of them (with its subfolders), or - for standard input;
    /// may be repeated. Without it, the cluster is read with your own rights
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub assumed: AssumedArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// The objects that are taken to exist although no file holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ClapArgs)]
pub struct AssumedArgs {
    /// With -f: assume that Secrets outside the files exist as their users need them, for Secrets
    /// that are kept elsewhere. `test` and `plan --against` always do
    #[arg(long = "assume-secrets", requires = "paths")]
    pub secrets: bool,
    /// With -f: assume that Services outside the files exist with the ports that surfaces name,
    /// for Services of another team
    #[arg(long = "assume-services", requires = "paths")]
    pub services: bool,
}

/// The cluster, as in kubectl.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ClusterArgs {
    /// Only this namespace; else the kubeconfig's own. With -f: the namespace of objects that name
    /// none, and of a name that is not unique
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces of the cluster
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The API server, and the user for its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, ClapArgs)]
pub struct ConnectionArgs {
    /// The kubeconfig's context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig; else KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Send requests as this user
    #[arg(long = "as", value_name = "USER")]
    pub impersonate: Option<String>,
    /// Send requests as a member of this group; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    pub impersonate_groups: Vec<String>,
}
