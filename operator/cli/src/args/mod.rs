//! The command line: verbs and arguments. [`source`] has the arguments that several verbs share,
//! [`reading`], [`authoring`] and the files named after a verb have those of the verbs. [`advice`] handles
//! misplaced words, [`examples`] has the examples in the help, [`values`] has the parsers of structured
//! arguments.

mod advice;
mod approvals;
mod audit;
mod authoring;
mod discover;
mod doctor;
mod examples;
mod image;
mod propose;
mod reading;
mod run;
mod source;
mod suspend;
mod values;
mod why;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

pub use approvals::{ApprovalsArgs, DecideArgs};
pub use audit::{AuditArgs, AuditOutput, AuditQuery, AuditVerb, RecordArgs, VerifyArgs};
pub use authoring::{FromOpenApiArgs, FromStdioArgs, ImportArgs, SurfaceVerb};
pub use discover::DiscoverArgs;
pub use doctor::DoctorArgs;
pub use image::FromImageArgs;
pub use propose::{ProposeArgs, ProposeOutput};
pub use reading::{
    CompileArgs, ExplainArgs, InjectArgs, InspectArgs, PlanArgs, PodFormat, TestArgs, TreeArgs,
};
pub use run::RunArgs;
pub use source::{AssumedArgs, ClusterArgs, ConnectionArgs, FileArgs, OperatorArgs, SourceArgs};
pub use suspend::{AgentsArgs, SuspendArgs};
pub use values::{AddressTarget, DescriptionForm, LocalAddress, SecretFrom, ValueFrom};
pub use why::WhyArgs;

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
    /// Show what allowed one call of the record, and who wrote that; of a denied call, what would
    /// have allowed it
    #[command(after_help = examples::WHY)]
    Why(Box<WhyArgs>),
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
    /// Check the installation and the agents, and say what is wrong and what to do
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
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
