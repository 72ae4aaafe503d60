//! Pages of the reference as text, and whether the committed ones are those.
//!
//! What a page says comes from the crate that it describes: `tests/reference` has all of
//! them but the command line's of `kubectl toolcrib`, whose definition only its own tests
//! can see.

use std::path::Path;

/// The command that writes every page.
pub const COMMAND: &str =
    "UPDATE_EXPECT=1 cargo test -p toolcrib-docs -p kubectl-toolcrib reference";

/// Compares the committed page with `text`, or writes it (`UPDATE_EXPECT=1`).
pub fn compare(page: &str, text: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference");
    toolcrib_golden::compare(&folder.join(page), text, COMMAND)
}

/// A cell of a table: one line, and no bar that would end it.
pub fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// A command with all its verbs, each under a heading of `level`.
pub fn command(command: &clap::Command, level: usize) -> String {
    let mut built = command.clone();
    built.build();
    let mut text = String::new();
    section(&built, level, &mut text);
    text
}

fn section(command: &clap::Command, level: usize, text: &mut String) {
    let name = command
        .get_bin_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let heading = "#".repeat(level.min(6));
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let about = about.trim_end_matches('.');
    text.push_str(&format!("{heading} `{name}`\n\n{about}.\n\n"));
    text.push_str(&arguments(command));
    if let Some(after) = command.get_after_help() {
        text.push_str(&format!("```text\n{after}\n```\n\n"));
    }
    for verb in command.get_subcommands() {
        if !verb.is_hide_set() && verb.get_name() != "help" {
            section(verb, level + 1, text);
        }
    }
}

/// The table of a command's own flags and arguments; empty if it has none.
fn arguments(command: &clap::Command) -> String {
    let rows: Vec<String> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
        .map(row)
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "| flag or argument | variable | default | |\n|---|---|---|---|\n{}\n",
        rows.concat()
    )
}

fn row(argument: &clap::Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let values: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    let value = values.join(" ");
    let mut names: Vec<String> = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("`-{short}`"));
    }
    if let Some(long) = argument.get_long() {
        names.push(if takes_value {
            format!("`--{long} {value}`")
        } else {
            format!("`--{long}`")
        });
    }
    if names.is_empty() {
        names.push(format!("`{value}`"));
    }
    let variable = argument
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()))
        .unwrap_or_default();
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .filter(|_| takes_value)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
        .map(|value| format!("`{value}`"))
        .collect();
    let mut help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let choices: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| takes_value && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !choices.is_empty() {
        help = format!("{}: {}", help.trim_end_matches('.'), choices.join(", "));
    }
    if argument.is_required_set() {
        help = format!("{}. Required", help.trim_end_matches('.'));
    }
    format!(
        "| {} | {variable} | {} | {} |\n",
        names.join(", "),
        defaults.join(" "),
        cell(&help)
    )
}
