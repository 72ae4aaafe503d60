//! Questions about compilations: differences, reasons for a missing tool, users of a surface, and
//! objects that are still to be read.

pub(crate) mod allowlist;
pub(crate) mod entitlements;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod plan;
pub(crate) mod topology;
pub(crate) mod view;
pub(crate) mod why;
