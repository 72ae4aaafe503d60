//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use toolcrib_compile::SecretKeyRef;

use crate::{import::KnownProvider, openapi::Address};

/// Governed tools for AI agents: what every agent may do, from files or from a cluster.
#[derive(Parser)]
#[command(name = "kubectl-toolcrib", bin_name = "kubectl toolcrib", version)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Print the objects that the operator would write
    Compile(CompileArgs),
    /// Print pods as they would be after injection
    Inject(InjectArgs),
    /// Say which object gives an agent its tools, or why one is withheld
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Show one surface as it was resolved: tools, schemas, tiers, digest, who has what
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Show surfaces, the grants on them, the agents that have them, and their pods
    #[command(after_help = TREE_EXAMPLES)]
    Tree(TreeArgs),
    /// Turn a Clawdapus pod file into objects for review
    Import(ImportArgs),
    /// Say who would gain or lose what if these files were applied
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Check policy tests: may this agent make this call, and what would be sent
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Write Surfaces from what others publish
    #[command(subcommand)]
    Surface(SurfaceVerb),
    /// Run a program behind the real mediator on this machine
    Run(RunArgs),
    /// Print a completion script for a shell
    Completion { shell: Shell },
}

/// Where the objects come from.
#[derive(ClapArgs)]
pub struct FileArgs {
    /// YAML or JSON file, or a folder of them (with its subfolders), or - for standard input;
    /// may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// Where the objects come from: files, or a cluster.
#[derive(ClapArgs)]
pub struct SourceArgs {
    /// YAML or JSON file, or a folder of them (with its subfolders), or - for standard input;
    /// may be repeated. Without it, the cluster is asked, with your own rights
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Which cluster, as for kubectl.
#[derive(ClapArgs)]
pub struct ClusterArgs {
    /// Only this namespace; else the kubeconfig's own. With -f: that of objects that name
    /// none, and where a name alone is not clear
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces of the cluster
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The kubeconfig's context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig; else KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Ask as this user
    #[arg(long = "as", value_name = "USER")]
    pub impersonate: Option<String>,
}

#[derive(ClapArgs)]
pub struct CompileArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The objects, one document each
    Yaml,
    /// The objects, as one List
    Json,
    /// One line per tool
    Table,
}

#[derive(ClapArgs)]
pub struct InjectArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The mediator's image
    #[arg(long, default_value = concat!("toolcrib-sidecar:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  # All that an agent has and was denied, and what its pods have loaded
  kubectl toolcrib explain analyst -n trading

  # The same from files; why this one is not there
  kubectl toolcrib explain -f desk/ analyst trading-api.execute_trade

Exit codes: 0; 1 if the agent has no such tool, or something failed; 2 for a wrong command line.";

#[derive(ClapArgs)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The agent's name
    pub agent: String,
    /// One tool, as SURFACE.TOOL; without it, all that the agent has or was denied
    pub tool: Option<String>,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  kubectl toolcrib inspect trading-api -n trading

  # The digest to pin in a grant
  kubectl toolcrib inspect -f desk/ trading-api -o json | jq -r .descriptorDigest";

#[derive(ClapArgs)]
pub struct InspectArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The surface's name
    pub surface: String,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

const TREE_EXAMPLES: &str = "\
Examples:
  kubectl toolcrib tree -A
  kubectl toolcrib tree -f desk/";

#[derive(ClapArgs)]
pub struct TreeArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  # Before kubectl apply
  kubectl toolcrib plan -f desk/

  # What a pull request changes, without a cluster; deleted files count
  kubectl toolcrib plan -f desk/ --against main/desk/ --prune

  # Refuse what takes a tool away or adds one
  kubectl toolcrib plan -f desk/ --against main/desk/ --fail-on-loss --fail-on-gain

Exit codes: 0; 1 if something failed; 2 for a wrong command line or files that cannot be read;
3 if there is what --fail-on-loss, --fail-on-gain or --fail-on-change names.";

#[derive(ClapArgs)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// What is in force now, from files or folders; may be repeated. Without it, the cluster
    /// is asked, with your own rights
    #[arg(long, value_name = "PATH", conflicts_with_all = ["context", "kubeconfig", "impersonate", "all_namespaces"])]
    pub against: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What is not among the files counts as deleted, as with `kubectl apply --prune` or a
    /// GitOps tool; in a cluster, Toolcrib's objects in the namespaces that the files name
    #[arg(long)]
    pub prune: bool,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Exit with 3 if an agent loses something
    #[arg(long)]
    pub fail_on_loss: bool,
    /// Exit with 3 if an agent gains something
    #[arg(long)]
    pub fail_on_gain: bool,
    /// Exit with 3 if anything differs
    #[arg(long)]
    pub fail_on_change: bool,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    Json,
    Yaml,
}

const TEST_EXAMPLES: &str = "\
A test stands in a YAML file beside the objects, or in a folder below:

  apiVersion: cli.toolcrib.dev/v1alpha1
  kind: ToolTest
  metadata: {name: analyst, namespace: trading}
  spec:
    agent: analyst
    cases:
    - name: reads its own context, whoever the model says it is
      call: trading-api.get_market_context
      arguments: {claw_id: executor}
      expect:
        result: Allowed
        by: ToolGrant/analyst-reads
        request: {method: GET, url: \"http://trading-api.trading.svc:4000/api/v1/market_context/analyst\"}
    - name: may not trade
      call: trading-api.execute_trade
      arguments: {symbol: OTTR, side: buy, quantity: 3}
      expect: {result: Denied, code: unsupported_tool}

Examples:
  kubectl toolcrib test -f desk/

Exit codes: 0; 1 if a case failed; 2 for a wrong command line, or files that cannot be read or
hold no test.";

#[derive(ClapArgs)]
pub struct TestArgs {
    #[command(flatten)]
    pub files: FileArgs,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct ImportArgs {
    /// The pod file (claw-pod.yml); contracts, skills and descriptors are read from its folder
    pub pod_file: PathBuf,
    /// Objects that are there already, such as Services and ModelProviders: they are not
    /// written, and the result is checked together with them. May be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub existing: Vec<PathBuf>,
    /// The namespace of all objects; else the pod's name
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Where variables have their values; else .env beside the pod file, if it is there
    #[arg(long, value_name = "PATH")]
    pub env_file: Option<PathBuf>,
    /// Write the variables' values into the Secrets; without it, they are written as ${NAME}
    #[arg(long)]
    pub with_secrets: bool,
    /// A service's claw.describe descriptor. Else the pod file's describe-file, else
    /// .claw-discovered/SERVICE.claw-describe.json. May be repeated
    #[arg(long, value_name = "SERVICE=FILE", value_parser = Description::parse)]
    pub describe: Vec<Description>,
    /// A model provider that agents use, where neither cllama-env nor models names one. May
    /// be repeated
    #[arg(long, value_enum, value_name = "NAME")]
    pub provider: Vec<KnownProvider>,
    /// Folder to write numbered files to; without it, all goes to standard output
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Replace files that are in the folder already
    #[arg(long, requires = "output_dir")]
    pub force: bool,
}

/// `--describe`: a service and the file of its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub service: String,
    pub file: PathBuf,
}

impl Description {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((service, file)) if !service.is_empty() && !file.is_empty() => Ok(Self {
                service: service.to_owned(),
                file: file.into(),
            }),
            _ => Err("is not of the form SERVICE=FILE".to_owned()),
        }
    }
}

#[derive(Subcommand)]
pub enum SurfaceVerb {
    /// A Surface from an OpenAPI 3.0, OpenAPI 3.1 or Swagger 2.0 document
    FromOpenapi(FromOpenApiArgs),
}

#[derive(ClapArgs)]
pub struct FromOpenApiArgs {
    /// The document, JSON or YAML
    pub document: PathBuf,
    /// The surface's name
    #[arg(long)]
    pub name: String,
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// The Service that serves it; its paths keep the base path of the document's server
    #[arg(long, value_name = "NAME:PORT", value_parser = service_address, conflicts_with = "url")]
    pub service: Option<Address>,
    /// Where it is; else at the document's first server
    #[arg(long, value_name = "URL", value_parser = url_address)]
    pub url: Option<Address>,
    /// Only these operations: a tag, an operationId, or "METHOD /path"; * stands for anything.
    /// May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Not these operations. May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    #[arg(short, long, value_enum, default_value_t = DescribedAs::Surface)]
    pub output: DescribedAs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DescribedAs {
    /// The Surface, and the Secret that it names without a value, as YAML
    Surface,
    /// The claw.describe descriptor alone, as JSON
    Descriptor,
}

fn service_address(text: &str) -> Result<Address, String> {
    text.split_once(':')
        .filter(|(name, _)| !name.is_empty())
        .and_then(|(name, port)| {
            Some(Address::Service {
                name: name.to_owned(),
                port: port.parse().ok().filter(|port| *port > 0)?,
            })
        })
        .ok_or_else(|| "is not of the form NAME:PORT".to_owned())
}

fn url_address(text: &str) -> Result<Address, String> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Address::Url(url)),
        Ok(_) => Err("must begin with http:// or https://".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(ClapArgs)]
pub struct RunArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The agent that the program runs as
    #[arg(long, value_name = "NAME")]
    pub agent: String,
    /// The agent's namespace, where the name alone is not clear
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Where a surface is on this machine: SURFACE=URL, or provider:NAME=URL for a model
    /// provider. A URL without a path keeps the path that the object gives. May be repeated
    #[arg(long, value_name = "SURFACE=URL", value_parser = Place::parse)]
    pub at: Vec<Place>,
    /// A credential that is not in the files: NAMESPACE/NAME/KEY=env:VARIABLE, or
    /// =file:PATH. The program does not get the variable. May be repeated
    #[arg(long, value_name = "NAMESPACE/NAME/KEY=env:VARIABLE", value_parser = SecretFrom::parse)]
    pub secret: Vec<SecretFrom>,
    /// The mediator's program; else toolcrib-sidecar beside this program, else on PATH
    #[arg(long, value_name = "PATH")]
    pub sidecar: Option<PathBuf>,
    /// Folder to keep the record in (history.jsonl); else it is gone at the end
    #[arg(long, value_name = "DIR")]
    pub history_dir: Option<PathBuf>,
    /// Print the mediator's log lines to standard error
    #[arg(long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// `--at`: an address on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub of: PlaceOf,
    pub url: url::Url,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceOf {
    /// By the name that the agent knows it by.
    Surface(String),
    Provider(String),
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, url) = text
            .split_once('=')
            .ok_or("is not of the form SURFACE=URL")?;
        let of = match name.strip_prefix("provider:") {
            Some(provider) => PlaceOf::Provider(provider.to_string()),
            None => PlaceOf::Surface(name.to_string()),
        };
        let url = url::Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() {
            return Err(format!(
                "{url}: wanted http(s)://host:port, and a path where it needs one"
            ));
        }
        Ok(Self { of, url })
    }
}

/// `--secret`: one credential and where its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFrom {
    pub reference: SecretKeyRef,
    pub value: ValueFrom,
}

/// Never the value itself: arguments can be read by every process of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueFrom {
    Variable(String),
    File(PathBuf),
}

impl SecretFrom {
    fn parse(text: &str) -> Result<Self, String> {
        let wanted = "is not of the form NAMESPACE/NAME/KEY=env:VARIABLE or =file:PATH";
        let (reference, value) = text.split_once('=').ok_or(wanted)?;
        let reference = SecretKeyRef::parse(reference).ok_or(wanted)?;
        let value = match value.split_once(':') {
            Some(("env", name)) if !name.is_empty() => ValueFrom::Variable(name.to_string()),
            Some(("file", path)) if !path.is_empty() => ValueFrom::File(path.into()),
            _ => return Err(wanted.to_string()),
        };
        Ok(Self { reference, value })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_place_is_a_surface_or_a_provider() {
        let place = Place::parse("provider:den=http://127.0.0.1:9/v1").unwrap();
        assert_eq!(place.of, PlaceOf::Provider("den".into()));
        assert_eq!(
            Place::parse("pond=http://127.0.0.1:9").unwrap().of,
            PlaceOf::Surface("pond".into())
        );
        for wrong in [
            "pond",
            "pond=127.0.0.1:9",
            "pond=ftp://a",
            "pond=http://a/?q=1",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_never_on_the_command_line() {
        assert!(SecretFrom::parse("pond/fish/token=env:FISH").is_ok());
        assert!(SecretFrom::parse("pond/fish/token=file:/run/fish").is_ok());
        for wrong in [
            "pond/fish/token=secret",
            "pond/fish=env:FISH",
            "pond/fish/token=env:",
        ] {
            assert!(SecretFrom::parse(wrong).is_err(), "{wrong}");
        }
    }
}
