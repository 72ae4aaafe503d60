//! Advice about a word that is not a verb here: the place or the program where it is one. The
//! parser itself suggests verbs with a similar spelling.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};

/// Verbs of kubectl, each with the arguments that follow it.
const OF_KUBECTL: [(&str, &str); 6] = [
    ("apply", "-f FILE"),
    ("create", "-f FILE"),
    ("delete", "agent NAME"),
    ("describe", "agent NAME"),
    ("edit", "agent NAME"),
    ("get", "agents,surfaces,toolgrants"),
];

/// Replaces the parser's suggestion by a better one, if there is one.
pub fn with_advice(mut error: Error, command: &Command) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let Some(advice) = advice(command, word) else {
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let advice = ContextValue::StyledStrs(vec![advice.into()]);
    error.insert(ContextKind::Suggested, advice);
    error
}

fn advice(command: &Command, word: &str) -> Option<String> {
    let name = command.get_bin_name()?;
    if let Some((verb, rest)) = OF_KUBECTL.iter().find(|(verb, _)| *verb == word) {
        return Some(format!(
            "kubectl itself has this verb: kubectl {verb} {rest}"
        ));
    }
    let above = command
        .get_subcommands()
        .find(|verb| verb.find_subcommand(word).is_some())?;
    Some(format!(
        "did you mean '{name} {} {word}'?",
        above.get_name()
    ))
}
