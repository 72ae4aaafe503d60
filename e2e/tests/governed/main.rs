//! Tests the promises to users on a real node, with Toolcrib installed by Helm and used with
//! kubectl.
//!
//! Every test has a namespace of its own with a copy of the trading-desk example, so all run side
//! by side. They need the cluster that `TOOLCRIB_E2E_CLUSTER` names, with Toolcrib installed;
//! `./e2e/run test` provides it.
//!
//! Not here: tests that disturb others (`tests/outage`, `tests/uninstall.rs`).

mod admission;
mod approvals;
mod audited;
mod boards;
mod claw;
mod ending;
mod limits;
mod mcp;
mod mistakes;
mod offline;
mod pod_files;
mod proposed;
mod recorded;
mod shared;
mod sniffing;
mod starvation;
mod support;
mod trading_desk;
mod withdrawal;
