//! The four files: reads, checks and swaps them, and keeps the configuration in force.
//!
//! In reading order: [`version`] turns bytes into one version; [`directory`] is the IO under it;
//! [`load_state`] is the effect of each event, as a pure function;
//! [`current`] answers all other modules; [`watch`] drives it.
//!
//! Invariants: one read is one version, never a mixture; no file content is printed; the effective
//! authority is the loaded files ∩ the allowlist.

pub mod current;
pub mod directory;
pub mod identity;
pub mod load_state;
pub mod version;
pub mod watch;

pub use current::{CurrentConfig, EffectiveConfig, OlderAnswer, Unavailable};
pub use load_state::{LoadState, Observation};
pub use version::{ConfigError, Version};
