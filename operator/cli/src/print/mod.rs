//! The output for the user.

mod annotated;
mod call;
mod color;
mod diagnostics;
mod documents;
mod format;
mod objects;
mod plain;
mod table;

pub use annotated::{Note, Notes, annotated};
pub use call::{call_arguments, labelled};
pub use color::Color;
pub use diagnostics::{Findings, findings};
pub use documents::{Document, commented, documents, is_unprintable};
pub use format::{Format, Output};
pub use objects::objects;
pub use plain::{brief, plain};
pub use table::{columns, table};

use std::io::Write as _;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use toolcrib_compile::yaml;

/// Asks a question on standard error. True only if the user agrees.
pub fn confirm(question: &str) -> anyhow::Result<bool> {
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes all of `text`. A reader that has closed the pipe (`| head`) is no error.
pub fn to_stdout(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a value as JSON or YAML, with a newline at the end.
pub fn value(value: &impl Serialize, output: Output) -> anyhow::Result<String> {
    // The conversion to a value is needed because raw JSON text has no form in YAML.
    let value = serde_json::to_value(value)?;
    match output {
        Output::Json | Output::Table => Ok(serde_json::to_string_pretty(&value)? + "\n"),
        Output::Yaml => yaml::to_string(&value).context("the answer does not print as YAML"),
    }
}

/// The message in the error of a call's result.
pub fn message_of(error: &Value) -> Option<String> {
    error["message"].as_str().map(str::to_owned)
}
