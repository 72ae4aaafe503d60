//! `surface discover`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::ConnectionArgs;
use super::values::{dns_label, endpoint, service_address};
use crate::openapi::Address;

#[derive(ClapArgs)]
pub struct DiscoverArgs {
    /// The surface's name
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// The namespace of the Surface; else with --in-cluster the kubeconfig's own, and `default`
    /// without
    #[arg(short, long, value_parser = dns_label)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// File with a bearer token for --url
    #[arg(long, value_name = "PATH", requires = "url")]
    pub token_file: Option<PathBuf>,
    /// File with the certificate authorities (PEM) of --url's server, in place of the public ones
    #[arg(long, value_name = "PATH", requires = "url")]
    pub ca_file: Option<PathBuf>,
    /// File with headers for the server, one `Name: value` a line
    #[arg(long, value_name = "PATH", conflicts_with = "stdio")]
    pub header_file: Option<PathBuf>,
    /// The Service that a new Surface names; else the URL's host, or with --stdio the Service
    /// that from-stdio writes
    #[arg(long, value_name = "NAME:PORT", value_parser = service_address)]
    pub service: Option<Address>,
    /// YAML or JSON file, or a folder of them, with the Surface as it was reviewed: all of it
    /// stays but for the tools that go over MCP. May be repeated. With --in-cluster it is the
    /// cluster's
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        conflicts_with = "in_cluster"
    )]
    pub paths: Vec<PathBuf>,
    /// Print what changed and nothing else; exit with 1 if anything did
    #[arg(long, conflicts_with = "apply")]
    pub check: bool,
    /// Write the tools into the cluster's Surface, and nothing else of it
    #[arg(long, requires = "in_cluster")]
    pub apply: bool,
    /// With --apply: what is lost, and what there is to look at, was read
    #[arg(long, requires = "apply")]
    pub yes: bool,
    /// With --apply: take the tools over from who has written them
    #[arg(long, requires = "apply")]
    pub force_conflicts: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// With --stdio: the program and its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "stdio")]
    pub command: Vec<OsString>,
}

/// Where the server is.
#[derive(ClapArgs)]
#[group(required = true, multiple = false)]
pub struct ServerArgs {
    /// Its endpoint, as https://mcp.example.com/mcp
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub url: Option<url::Url>,
    /// A program of this machine, which is started
    #[arg(long, requires = "command")]
    pub stdio: bool,
    /// The Service of the cluster's Surface, or for a new one that of --service, by the API
    /// server's proxy
    #[arg(long)]
    pub in_cluster: bool,
}
