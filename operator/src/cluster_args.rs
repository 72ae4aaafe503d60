//! The flags that controller and webhook share: both must refuse the same hosts.

use toolcrib_manifest::ClusterDomain;
use toolcrib_manifest::dns::CLUSTER_DOMAIN;

// The operator's own names, and the cluster that it runs in. Not a doc comment, which clap would
// print in place of the command's own text.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// The operator's own namespace: lease, certificates, and Services that no surface or provider
    /// may name.
    #[arg(long, env = "TOOLCRIB_NAMESPACE", default_value = "toolcrib-system")]
    pub namespace: String,
    /// Name of the webhook's Service: in its certificate, and refused as a host.
    #[arg(
        long,
        env = "TOOLCRIB_WEBHOOK_SERVICE",
        default_value = "toolcrib-webhook"
    )]
    pub webhook_service: String,
    /// Name of the link's Service: in its certificate, in every agent.json, and refused as a host.
    #[arg(long, env = "TOOLCRIB_LINK_SERVICE", default_value = "toolcrib-link")]
    pub link_service: String,
    /// Hosts that no surface or provider may have, besides the API server's and the
    /// operator's own. Controller and webhook need the same ones.
    #[arg(long, env = "TOOLCRIB_REFUSED_HOSTS", value_delimiter = ',')]
    pub refused_hosts: Vec<String>,
    /// The cluster's domain, the suffix of `name.namespace.svc`.
    #[arg(
        long,
        env = "TOOLCRIB_CLUSTER_DOMAIN",
        default_value = CLUSTER_DOMAIN
    )]
    pub cluster_domain: ClusterDomain,
}
