//! Failures of a command, and their exit codes.

use std::{fmt, process::ExitCode};

/// A failure, by its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The command line, or a file that it names, is not usable: exit code 2.
    Usage(anyhow::Error),
    /// The command failed: exit code 1.
    Failed(anyhow::Error),
}

impl Failure {
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::Usage(anyhow::anyhow!("{message}"))
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::from(1),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Prints the error and each of its causes once: some libraries repeat a cause in their own
/// message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Usage(error) | Failure::Failed(error)) = self;
        let mut last = String::new();
        for cause in error.chain() {
            let text = cause.to_string();
            if last.is_empty() {
                f.write_str(&text)?;
            } else if !last.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_inside_a_message_is_not_repeated() {
        let error = anyhow::anyhow!("no such file")
            .context("failed to read 'reeds': no such file")
            .context("no cluster to ask");
        assert_eq!(
            Failure::Failed(error).to_string(),
            "no cluster to ask: failed to read 'reeds': no such file"
        );
    }
}
