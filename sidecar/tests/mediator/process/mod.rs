//! The built program, its limits, and what it records.

pub mod binary;
mod kills;
mod limits;
mod otel_names;
mod probe;
mod record;
mod telemetry;
