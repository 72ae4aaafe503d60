//! The export of the record to a collector.

mod behind;
mod collector;
mod content;
#[cfg(feature = "collector")]
mod real;
mod rig;
