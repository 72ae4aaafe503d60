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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(error) | Failure::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}
