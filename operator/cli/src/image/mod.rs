//! Images as Surfaces for review: what `surface from-image` reads of one.
//!
//! In reading order: [`described`] (which file says what the image's service offers),
//! [`registry`] (the image's parts, from a registry), [`layer`] (one file of one layer; pure),
//! [`credential`] (the registry's, from a docker config; pure), [`descriptor`] (what was said,
//! for review, and what changed; pure).
//!
//! Not here: running an image, or unpacking one.
//!
//! Invariant: no byte is looked into before its digest was verified, and whatever a registry
//! sends, what is kept of it has a bound.

pub mod credential;
pub mod described;
pub mod descriptor;
pub mod layer;
pub mod registry;
