//! The verbs that write objects for review: `import` and `surface`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::values::{
    Description, DescriptionForm, VariableFrom, dns_label, service_address, url_address,
};
use super::{DiscoverArgs, FromImageArgs, examples};
use crate::authoring::import::KnownProvider;
use crate::authoring::openapi::Address;
use crate::authoring::wrapped::{WRAPPED_PORT, WRAPPER_IMAGE};

#[derive(ClapArgs)]
pub struct ImportArgs {
    /// The pod file (claw-pod.yml); contracts, skills and descriptors are read from its folder
    pub pod_file: PathBuf,
    /// Existing objects, such as Services and ModelProviders. They are not written, and the result
    /// is checked together with them. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub existing: Vec<PathBuf>,
    /// The namespace of all objects; without it, the pod's name
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// File with the values of variables; without it, .env beside the pod file if it exists
    #[arg(long, value_name = "PATH")]
    pub env_file: Option<PathBuf>,
    /// Write the variables' values into the Secrets; without it, the Secrets hold ${NAME}
    #[arg(long)]
    pub with_secrets: bool,
    /// The file of a service's claw.describe descriptor. Without it, the pod file's describe-file,
    /// else .claw-discovered/SERVICE.claw-describe.json. May be repeated
    #[arg(long, value_name = "SERVICE=FILE", value_parser = Description::parse)]
    pub describe: Vec<Description>,
    /// A model provider for agents, if neither cllama-env nor models names one. May be repeated
    #[arg(long, value_enum, value_name = "NAME")]
    pub provider: Vec<KnownProvider>,
    /// Folder for the numbered files; without it, standard output
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Replace existing files in the folder
    #[arg(long, requires = "output_dir")]
    pub force: bool,
}

#[derive(Subcommand)]
pub enum SurfaceVerb {
    /// A Surface from an OpenAPI 3.0, OpenAPI 3.1 or Swagger 2.0 document
    #[command(after_help = examples::FROM_OPENAPI)]
    FromOpenapi(FromOpenApiArgs),
    /// Deployment, Service, NetworkPolicy, Secret and Surface of an MCP server that uses its
    /// standard streams
    #[command(after_help = examples::FROM_STDIO)]
    FromStdio(FromStdioArgs),
    /// A Surface from the descriptor in an image, or the changes of that descriptor since the
    /// review
    #[command(after_help = examples::FROM_IMAGE)]
    FromImage(FromImageArgs),
    /// A Surface from the tools of an MCP server, or the changes of these tools since the review
    #[command(after_help = examples::DISCOVER)]
    Discover(DiscoverArgs),
}

#[derive(ClapArgs)]
pub struct FromStdioArgs {
    /// The name of all objects; the name of the Secret ends in `-mcp`
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// The namespace of all objects
    #[arg(short, long, default_value = "default", value_parser = dns_label)]
    pub namespace: String,
    /// The image with the server's program; it needs nothing of Toolcrib's
    #[arg(long)]
    pub image: String,
    /// The image with the wrapper
    #[arg(long, value_name = "IMAGE", default_value = WRAPPER_IMAGE)]
    pub wrapper_image: String,
    /// A variable of the program, from a key of a Secret in the namespace. May be repeated
    #[arg(long, value_name = "VARIABLE=SECRET/KEY", value_parser = VariableFrom::parse)]
    pub env: Vec<VariableFrom>,
    /// The port of the Service and the pods
    #[arg(long, default_value_t = WRAPPED_PORT, value_parser = clap::value_parser!(u16).range(1024..))]
    pub port: u16,
    /// The program and its arguments, as in the image
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(ClapArgs)]
pub struct FromOpenApiArgs {
    /// The document, JSON or YAML
    pub document: PathBuf,
    /// The surface's name
    #[arg(long, value_parser = dns_label)]
    pub name: String,
    /// The namespace of the Surface, its Secret and its Service
    #[arg(short, long, default_value = "default", value_parser = dns_label)]
    pub namespace: String,
    /// The Service that serves it; paths keep the base path of the document's server
    #[arg(long, value_name = "NAME:PORT", value_parser = service_address, conflicts_with = "url")]
    pub service: Option<Address>,
    /// The URL of the service; without it, the document's first server
    #[arg(long, value_name = "URL", value_parser = url_address)]
    pub url: Option<Address>,
    /// Only these operations: a tag, an operationId, or "METHOD /path"; * matches any text.
    /// May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// All operations but these. May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// The part that is printed
    #[arg(short, long, value_enum, default_value_t = DescriptionForm::Surface)]
    pub output: DescriptionForm,
}
