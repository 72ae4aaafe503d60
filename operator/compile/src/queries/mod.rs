//! Answers to questions about compilations: differences, the reasons for a missing tool, the users
//! of a surface, and the objects that must still be read.

pub(crate) mod allowlist;
pub(crate) mod approval;
pub(crate) mod entitlements;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod plan;
pub(crate) mod topology;
pub(crate) mod view;
pub(crate) mod why;
