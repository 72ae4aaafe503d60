//! The arguments of `surface discover`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::ConnectionArgs;
use super::values::{dns_label, endpoint, service_address};
use crate::authoring::openapi::Address;

#[derive(ClapArgs)]
pub struct DiscoverArgs {
    /// The surface's name
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// The namespace of the Surface; without it, `default`, or with --in-cluster the kubeconfig's
    /// own
    #[arg(short, long, value_parser = dns_label)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// File with a bearer token for --url. With --in-cluster, the API server keeps the header
    /// Authorization for itself: give another one with --header-file
    #[arg(long, value_name = "PATH", requires = "url")]
    pub token_file: Option<PathBuf>,
    /// File with the certificate authorities (PEM) of --url's server, instead of the public ones
    #[arg(long, value_name = "PATH", requires = "url")]
    pub ca_file: Option<PathBuf>,
    /// File with headers for the server, one `Name: value` per line
    #[arg(long, value_name = "PATH", conflicts_with = "stdio")]
    pub header_file: Option<PathBuf>,
    /// The Service that a new Surface names; without it, the URL's host, or with --stdio the
    /// Service that from-stdio writes
    #[arg(long, value_name = "NAME:PORT", value_parser = service_address)]
    pub service: Option<Address>,
    /// YAML or JSON file, or a folder of them, with the reviewed Surface. The server's tools
    /// replace those that are called over MCP; all else stays. May be repeated. With --in-cluster
    /// the Surface is the cluster's
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        conflicts_with = "in_cluster"
    )]
    pub paths: Vec<PathBuf>,
    /// Print only the changes; exit with 1 if there are some
    #[arg(long, conflicts_with = "apply")]
    pub check: bool,
    /// Write the tools into the cluster's Surface, and nothing else
    #[arg(long, requires = "in_cluster")]
    pub apply: bool,
    /// With --apply: confirm that lost tools and new remarks were reviewed
    #[arg(long, requires = "apply")]
    pub yes: bool,
    /// With --apply: take over tools that another field manager has written
    #[arg(long, requires = "apply")]
    pub force_conflicts: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// With --stdio: the program and its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "stdio")]
    pub command: Vec<OsString>,
}

/// The address of the server.
#[derive(ClapArgs)]
#[group(required = true, multiple = false)]
pub struct ServerArgs {
    /// The URL of its endpoint, such as https://mcp.example.com/mcp
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub url: Option<url::Url>,
    /// Start the program on this machine
    #[arg(long, requires = "command")]
    pub stdio: bool,
    /// Ask the Service of the cluster's Surface, or of --service for a new one, through the API
    /// server's proxy
    #[arg(long)]
    pub in_cluster: bool,
}
