//! Canonical JSON, and digests of it.

pub mod digest;
pub mod normalize;
