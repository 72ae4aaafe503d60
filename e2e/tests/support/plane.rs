//! A control plane of a test's own, without CustomResourceDefinitions and without pods, and a release of the chart on it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::cluster::{Cluster, Extent, Name, Progress};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{Platform, repository};

pub const RELEASE: &str = "crib";
pub const NAMESPACE: &str = "crib-system";

/// A control plane. It is taken down at the end, even if the test fails.
pub struct Plane {
    name: Name,
    cluster: Cluster,
    /// Helm, if it is not the pinned Helm 4.
    pub helm: Option<OsString>,
    /// Dropped before the cluster is taken down.
    evidence: Option<Evidence>,
}

impl Plane {
    pub fn up(name: &str, helm: Option<OsString>) -> Result<Plane> {
        let name: Name = name.parse()?;
        Cluster::down(&name, &Progress::silent())?;
        let cluster = Cluster::up_to(&name, Extent::ControlPlane, &Progress::stderr())?;
        let evidence = Evidence::of(&Platform::on(cluster.clone()), &[NAMESPACE]);
        Ok(Plane {
            name,
            cluster,
            helm,
            evidence: Some(evidence),
        })
    }

    /// Runs Helm in the release's namespace.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = match &self.helm {
            None => self.cluster.helm(),
            Some(helm) => {
                let mut command = Command::new(helm);
                command.env("KUBECONFIG", self.cluster.kubeconfig());
                command
            }
        };
        run(command.args(arguments).args(["--namespace", NAMESPACE]))
    }

    /// Installs or upgrades the release with these settings, by the command of docs/claw-api.md.
    pub fn upgrade(&self, settings: &[&str]) -> Result<()> {
        let chart = repository().join("charts/toolcrib");
        let chart = chart.to_string_lossy();
        let mut arguments = vec!["upgrade", "--install", RELEASE, &chart];
        arguments.extend(["--create-namespace", "--reset-then-reuse-values"]);
        arguments.extend(settings);
        self.helm(&arguments).map(drop)
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        run(self.cluster.kubectl().args(arguments))
    }

    /// One object or list as JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["get", "--output=json"];
        all.extend(arguments);
        serde_json::from_str(&self.kubectl(&all)?).context("kubectl's JSON")
    }

    /// Marks the test as passed. Without this call, the objects and events of the release's
    /// namespace are printed.
    pub fn passed(&self) -> Result<()> {
        self.evidence.iter().try_for_each(Evidence::passed)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.evidence.take());
        if let Err(error) = Cluster::down(&self.name, &Progress::silent()) {
            eprintln!("cluster {} stays up: {error:#}", self.name);
        }
    }
}
