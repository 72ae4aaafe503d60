//! The base of the end-to-end tests and the demonstration: a local cluster, and its images.
//!
//! Not here: the tests (`tests/`) and the programs that stand in for other services (`src/bin/`).

pub mod approvals;
pub mod audit;
pub mod cargo;
pub mod cluster;
pub mod demo;
pub mod evidence;
pub mod images;
pub mod packages;
pub mod platform;
pub mod runner;
pub mod schemas;
pub mod services;
