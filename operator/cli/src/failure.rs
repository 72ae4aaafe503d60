//! How a command ends when it cannot do what it was asked to.

use std::{fmt, process::ExitCode};

/// The two ways, by their exit codes.
#[derive(Debug)]
pub enum Failure {
    /// The command line, or the files it names, are not usable: 2.
    Usage(anyhow::Error),
    /// What was asked for failed: 1.
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

/// The error and each of its causes, once: some libraries write a cause into their own message too.
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
    fn a_cause_that_a_message_ends_with_is_not_written_again() {
        let error = anyhow::anyhow!("no such file")
            .context("failed to read 'reeds': no such file")
            .context("no cluster to ask");
        assert_eq!(
            Failure::Failed(error).to_string(),
            "no cluster to ask: failed to read 'reeds': no such file"
        );
    }
}
