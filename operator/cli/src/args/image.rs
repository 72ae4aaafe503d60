//! `surface from-image`.

use std::fmt;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use oci_client::Reference;

use super::DescribedAs;
use super::values::{dns_label, service_address, url_address};
use crate::openapi::Address;

#[derive(ClapArgs)]
pub struct FromImageArgs {
    /// The image, as for docker pull
    #[arg(value_name = "REF")]
    pub image: Reference,
    /// The surface's name
    #[arg(long, value_parser = dns_label)]
    pub name: String,
    /// The namespace of the Surface
    #[arg(short, long, default_value = "default", value_parser = dns_label)]
    pub namespace: String,
    /// The Service that runs the image, for a new Surface
    #[arg(long, value_name = "NAME:PORT", value_parser = service_address, conflicts_with = "url")]
    pub service: Option<Address>,
    /// Where the image runs, for a new Surface, if it is not behind a Service
    #[arg(long, value_name = "URL", value_parser = url_address)]
    pub url: Option<Address>,
    /// YAML or JSON file, or a folder of them, with the Surface as it was reviewed: all of it
    /// stays but for what the image says. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print what changed and nothing else; exit with 1 if anything did
    #[arg(long, requires = "paths")]
    pub check: bool,
    /// Of an image for many platforms, the one that is read
    #[arg(long, value_name = "OS/ARCHITECTURE", default_value = "linux/amd64", value_parser = Platform::parse)]
    pub platform: Platform,
    /// The docker config with the registry's credential under `auths`; else
    /// ~/.docker/config.json, if it is there
    #[arg(long, value_name = "PATH")]
    pub docker_config: Option<PathBuf>,
    /// Speak to the registry without TLS; only to one of this machine
    #[arg(long)]
    pub plain_http: bool,
    /// What is printed
    #[arg(short, long, value_enum, default_value_t = DescribedAs::Surface, conflicts_with = "check")]
    pub output: DescribedAs,
}

/// As images name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
}

impl Platform {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((os, architecture)) if !os.is_empty() && !architecture.is_empty() => Ok(Self {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
            }),
            _ => Err("is not of the form OS/ARCHITECTURE, as linux/arm64".to_owned()),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}
