//! The formats in which answers are printed.

use clap::ValueEnum;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and reviews
    Yaml,
}

/// How compiled objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The objects, one document each
    Yaml,
    /// The objects, as one List
    Json,
    /// One line per tool
    Table,
}
