//! Finds or builds the programs of others with which the chart and the kinds are tested for compatibility:
//! Helm 3, and kstatus, which computes the health of objects.
//!
//! Not here: the source of kstatus' program (`e2e/compatibility/main.go`), and Helm 4, which is one of
//! [`kube_binary`](super::kube_binary)'s programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::go_program::{GoModule, major_minor, required};
use super::layout::Home;
use super::progress::Progress;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/compatibility");
const HELM: &str = "helm.sh/helm/v3";

/// Programs of others, by their paths.
#[derive(Clone, Debug)]
pub struct CompatibilityPrograms {
    pub kstatus: PathBuf,
    pub helm3: PathBuf,
}

/// Returns the cached programs, else new builds.
pub fn compatibility_programs(home: &Home, progress: &Progress) -> Result<CompatibilityPrograms> {
    let folder = Path::new(MODULE);
    let go_mod = fs::read_to_string(folder.join("go.mod")).context("read go.mod of Helm 3")?;
    let module = GoModule {
        name: "compatibility",
        title: "Helm 3 and kstatus",
        takes: "about 5 min on two cores",
        folder,
        sources: &["go.mod", "go.sum", "main.go"],
        packages: &[".", &format!("{HELM}/cmd/helm")],
        not_inlined: &[],
        linker_flags: &linker_flags(&go_mod)?,
        built: "compatibility",
        program: "kstatus",
    };
    let kstatus = module.binary(home, progress)?;
    Ok(CompatibilityPrograms {
        helm3: kstatus.with_file_name("helm"),
        kstatus,
    })
}

/// Returns the linker flags that set Helm's version, and the version of Kubernetes for which it renders without a
/// cluster: as in Helm's own Makefile, that of its Kubernetes client. Without them it renders for
/// Kubernetes 1.20, which the chart refuses.
fn linker_flags(go_mod: &str) -> Result<String> {
    let helm = required(go_mod, HELM)?;
    let [_, minor] = major_minor(required(go_mod, "k8s.io/client-go")?)?;
    let mut flags = format!("-s -w -X {HELM}/internal/version.version={helm}");
    for package in ["pkg/chartutil", "pkg/lint/rules"] {
        flags.push_str(&format!(
            " -X {HELM}/{package}.k8sVersionMajor=1 -X {HELM}/{package}.k8sVersionMinor={minor}"
        ));
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helm_reports_the_versions_of_go_mod() {
        let go_mod =
            "require (\n\thelm.sh/helm/v3 v3.9.8 // indirect\n\tk8s.io/client-go v0.23.4\n)\n";
        let flags = linker_flags(go_mod).expect("both are required");
        for part in [
            "-X helm.sh/helm/v3/internal/version.version=v3.9.8",
            "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=23",
            "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 ",
        ] {
            assert!(flags.contains(part), "{part} not in {flags}");
        }
    }
}
