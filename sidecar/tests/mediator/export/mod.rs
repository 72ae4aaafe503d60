//! The export of the record to a collector.

mod behind;
mod collector;
mod content;
mod rig;
