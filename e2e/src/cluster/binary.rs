//! Finds or builds `toolcrib-kube`, one binary that contains every Kubernetes program. Its folder
//! also contains `pause`, the first process of every pod.
//!
//! Not here: the sources (`e2e/kube/main.go`), and the build, which is that of every Go program here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::go_program::{GoModule, major_minor, required};
use super::layout::Home;
use super::progress::Progress;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kube");

/// Packages that do little at run time. Those of the API server and of etcd are not here, since most
/// tests wait for these two programs.
const NOT_INLINED: [&str; 15] = [
    "github.com/google/cadvisor/...",
    "github.com/quic-go/quic-go/...",
    "github.com/tetratelabs/wazero/...",
    "helm.sh/helm/v4/...",
    "k8s.io/client-go/applyconfigurations/...",
    "k8s.io/client-go/informers/...",
    "k8s.io/client-go/kubernetes/...",
    "k8s.io/client-go/listers/...",
    "k8s.io/kubectl/...",
    "k8s.io/kubernetes/pkg/controller/...",
    "k8s.io/kubernetes/pkg/generated/...",
    "k8s.io/kubernetes/pkg/kubelet/...",
    "k8s.io/kubernetes/pkg/scheduler/...",
    "k8s.io/kubernetes/pkg/volume/...",
    "sigs.k8s.io/kustomize/...",
];

/// Returns the binary named by `TOOLCRIB_KUBE`, else the cached one, else a new build.
pub fn kube_binary(home: &Home, progress: &Progress) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("TOOLCRIB_KUBE") {
        let named = PathBuf::from(named);
        if !named.is_file() {
            bail!(
                "TOOLCRIB_KUBE names {}, which is not a file",
                named.display()
            );
        }
        return Ok(named);
    }
    let folder = Path::new(MODULE);
    let go_mod = fs::read_to_string(folder.join("go.mod")).context("read e2e/kube/go.mod")?;
    let module = GoModule {
        name: "kube",
        title: "Kubernetes",
        takes: "about 10 min on two cores",
        folder,
        sources: &["go.mod", "go.sum", "main.go", "pause/main.go"],
        packages: &[".", "./pause"],
        not_inlined: &NOT_INLINED,
        linker_flags: &linker_flags(&go_mod)?,
        built: "kube",
        program: "toolcrib-kube",
    };
    module.binary(home, progress)
}

/// Returns the linker flags that set the programs' versions. Upstream builds get their versions
/// from git, ours from `go.mod`. Without versions the API server reports v0.0.0, which kubectl and
/// Helm act on.
fn linker_flags(go_mod: &str) -> Result<String> {
    let kubernetes = required(go_mod, "k8s.io/kubernetes")?;
    let helm = required(go_mod, "helm.sh/helm/v4")?;
    let [major, minor] = major_minor(kubernetes)?;
    let mut flags = String::from("-s -w");
    for package in [
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
    ] {
        let values = [
            ("gitVersion", kubernetes),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
            // The module proxy does not tell the commit of a version.
            ("gitCommit", "unknown"),
        ];
        for (name, value) in values {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags.push_str(&format!(
        " -X helm.sh/helm/v4/internal/version.version={helm}"
    ));
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_report_the_versions_of_go_mod() {
        let go_mod = "require (\n\thelm.sh/helm/v4 v4.9.8\n\tk8s.io/kubernetes v1.23.4\n)\n";
        let flags = linker_flags(go_mod).expect("both are required");
        for part in [
            "-X k8s.io/component-base/version.gitVersion=v1.23.4",
            "-X k8s.io/component-base/version.gitMinor=23",
            "-X helm.sh/helm/v4/internal/version.version=v4.9.8",
        ] {
            assert!(flags.contains(part), "{part} not in {flags}");
        }
    }

    #[test]
    fn every_staging_module_is_replaced_by_the_required_version() {
        let go_mod = fs::read_to_string(Path::new(MODULE).join("go.mod")).expect("readable");
        let staging = required(&go_mod, "k8s.io/kubernetes")
            .expect("required")
            .replacen("v1.", "v0.", 1);
        let replaced = go_mod.lines().filter_map(|line| line.split_once(" => "));
        for (_, to) in replaced {
            assert!(to.ends_with(&format!(" {staging}")), "{to}, want {staging}");
        }
    }
}
