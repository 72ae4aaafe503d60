//! Finds or builds `toolcrib-kube`, one binary that contains every Kubernetes program. Its folder
//! also contains `pause`, the first process of every pod.
//!
//! Not here: the sources (`e2e/kube/main.go`). Invariant: a folder in the cache is complete, and
//! its name is the digest of the sources that it was built from.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::layout::Home;
use super::lock::Lock;
use super::process::run;
use super::progress::Progress;

/// A cold build takes about ten minutes on two cores; another process may be building already.
const BUILD_DEADLINE: Duration = Duration::from_secs(45 * 60);
/// Makes the Go compiler collect garbage less often than by default: a fifth less CPU time, for
/// some hundred MB of memory.
const GOGC: &str = "400";
const REPORT_EVERY: Duration = Duration::from_secs(10);

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kube");
const SOURCES: [&str; 4] = ["go.mod", "go.sum", "main.go", "pause/main.go"];
const PROGRAM: &str = "toolcrib-kube";

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
    let module = Path::new(MODULE);
    let go_mod = fs::read_to_string(module.join("go.mod")).context("read e2e/kube/go.mod")?;
    let flags = linker_flags(&go_mod)?;
    let folder = home.join(format!("kube-{}", digest(module, &flags)?));
    let binary = folder.join(PROGRAM);
    if binary.is_file() {
        return Ok(binary);
    }
    let _lock = Lock::take(&home.join("locks/kube-build"), BUILD_DEADLINE, |pid| {
        progress.stage(format!(
            "waiting for process {pid}, which builds Kubernetes"
        ));
    })?;
    if !binary.is_file() {
        build(module, &flags, &folder, progress)?;
    }
    Ok(binary)
}

/// Returns the name of the folder: a digest of everything that the build reads, so a change gives
/// a new folder.
fn digest(module: &Path, flags: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for source in SOURCES {
        let content =
            fs::read(module.join(source)).with_context(|| format!("read e2e/kube/{source}"))?;
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    hash.update(flags);
    Ok(hex::encode(hash.finalize())[..16].to_string())
}

fn build(module: &Path, flags: &str, folder: &Path, progress: &Progress) -> Result<()> {
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOGC", GOGC)
            .args(arguments);
        command
    };
    progress.stage("Kubernetes: fetching its Go modules (once per machine, about 1 min)");
    let packages = run(&mut go(&["list", "-deps", "."]))
        .context("is Go installed and may it fetch modules?")?
        .lines()
        .count();

    progress.stage("Kubernetes: compiling (once per machine, about 10 min on two cores)");
    // An earlier build that was killed leaves this folder.
    let temporary = folder.with_extension("partial");
    if temporary.exists() {
        fs::remove_dir_all(&temporary).context("remove an unfinished build")?;
    }
    fs::create_dir_all(&temporary).with_context(|| format!("create {}", temporary.display()))?;
    let output = temporary.to_str().context("the home's path is not UTF-8")?;
    let mut child = go(&[
        "build",
        "-v",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        output,
        ".",
        "./pause",
    ])
    .stdin(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .context("start go")?;
    let lines = BufReader::new(child.stderr.take().context("go's output is piped")?).lines();
    let errors = report(lines, packages, progress)?;
    let status = child.wait().context("wait for go")?;
    if !status.success() {
        bail!(
            "go build in {} ended with {status}:\n{errors}",
            module.display()
        );
    }
    // Go names a program after the last element of its package's path.
    fs::rename(temporary.join("kube"), temporary.join(PROGRAM)).context("name the binary")?;
    fs::rename(&temporary, folder).with_context(|| format!("write {}", folder.display()))?;
    progress.stage("Kubernetes: compiled");
    Ok(())
}

/// Prints progress. `go build -v` prints the name of each package that it compiles; other lines
/// are error messages.
fn report(
    lines: impl Iterator<Item = std::io::Result<String>>,
    packages: usize,
    progress: &Progress,
) -> Result<String> {
    let mut errors = String::new();
    let mut compiled = 0;
    let mut reported = Instant::now();
    for line in lines {
        let line = line.context("read go's output")?;
        if line.contains(' ') {
            errors.push_str(&line);
            errors.push('\n');
            continue;
        }
        compiled += 1;
        if reported.elapsed() > REPORT_EVERY {
            reported = Instant::now();
            progress.stage(format!(
                "Kubernetes: compiled {compiled} of at most {packages} packages"
            ));
        }
    }
    Ok(errors)
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

fn required<'a>(go_mod: &'a str, module: &str) -> Result<&'a str> {
    go_mod
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(module)?
                .strip_prefix(' ')?
                .split(' ')
                .next()
        })
        .with_context(|| format!("e2e/kube/go.mod does not require {module}"))
}

fn major_minor(version: &str) -> Result<[&str; 2]> {
    let mut parts = version.trim_start_matches('v').split('.');
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => Ok([major, minor]),
        _ => bail!("{version} is not a version"),
    }
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
