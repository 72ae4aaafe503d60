//! The verbs that read files and print.

pub mod compile;
pub mod explain;
pub mod import;
pub mod inject;
pub mod plan;
pub mod surface;
