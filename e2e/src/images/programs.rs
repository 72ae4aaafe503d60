//! Builds programs of the workspace that run in an empty image.
//!
//! Invariant: every returned program is linked statically; a dynamic program would start on the
//! builder's machine and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::sbom::{Crate, compiled_crates};
use super::{Program, TARGET, WORKSPACE};
use crate::cargo::cargo;
use crate::cluster::Home;
use crate::cluster::lock::{BUILD_DEADLINE, Lock};

/// How the programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For the demonstration and the tests: builds in a fraction of the time, and gives larger and
    /// slower programs with assertions.
    Quick,
    /// For published images.
    Release,
}

impl Profile {
    /// Returns the profile's name in `Cargo.toml`.
    fn name(self) -> &'static str {
        match self {
            Profile::Quick => "image-quick",
            Profile::Release => "image",
        }
    }
}

/// A program's path, and the crates that Cargo compiled for its package.
#[derive(Debug)]
pub struct BuiltProgram {
    pub path: PathBuf,
    pub crates: BTreeSet<Crate>,
}

/// Builds with Cargo, whose messages go to this process's standard error. Returns the programs in
/// the order of `programs`.
///
/// Waits while another process builds. The programs stay as they are until the lock is dropped.
///
/// Builds one package at a time. Cargo unifies the features of packages that it builds together,
/// and the mediator would contain those of the controller (2.5 MB).
pub fn cargo_build_static(
    home: &Home,
    profile: Profile,
    programs: &[Program],
) -> Result<(Vec<BuiltProgram>, Lock)> {
    let lock = Lock::take(&home.join("locks/image-programs"), BUILD_DEADLINE, |pid| {
        eprintln!("waiting for process {pid}, which builds programs of images");
    })?;
    // Uses a separate target folder: in the workspace's own, the different flags would rebuild
    // everything each time.
    let target = home.join("target-image");
    forget_other_checkout(&target, profile)?;
    let packages: BTreeSet<&str> = programs.iter().map(|program| program.package).collect();
    let mut compiled = BTreeMap::new();
    for package in packages {
        let binaries = programs
            .iter()
            .filter(|program| program.package == package)
            .map(|program| program.binary);
        compiled.insert(package, cargo_build(&target, profile, package, binaries)?);
    }
    let built: Result<Vec<BuiltProgram>> = programs
        .iter()
        .map(|program| {
            let path = target
                .join(TARGET)
                .join(profile.name())
                .join(program.binary);
            check_static(&path)?;
            Ok(BuiltProgram {
                path,
                crates: compiled[program.package].clone(),
            })
        })
        .collect();
    Ok((built?, lock))
}

/// Removes the workspace's own artifacts if another checkout built them. Cargo compares modification times
/// only, so it would reuse them for this checkout's older files.
fn forget_other_checkout(target: &Path, profile: Profile) -> Result<()> {
    let name = format!("checkout-{}", profile.name());
    let (stamp, own) = (target.join(name), WORKSPACE.as_bytes());
    match fs::read(&stamp) {
        Ok(checkout) if checkout == own => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("read {}", stamp.display())),
    }
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    let cleaned = cargo()
        .current_dir(WORKSPACE)
        .args(["clean", "--quiet", "--workspace"])
        .args(["--profile", profile.name(), "--target", TARGET])
        .env("CARGO_TARGET_DIR", target)
        .status()
        .context("start cargo")?;
    if !cleaned.success() {
        bail!("cargo clean ended with {cleaned}");
    }
    fs::write(&stamp, own).with_context(|| format!("write {}", stamp.display()))
}

fn cargo_build<'a>(
    target: &Path,
    profile: Profile,
    package: &str,
    binaries: impl Iterator<Item = &'a str>,
) -> Result<BTreeSet<Crate>> {
    let mut cargo = cargo();
    cargo
        .current_dir(WORKSPACE)
        .args(["build", "--profile", profile.name(), "--target", TARGET])
        .arg("--message-format=json-render-diagnostics")
        .args(["--package", package])
        .args(binaries.flat_map(|binary| ["--bin", binary]))
        .env("CARGO_TARGET_DIR", target)
        // Cargo sets this variable for a program that it runs (`cargo run`, `cargo test`), and it
        // would override our flags.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let told = cargo.output().context("start cargo")?;
    if !told.status.success() {
        bail!("cargo build of {package} ended with {}", told.status);
    }
    compiled_crates(&String::from_utf8(told.stdout)?, target)
}

/// Reads the ELF program headers: a `PT_INTERP` names the loader of a dynamic program.
fn check_static(path: &Path) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    match wants_loader(&bytes) {
        Some(false) => Ok(()),
        Some(true) => bail!("{} is not static: it names a loader", path.display()),
        None => bail!("{} is not a 64-bit ELF program", path.display()),
    }
}

fn wants_loader(elf: &[u8]) -> Option<bool> {
    const INTERP: [u8; 4] = 3_u32.to_le_bytes();
    elf.strip_prefix(b"\x7fELF\x02")?;
    let number = |at: usize| {
        Some(usize::from(u16::from_le_bytes(
            elf.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    let offset = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?);
    let (offset, size, count) = (usize::try_from(offset).ok()?, number(54)?, number(56)?);
    (0..count)
        .map(|header| {
            elf.get(offset + header * size..)?
                .get(..4)
                .map(|kind| kind == INTERP)
        })
        .try_fold(false, |any, this| Some(any || this?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_and_static_programs_are_distinguished() {
        let own = fs::read("/proc/self/exe").expect("readable");
        assert_eq!(wants_loader(&own), Some(true));
        assert_eq!(wants_loader(b"#!/bin/sh"), None);
    }
}
