//! The verbs that read objects and print an answer.

pub mod audit;
pub mod compile;
pub mod discover;
pub mod explain;
pub mod image;
pub mod import;
mod in_cluster;
pub mod inject;
pub mod inspect;
pub mod plan;
pub mod review;
pub mod surface;
pub mod suspend;
pub mod tree;
pub mod verify;
