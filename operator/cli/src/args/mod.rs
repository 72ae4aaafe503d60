//! The command line: verbs and arguments. [`advice`] handles misplaced words, [`examples`] has the
//! examples in the help, [`image`] and [`discover`] have the arguments of one verb each, [`values`]
//! has the parsers of structured arguments.

mod advice;
mod approvals;
mod audit;
mod discover;
mod examples;
mod image;
mod propose;
mod suspend;
mod values;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;

use toolcrib_manifest::ClusterDomain;

use crate::authoring::import::KnownProvider;
use crate::authoring::openapi::Address;
use crate::authoring::wrapped::{WRAPPED_PORT, WRAPPER_IMAGE};
use crate::print::{Format, Output};
pub use approvals::{ApprovalsArgs, DecideArgs};
pub use audit::{AuditArgs, AuditOutput, AuditQuery, AuditVerb, RecordArgs, VerifyArgs};
pub use discover::DiscoverArgs;
pub use image::FromImageArgs;
pub use propose::{ProposeArgs, ProposeOutput};
pub use suspend::{AgentsArgs, SuspendArgs};
pub use values::{
    AddressTarget, Description, DnsEgress, LocalAddress, SecretFrom, ValueFrom, VariableFrom,
};
use values::{dns_label, service_address, url_address};

/// Governed tools for AI agents: what every agent may do, from files or from a cluster.
#[derive(Parser)]
#[command(name = "kubectl-toolcrib", bin_name = "kubectl toolcrib", version)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

impl Args {
    /// Reads the command line of this process. Ends the process after help, and after an error.
    pub fn of_process() -> Args {
        Args::try_parse().unwrap_or_else(|error| {
            let mut command = Args::command();
            command.build();
            advice::with_advice(error, &command).exit()
        })
    }
}

#[derive(Subcommand)]
pub enum Verb {
    /// Print the objects that the operator would write
    #[command(after_help = examples::COMPILE)]
    Compile(CompileArgs),
    /// Print pods as they would be after injection
    #[command(after_help = examples::INJECT)]
    Inject(InjectArgs),
    /// Name the object that gives an agent its tools, or the reason for withholding one
    #[command(after_help = examples::EXPLAIN)]
    Explain(ExplainArgs),
    /// Show one resolved surface: tools, schemas, tiers, digest, and the agents that use it
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectArgs),
    /// Show surfaces, the grants on them, the agents that have them, and their pods
    #[command(after_help = examples::TREE)]
    Tree(TreeArgs),
    /// Turn a Clawdapus pod file into objects for review
    #[command(after_help = examples::IMPORT)]
    Import(ImportArgs),
    /// Show which agents would gain or lose which tools if these files were applied
    #[command(after_help = examples::PLAN)]
    Plan(PlanArgs),
    /// Run policy tests: may this agent make this call, and which request would be sent
    #[command(after_help = examples::TEST)]
    Test(TestArgs),
    /// Show what agents did, from the record: each tool call with its outcome and its grant
    #[command(after_help = examples::AUDIT)]
    Audit(Box<AuditArgs>),
    /// Propose the narrowest ToolGrant that would have allowed what an agent did, from the record
    #[command(after_help = examples::PROPOSE)]
    Propose(Box<ProposeArgs>),
    /// Show calls that wait for the approval of a person
    #[command(after_help = examples::APPROVALS)]
    Approvals(ApprovalsArgs),
    /// Let one exact call of an agent run, once
    #[command(after_help = examples::APPROVE)]
    Approve(DecideArgs),
    /// Refuse one exact call of an agent
    #[command(after_help = examples::DENY)]
    Deny(DecideArgs),
    /// Stop agents at once: every request and running call of theirs is refused
    #[command(after_help = examples::SUSPEND)]
    Suspend(SuspendArgs),
    /// Start suspended agents again
    #[command(after_help = examples::RESUME)]
    Resume(AgentsArgs),
    /// Write Surfaces from an OpenAPI document, an MCP server or an image
    #[command(subcommand, after_help = examples::SURFACE)]
    Surface(SurfaceVerb),
    /// Run a program behind the real mediator on this machine
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Print a completion script, for kubectl or a shell
    #[command(after_help = examples::COMPLETION)]
    Completion {
        /// The program that completes: kubectl or a shell
        shell: CompletionShell,
    },
}

/// The word with which a completion script calls this program, as in kubectl. The words of the line
/// follow; the last one is incomplete. It is not a verb of clap, which would suggest it for a
/// misspelt verb.
pub const COMPLETE: &str = "__complete";

/// The programs that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// `kubectl toolcrib`: put the script on the PATH as kubectl_complete-toolcrib. It also offers
    /// the names of agents, surfaces and tools
    Kubectl,
    /// `kubectl-toolcrib` in bash
    Bash,
    /// `kubectl-toolcrib` in elvish
    Elvish,
    /// `kubectl-toolcrib` in fish
    Fish,
    /// `kubectl-toolcrib` in PowerShell
    Powershell,
    /// `kubectl-toolcrib` in zsh
    Zsh,
}

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
const OPERATOR: &str = "Settings of the operator";
/// Namespace of the operator in the chart's documentation.
const DEFAULT_OPERATOR: &str = "toolcrib-system";

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
}

#[derive(ClapArgs)]
pub struct CompileArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Only this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
}

#[derive(ClapArgs)]
pub struct InjectArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The namespace of objects and pods that name none
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The mediator's image
    #[arg(long, default_value = concat!("docker.io/toolcrib/sidecar:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Output format of the pods
    #[arg(short, long, value_enum, default_value_t = PodFormat::Yaml)]
    pub output: PodFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PodFormat {
    /// One document each
    Yaml,
    /// As one List
    Json,
}

#[derive(ClapArgs)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The agent, as NAME or agent/NAME
    #[arg(value_parser = values::agent)]
    pub agent: String,
    /// One tool, as SURFACE.TOOL; without it, all tools that are granted or withheld
    pub tool: Option<String>,
    /// The time at which grants with a window are judged, such as 2026-12-31T08:00:00Z; without it,
    /// now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct InspectArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The surface's name
    pub surface: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct TreeArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The time at which grants with a window are judged, such as 2026-12-31T08:00:00Z; without it,
    /// now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub assumed: AssumedArgs,
    /// Files or folders with the objects that are in force now; may be repeated. Without it, the
    /// cluster is read with your own rights
    #[arg(long, value_name = "PATH", conflicts_with_all = ["context", "kubeconfig", "impersonate", "all_namespaces"])]
    pub against: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Count objects that are not among the files as deleted, like `kubectl apply --prune` or a
    /// GitOps tool. In a cluster, this concerns Toolcrib's objects in the namespaces of the files
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
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(ClapArgs)]
pub struct TestArgs {
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub assumed: AssumedArgs,
    /// The time of the calls, such as 2026-12-31T08:00:00Z; without it, now
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub now: Option<Timestamp>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DescriptionForm {
    /// The Surface as YAML; also the Secret that it needs, without a value
    Surface,
    /// The claw.describe descriptor alone, as JSON
    Descriptor,
}

#[derive(ClapArgs)]
pub struct RunArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The agent that the program runs as
    #[arg(long, value_name = "NAME")]
    pub agent: String,
    /// The agent's namespace, if the name alone is not unique
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The address of a surface on this machine: SURFACE=URL, or provider:NAME=URL for a model
    /// provider. A URL without a path keeps the path of the object. May be repeated
    #[arg(long, value_name = "SURFACE=URL", value_parser = LocalAddress::parse)]
    pub at: Vec<LocalAddress>,
    /// A credential outside the files: NAMESPACE/NAME/KEY=env:VARIABLE, or
    /// =file:PATH. The program does not get the variable. May be repeated
    #[arg(long, value_name = "NAMESPACE/NAME/KEY=env:VARIABLE", value_parser = SecretFrom::parse)]
    pub secret: Vec<SecretFrom>,
    /// Send a credential of --secret to several hosts without asking
    #[arg(long)]
    pub yes: bool,
    /// The mediator's program; without it, toolcrib-sidecar beside this program, else on PATH
    #[arg(long, value_name = "PATH")]
    pub sidecar: Option<PathBuf>,
    /// Folder for the record (history.jsonl); without it, the record is deleted at the end
    #[arg(long, value_name = "DIR")]
    pub history_dir: Option<PathBuf>,
    /// Print the mediator's log lines to standard error
    #[arg(long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Args::command().debug_assert();
    }

    /// Returns every verb with its subcommands.
    fn verbs(command: &Command) -> Vec<Command> {
        let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let below: Vec<Command> = below.flat_map(verbs).collect();
        std::iter::once(command.clone()).chain(below).collect()
    }

    #[test]
    fn every_verb_and_argument_has_help() {
        let mut silent = Vec::new();
        for verb in verbs(&Args::command()) {
            let name = verb.get_name().to_owned();
            if verb.get_about().is_none() {
                silent.push(name.clone());
            }
            for argument in verb.get_arguments() {
                let id = argument.get_id();
                if matches!(id.as_str(), "help" | "version") {
                    continue;
                }
                if argument.get_help().is_none() {
                    silent.push(format!("{name} {id}"));
                }
                if !argument.get_action().takes_values() {
                    continue;
                }
                let values = argument.get_possible_values();
                let values = values.iter().filter(|value| value.get_help().is_none());
                silent.extend(values.map(|value| format!("{name} {id}={}", value.get_name())));
            }
        }
        assert_eq!(silent, Vec::<String>::new());
    }

    #[test]
    fn only_operator_arguments_have_a_help_heading() {
        for verb in verbs(&Args::command()) {
            for argument in verb.get_arguments() {
                let is_operators = [
                    "operator_namespace",
                    "refused_hosts",
                    "dns_egress",
                    "cluster_domain",
                    "cluster_ranges",
                ]
                .contains(&argument.get_id().as_str());
                assert_eq!(
                    argument.get_help_heading().is_some(),
                    is_operators,
                    "{} {}",
                    verb.get_name(),
                    argument.get_id()
                );
            }
        }
    }

    #[test]
    fn every_verb_accepts_its_own_examples() {
        let prefix = "kubectl toolcrib ";
        for verb in verbs(&Args::command()).iter().skip(1) {
            let name = verb.get_name();
            let help = verb.get_after_help().expect(name).to_string();
            let (_, examples) = help.split_once("Examples:").expect(name);
            let lines = examples.lines().map(str::trim);
            let lines: Vec<&str> = lines.filter_map(|line| line.strip_prefix(prefix)).collect();
            assert!(!lines.is_empty(), "{name}");
            for line in lines {
                let command = line.split(['|', '>']).next().unwrap_or_default();
                let words = command
                    .split_whitespace()
                    .map(|word| word.trim_matches('\''));
                let parsed = Args::try_parse_from(std::iter::once("kubectl-toolcrib").chain(words));
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            }
        }
    }
}
