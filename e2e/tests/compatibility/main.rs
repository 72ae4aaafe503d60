//! The chart as other versions of Kubernetes and Helm read it: `./e2e/run compatibility`.
//!
//! In reading order: [`chart`] (rendering), [`kubernetes`] (schemas of each supported version), [`helm3`].
//! Not here: the health of objects by kstatus (`operator/tests/apiserver/objects/health.rs`), and the installation
//! with Helm 4 (`../first_install.rs`).

mod chart;
mod helm3;
mod kubernetes;
