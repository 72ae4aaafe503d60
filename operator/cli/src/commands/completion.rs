//! Shell completion of the command line, and of the names of agents, surfaces and tools in the
//! files or the cluster that the line names.
//!
//! The scripts that this module prints ask for completions. `kubectl` calls a program
//! `kubectl_complete-toolcrib` with the typed words, and reads lines `WORD<tab>HELP` and a last
//! line `:DIRECTIVE`.
//!
//! Invariant: a completion never fails and never waits long. If there is no name to offer, it
//! prints none, and the shell offers file names.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{ArgMatches, CommandFactory as _};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete as candidates};
use clap_complete::{Shell, generate};
use toolcrib_compile::{LoadResult, ObjectRef, Settings, inspect_surface};
use toolcrib_crds::{Agent, Surface, ToolApproval};

use crate::{
    args::{
        Args, AssumedArgs, COMPLETE, ClusterArgs, CompletionShell, ConnectionArgs, OperatorArgs,
        SourceArgs,
    },
    cluster::{Session, WithoutCluster},
    failure::Failure,
    print, sources,
};

/// kubectl's directive against file names, for arguments that take none.
const NO_FILES: u8 = 4;
const FILES: u8 = 0;

pub fn script(of: CompletionShell) -> Result<ExitCode, Failure> {
    let shell = match of {
        CompletionShell::Kubectl => {
            let text = format!("#!/bin/sh\nexec kubectl-toolcrib {COMPLETE} \"$@\"\n");
            print::to_stdout(&text).context("cannot write to standard output")?;
            return Ok(ExitCode::SUCCESS);
        }
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Elvish => Shell::Elvish,
        CompletionShell::Fish => Shell::Fish,
        CompletionShell::Powershell => Shell::PowerShell,
        CompletionShell::Zsh => Shell::Zsh,
    };
    let mut text = Vec::new();
    generate(shell, &mut Args::command(), "kubectl-toolcrib", &mut text);
    let text = String::from_utf8(text).context("the script is not text")?;
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

pub fn complete(words: &[OsString]) -> Result<ExitCode, Failure> {
    print::to_stdout(&answer(words)).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the output for a line whose last word is incomplete.
fn answer(words: &[OsString]) -> String {
    let finished = &words[..words.len().saturating_sub(1)];
    let line = |words: &[OsString]| {
        let program = OsString::from("kubectl-toolcrib");
        std::iter::once(program)
            .chain(words.iter().cloned())
            .collect::<Vec<_>>()
    };
    let place = LineContext::of(&line(finished));
    let mut words = line(words);
    if words.len() == 1 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    // Flags are offered only for a word that begins with `-`, as in kubectl.
    let is_flag = |word: &str| word.starts_with('-');
    let wants_flag = words[last].to_str().is_some_and(is_flag);
    let here = std::env::current_dir().ok();
    let found = candidates(&mut with_names(&place), words, last, here.as_deref());
    let mut text = String::new();
    let mut directive = FILES;
    for candidate in found.unwrap_or_default() {
        let Some(value) = candidate
            .get_value()
            .to_str()
            .filter(|value| is_word(value) && is_flag(value) == wants_flag)
        else {
            continue;
        };
        let help = candidate
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        directive = NO_FILES;
        text += &format!("{value}\t{help}\n");
    }
    text + &format!(":{directive}\n")
}

/// Whether the text is one word: names in files may be anything, and an answer is a word per line.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control() || c.is_whitespace())
}

/// Returns the command line with the names that the line's files or cluster have.
fn with_names(place: &LineContext) -> clap::Command {
    let given = |names: fn(&LineContext) -> BTreeSet<String>| {
        let place = place.clone();
        ArgValueCandidates::new(move || {
            names(&place)
                .into_iter()
                .map(CompletionCandidate::new)
                .collect()
        })
    };
    let mut command = Args::command();
    for (verb, argument, names) in [
        (
            "compile",
            "agent",
            agents as fn(&LineContext) -> BTreeSet<String>,
        ),
        ("explain", "agent", agents),
        ("explain", "tool", tools),
        ("inspect", "surface", surfaces),
        ("plan", "agent", agents),
        ("propose", "agent", agents),
        ("run", "agent", agents),
        ("suspend", "agent", agents),
        ("resume", "agent", agents),
        ("approvals", "approval", approvals),
        ("approve", "approval", approvals),
        ("deny", "approval", approvals),
    ] {
        let values = given(names);
        command = command.mut_subcommand(verb, |verb| {
            verb.mut_arg(argument, |argument| argument.add(values))
        });
    }
    with_namespaces(command, &given(namespaces))
}

/// Adds the namespaces to every verb that has the argument.
fn with_namespaces(command: clap::Command, values: &ArgValueCandidates) -> clap::Command {
    let has_namespace = command
        .get_arguments()
        .any(|argument| argument.get_id() == "namespace");
    let command = match has_namespace {
        true => command.mut_arg("namespace", |argument| argument.add(values.clone())),
        false => command,
    };
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    verbs.into_iter().fold(command, |command, verb| {
        command.mut_subcommand(verb, |verb| with_namespaces(verb, values))
    })
}

/// The parts of the typed line that decide where names are looked up.
#[derive(Clone, Default)]
struct LineContext {
    source: SourceArgs,
    /// The agent that `explain` is about.
    agent: Option<String>,
}

impl LineContext {
    fn of(line: &[OsString]) -> Self {
        let parsed = Args::command()
            .ignore_errors(true)
            .try_get_matches_from(line);
        let Some((_, mut verb)) = parsed
            .ok()
            .and_then(|mut parsed| parsed.remove_subcommand())
        else {
            return Self::default();
        };
        // `surface` has verbs of its own.
        while let Some((_, below)) = verb.remove_subcommand() {
            verb = below;
        }
        Self {
            source: source(&verb),
            agent: verb.try_get_one::<String>("agent").ok().flatten().cloned(),
        }
    }

    fn loaded(&self) -> Option<LoadResult> {
        let namespace = self.source.cluster.namespace.as_deref();
        sources::loaded_into(&self.source.paths, namespace, Settings::default()).ok()
    }
}

/// Reads the source arguments, of which each verb has some.
fn source(verb: &ArgMatches) -> SourceArgs {
    let text = |name: &str| verb.try_get_one::<String>(name).ok().flatten().cloned();
    let flag = |name: &str| verb.try_get_one::<bool>(name).ok().flatten() == Some(&true);
    // The files of `propose -f` are records, and those of `--against` have its objects.
    let files = ["paths", "against"].map(|name| verb.try_get_many::<PathBuf>(name).ok());
    let paths = files.into_iter().flatten().next().flatten();
    let kubeconfig = verb.try_get_one::<PathBuf>("kubeconfig").ok().flatten();
    let groups = verb.try_get_many::<String>("impersonate_groups").ok();
    let groups = groups.flatten();
    SourceArgs {
        paths: paths.into_iter().flatten().cloned().collect(),
        // Secrets do not change the names.
        assumed: AssumedArgs::default(),
        cluster: ClusterArgs {
            namespace: text("namespace"),
            all_namespaces: flag("all_namespaces"),
            connection: ConnectionArgs {
                context: text("context"),
                kubeconfig: kubeconfig.cloned(),
                impersonate: text("impersonate"),
                impersonate_groups: groups.into_iter().flatten().cloned().collect(),
            },
        },
        // The operator's settings do not change the names.
        operator: OperatorArgs::default(),
    }
}

fn session(place: &LineContext) -> Result<Session, Failure> {
    let SourceArgs {
        cluster, operator, ..
    } = &place.source;
    Session::open(cluster, operator, WithoutCluster::Nothing)
}

fn agents(place: &LineContext) -> BTreeSet<String> {
    if place.source.paths.is_empty() {
        return session(place)
            .map(|session| session.names::<Agent>())
            .unwrap_or_default();
    }
    let loaded = place.loaded();
    let names = loaded.iter().flat_map(|loaded| loaded.inputs.agents());
    names.map(|(key, _)| key.name.clone()).collect()
}

/// Returns the names of calls that wait, and of those that were decided; files have none.
fn approvals(place: &LineContext) -> BTreeSet<String> {
    session(place)
        .map(|session| session.names::<ToolApproval>())
        .unwrap_or_default()
}

fn surfaces(place: &LineContext) -> BTreeSet<String> {
    if place.source.paths.is_empty() {
        return session(place)
            .map(|session| session.names::<Surface>())
            .unwrap_or_default();
    }
    let loaded = place.loaded();
    let names = loaded.iter().flat_map(|loaded| loaded.inputs.surfaces());
    names.map(|(key, _)| key.name.clone()).collect()
}

/// Returns the cluster's namespaces, or those of the objects in the files.
fn namespaces(place: &LineContext) -> BTreeSet<String> {
    if place.source.paths.is_empty() {
        return session(place)
            .map(|session| session.namespaces())
            .unwrap_or_default();
    }
    let loaded = place.loaded();
    let agents = loaded.iter().flat_map(|loaded| loaded.inputs.agents());
    let surfaces = loaded.iter().flat_map(|loaded| loaded.inputs.surfaces());
    let keys = agents
        .map(|(key, _)| key)
        .chain(surfaces.map(|(key, _)| key));
    keys.map(|key| key.namespace.clone()).collect()
}

/// Returns the tools of the agent earlier in the line, under the agent's aliases of its surfaces.
/// In a cluster they come from the agent's status: reading all surfaces would keep the user
/// waiting.
fn tools(place: &LineContext) -> BTreeSet<String> {
    if place.source.paths.is_empty() {
        return session(place)
            .map(|session| session.tools(place.agent.as_deref()))
            .unwrap_or_default();
    }
    let Some(loaded) = place.loaded() else {
        return BTreeSet::new();
    };
    let agents = loaded
        .inputs
        .agents()
        .filter(|(key, _)| place.agent.as_ref().is_none_or(|agent| *agent == *key.name));
    let mut names = BTreeSet::new();
    for (key, agent) in agents {
        for entry in &agent.spec.surfaces {
            let namespace = entry.namespace.as_deref().unwrap_or(&key.namespace);
            let surface = ObjectRef::new(namespace, entry.name.as_str());
            let shown = entry.alias.as_deref().unwrap_or(&entry.name);
            for tool in inspect_surface(&loaded.inputs, &surface)
                .into_iter()
                .flat_map(|view| view.tools)
            {
                names.insert(format!("{shown}.{}", tool.name));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FILES: &str = "
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: reed, namespace: pond}
spec:
  url: https://reed.test
  descriptor:
    version: 2
    tools: [{name: look, inputSchema: {type: object}, http: {method: GET, path: /look}}]
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: reed, as: den}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: heron, namespace: pond}
spec: {}
";

    /// Checks the offered words; `:` and the directive come last.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pond.yaml");
        fs::write(&file, FILES).unwrap();
        let line = line.replace("FILE", file.to_str().unwrap());
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let answer = answer(&words);
        let offered: Vec<&str> = answer
            .lines()
            .map(|line| line.split('\t').next().unwrap())
            .collect();
        assert_eq!(offered, expected, "{line}");
    }

    #[test]
    fn matching_words_are_offered() {
        check("insp", &["inspect", ":4"]);
        check(
            "surface from",
            &["from-openapi", "from-stdio", "from-image", ":4"],
        );
        check("plan -f x --fail-on-l", &["--fail-on-loss", ":4"]);
        check("tree -o ", &["table", "json", "yaml", ":4"]);
    }

    #[test]
    fn names_in_the_files_are_offered() {
        check("explain -f FILE ", &["heron", "otter", ":4"]);
        check("explain -f FILE o", &["otter", ":4"]);
        check("explain -f FILE otter ", &["den.look", ":4"]);
        check("inspect -f FILE ", &["reed", ":4"]);
        check("run -f FILE --agent h", &["heron", ":4"]);
        check("propose -f record --against FILE o", &["otter", ":4"]);
        check("explain -f FILE -n ", &["pond", ":4"]);
        check("surface discover -f FILE -n ", &["pond", ":4"]);
    }

    #[test]
    fn without_an_answer_the_shell_completes() {
        check("explain -f /no/such/file ", &[":0"]);
        check("inspect --kubeconfig /no/such/file ", &[":0"]);
    }
}
