//! A runner image: Python with the OpenAI SDK, a shell and curl, from the machine's own
//! Debian packages and a virtual environment.
//!
//! Not here: the runner's program, which is in a pod's manifest. Invariant: the image contains
//! every shared library that its files need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::machine::{add_libraries, add_tree};
use crate::cluster::image_archive::Archive;
use crate::cluster::process::run;
use crate::cluster::{Home, Progress};

/// Debian's interpreter, not one that a version manager puts first in PATH: its files are where the
/// image's interpreter looks for them.
const PYTHON: &str = "/usr/bin/python3";
const REQUIREMENTS: &str = include_str!("../../images/runner-python.txt");
/// Parts of the standard library that no runner imports; they are half of its size.
const LEFT_OUT: [&str; 8] = [
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "lib2to3",
    "ensurepip",
    "pip",
];
/// Programs for a manifest's shell commands; busybox has them all.
const TOOLS: [&str; 18] = [
    "sh", "cat", "cp", "date", "echo", "env", "false", "grep", "head", "id", "ls", "mkdir", "ps",
    "rm", "sed", "sleep", "tail", "true",
];

/// Lists the image's files; creates the virtual environment if it is missing.
pub fn archive(tag: &str, home: &Home, progress: &Progress) -> Result<Archive> {
    let environment = environment(home, progress)?;
    let ask = |what: &str| -> Result<PathBuf> {
        let code = format!("import sys, sysconfig; print({what})");
        Ok(run(Command::new(PYTHON).args(["-I", "-c", &code]))?
            .trim()
            .into())
    };
    let standard = ask("sysconfig.get_path('stdlib')")?;
    let version = ask("'python%d.%d' % sys.version_info[:2]")?;
    let packages = environment.join("lib").join(&version).join("site-packages");
    let local = Path::new("/usr/local/lib")
        .join(&version)
        .join("dist-packages");

    let mut image = Archive::new(tag, &["/usr/bin/python3"]);
    image.environment("PATH", "/usr/bin:/bin");
    image.environment("HOME", "/tmp");
    image.environment("PYTHONUNBUFFERED", "1");
    image.environment("PYTHONDONTWRITEBYTECODE", "1");
    image.temporary("/tmp");
    image.link("/usr/bin/python3", &version);
    let mut programs = vec![(
        Path::new("/usr/bin").join(&version),
        fs::canonicalize(PYTHON)?,
    )];
    programs.push(("/usr/bin/curl".into(), installed("curl")?));
    programs.push(("/bin/busybox".into(), installed("busybox")?));
    for tool in TOOLS {
        image.link(Path::new("/bin").join(tool), "busybox");
    }
    let mut linked = BTreeSet::new();
    for (path, source) in programs {
        image.program(path, &source);
        linked.insert(source);
    }
    for (to, from) in [(&standard, &standard), (&local, &packages)] {
        add_tree(&mut image, to, from, &LEFT_OUT, &mut linked)?;
    }
    add_libraries(&mut image, &linked)?;
    Ok(image)
}

/// A virtual environment with the pinned packages, created once per list of them.
fn environment(home: &Home, progress: &Progress) -> Result<PathBuf> {
    let digest = hex::encode(Sha256::digest(REQUIREMENTS));
    let folder = home.join(format!("runner-python-{}", &digest[..16]));
    if folder.is_dir() {
        return Ok(folder);
    }
    progress.stage("runner-python: installing Python packages");
    let temporary = folder.with_extension("partial");
    if temporary.exists() {
        fs::remove_dir_all(&temporary)?;
    }
    run(Command::new(PYTHON)
        .args(["-I", "-m", "venv"])
        .arg(&temporary))
    .context("make a virtual environment (Debian package python3-venv)")?;
    let requirements = temporary.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    run(Command::new(temporary.join("bin/python"))
        .args([
            "-I",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--no-compile",
        ])
        .arg("--requirement")
        .arg(requirements))?;
    fs::rename(&temporary, &folder)?;
    Ok(folder)
}

fn installed(program: &str) -> Result<PathBuf> {
    ["/usr/bin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
        .with_context(|| format!("{program} is not installed: apt-get install {program}"))
}
