//! The verbs that read objects and print an answer.

pub mod approvals;
pub mod audit;
pub mod authoring;
pub mod compile;
pub mod completion;
pub mod explain;
pub mod inject;
pub mod inspect;
pub mod plan;
pub mod suspend;
pub mod tree;
pub mod why;
