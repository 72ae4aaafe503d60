//! The four files: read, checked, swapped, and what is in force of them now.
//!
//! In reading order: [`version`] turns bytes into one loaded version; [`directory`] is
//! the IO under it; [`standing`] says what each event does (a table of `contract.md`,
//! as a pure function); [`current`] is what everybody else asks; [`watch`] drives it.
//!
//! Invariants: one read is one version, never a mixture; nothing here prints a file's
//! content; the effective authority is what is loaded ∩ the floor.

pub mod current;
pub mod directory;
pub mod identity;
pub mod standing;
pub mod version;
pub mod watch;

pub use current::{Current, Effective, Older, Unavailable};
pub use standing::{LoadState, Observation};
pub use version::{ConfigError, Version};
