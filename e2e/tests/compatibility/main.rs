//! The chart as other versions of Kubernetes and Helm read it: `./e2e/run compatibility`.
//!
//! In reading order: [`chart`] (rendering), [`kubernetes`] (schemas of each supported version), [`helm3`],
//! [`release`] (on a control plane of its own, so as root). Not here: the health of objects by kstatus
//! (`operator/tests/apiserver/objects/health.rs`), and claw-api's hooks, which `../first_install.rs` tests with both
//! versions of Helm.

mod chart;
mod helm3;
mod kubernetes;
#[path = "../support/plane.rs"]
mod plane;
mod release;
