//! The base of the end-to-end tests and the demonstration: a local cluster, and the images in
//! it.
//!
//! Not here: the tests (`tests/`) and the programs that play the other parts (`src/bin/`).

pub mod audit;
pub mod cluster;
pub mod demo;
pub mod desk;
pub mod evidence;
pub mod images;
pub mod model;
pub mod packages;
pub mod platform;
pub mod runner;
pub mod serving;
