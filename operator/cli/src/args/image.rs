//! The arguments of `surface from-image`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use oci_client::Reference;

use super::values::{DescriptionForm, dns_label, service_address, url_address};
use crate::authoring::image::platform::Platform;
use crate::authoring::openapi::Address;

#[derive(ClapArgs)]
pub struct FromImageArgs {
    /// The image, in the form of docker pull
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
    /// The URL at which the image runs, for a new Surface without a Service
    #[arg(long, value_name = "URL", value_parser = url_address)]
    pub url: Option<Address>,
    /// YAML or JSON file, or a folder of them, with the reviewed Surface. The image's descriptor
    /// replaces the Surface's; all else stays. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print only the changes; exit with 1 if there are some
    #[arg(long, requires = "paths")]
    pub check: bool,
    /// The platform to read, if the image is for several
    #[arg(long, value_name = "OS/ARCHITECTURE", default_value = "linux/amd64", value_parser = Platform::parse)]
    pub platform: Platform,
    /// The docker config with the registry's credential under `auths`; without it,
    /// ~/.docker/config.json if it exists
    #[arg(long, value_name = "PATH")]
    pub docker_config: Option<PathBuf>,
    /// Connect to the registry without TLS, which only a registry on this machine may use
    #[arg(long)]
    pub plain_http: bool,
    /// The part that is printed
    #[arg(short, long, value_enum, default_value_t = DescriptionForm::Surface, conflicts_with = "check")]
    pub output: DescriptionForm,
}
