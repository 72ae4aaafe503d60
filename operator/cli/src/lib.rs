//! `kubectl toolcrib`: the compiler, the injection and the mediator, from files or from a
//! cluster.
//!
//! This crate does the IO: it reads files and the API server, prints, and starts processes.
//! `toolcrib_compile`, which the operator runs too, decides what the objects mean, so the output
//! equals the objects in a cluster. The program is a library so that `e2e/growth` can call
//! [`foreign`].
//!
//! Exit codes: 0; 1 if a diagnostic of severity error was printed, or the command failed; 2 for a
//! wrong command line, or files that cannot be read; 3 where the help of a verb says so. `run` exits with
//! the code of its program.

mod args;
mod authoring;
mod cluster;
mod commands;
mod doctor;
mod failure;
#[doc(hidden)]
pub mod foreign;
mod operator;
mod policy;
mod print;
mod propose;
mod record;
mod run;
mod sources;

use std::process::ExitCode;

use args::{Args, AuditVerb, COMPLETE, SurfaceVerb, Verb};
use failure::Failure;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let outcome = if words.next().is_some_and(|word| word == COMPLETE) {
        commands::completion::complete(&words.collect::<Vec<_>>())
    } else {
        answer(Args::of_process().verb)
    };
    outcome.unwrap_or_else(|failure: Failure| {
        eprintln!("error: {failure}");
        failure.exit_code()
    })
}

fn answer(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Compile(args) => commands::compile::compile(&args),
        Verb::Inject(args) => commands::inject::inject(&args),
        Verb::Explain(args) => commands::explain::explain(&args),
        Verb::Import(args) => commands::authoring::import::import(&args),
        Verb::Inspect(args) => commands::inspect::inspect(&args),
        Verb::Tree(args) => commands::tree::tree(&args),
        Verb::Plan(args) => commands::plan::plan(&args),
        Verb::Test(args) => policy::test(&args),
        Verb::Audit(args) => match &args.verb {
            Some(AuditVerb::Verify(args)) => commands::audit::verify::verify(args),
            None => commands::audit::audit(&args.query),
        },
        Verb::Why(args) => commands::why::why(&args),
        Verb::Propose(args) => propose::propose(&args),
        Verb::Approvals(args) => commands::approvals::approvals(&args),
        Verb::Approve(args) => commands::approvals::approve(&args),
        Verb::Deny(args) => commands::approvals::deny(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Suspend(args) => commands::suspend::suspend(&args),
        Verb::Resume(args) => commands::suspend::resume(&args),
        Verb::Surface(SurfaceVerb::FromOpenapi(args)) => {
            commands::authoring::surface::from_openapi(&args)
        }
        Verb::Surface(SurfaceVerb::FromStdio(args)) => {
            commands::authoring::surface::from_stdio(&args)
        }
        Verb::Surface(SurfaceVerb::FromImage(args)) => {
            commands::authoring::image::from_image(&args)
        }
        Verb::Surface(SurfaceVerb::Discover(args)) => {
            commands::authoring::discover::discover(&args)
        }
        Verb::Run(args) => run::run(args),
        Verb::Completion { shell } => commands::completion::script(shell),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const INTRODUCTION: &str = "\
# kubectl toolcrib

A kubectl plugin: the program `kubectl-toolcrib` on the `PATH`. Verbs that take `-f` need no
cluster. Results go to standard output, findings to standard
error. Exit codes: 0; 1 if a finding is an error, or the command failed; 2 for a
wrong command line, or files that cannot be read. `run` exits with the code of its program.

";

    #[test]
    fn reference() {
        let text = INTRODUCTION.to_owned() + &toolcrib_docs::command(&Args::command(), 2);
        toolcrib_docs::compare("cli.md", &text).unwrap();
    }
}
