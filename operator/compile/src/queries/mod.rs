//! Questions about compilations: what changes, why a tool is not given, who uses a surface, and
//! which objects are still to be read.

pub(crate) mod allowlist;
pub(crate) mod entitlements;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod plan;
pub(crate) mod topology;
pub(crate) mod view;
pub(crate) mod why;
