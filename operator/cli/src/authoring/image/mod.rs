//! Images as Surfaces for review: the reading part of `surface from-image`.
//!
//! Reading order: [`described`] (finds the file with the descriptor), [`registry`] (reads the
//! image's parts), [`layer`] (finds one file in one layer; pure), [`credential`] (the registry's
//! credential from a docker config; pure), [`descriptor`] (the descriptor for review, and its
//! changes; pure).
//!
//! Not here: running an image, or unpacking one.
//!
//! Invariant: bytes are parsed only after their digest was verified, and all bytes that a registry
//! sends are bounded.

pub mod credential;
pub mod described;
pub mod descriptor;
pub mod layer;
pub mod platform;
pub mod registry;
