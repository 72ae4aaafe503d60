//! A runner image: Python with the OpenAI SDK, a shell and curl, from the machine's own
//! Debian packages and a virtual environment.
//!
//! Not here: the runner's program, which a pod's manifest brings. Invariant: every shared
//! library that a file of the image names is in the image.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::archive::Archive;
use crate::cluster::process::{output, run};
use crate::cluster::{Home, Progress};

/// Debian's, not one that a version manager puts first in PATH: its parts are where the
/// image's own interpreter looks for them.
const PYTHON: &str = "/usr/bin/python3";
const REQUIREMENTS: &str = include_str!("../../images/runner-python.txt");
/// Parts of the standard library that no runner imports: half of its size.
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
/// The tools of a manifest's shell line; busybox has them all.
const TOOLS: [&str; 18] = [
    "sh", "cat", "cp", "date", "echo", "env", "false", "grep", "head", "id", "ls", "mkdir", "ps",
    "rm", "sed", "sleep", "tail", "true",
];

/// Lists the image's files; makes the virtual environment if it is not there.
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
        add_tree(&mut image, to, from, &mut linked)?;
    }
    for library in libraries(&linked)? {
        if !image.contains(&library) {
            image.program(library.clone(), library);
        }
    }
    Ok(image)
}

/// A virtual environment with the pinned packages, made once per list of them.
fn environment(home: &Home, progress: &Progress) -> Result<PathBuf> {
    let digest = hex::encode(Sha256::digest(REQUIREMENTS));
    let folder = home.join(format!("runner-python-{}", &digest[..16]));
    if folder.is_dir() {
        return Ok(folder);
    }
    progress.stage("runner-python: installing its packages");
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

/// Adds what is below `from`, and notes what has to be linked.
fn add_tree(
    image: &mut Archive,
    to: &Path,
    from: &Path,
    linked: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let (to, from) = (to.join(&name), entry.path());
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        // Follows links: Debian keeps some modules elsewhere.
        match fs::metadata(&from) {
            Ok(metadata) if metadata.is_dir() => add_tree(image, &to, &from, linked)?,
            Ok(_) if name.to_string_lossy().contains(".so") => {
                image.program(to, &from);
                linked.insert(from);
            }
            Ok(_) if name.to_string_lossy().ends_with(".a") => {}
            Ok(_) => image.file(to, from),
            // A dangling link into a package that is not installed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", from.display())),
        }
    }
    Ok(())
}

/// The shared libraries of these files, by the paths the loader finds them at.
fn libraries(files: &BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for file in files {
        // `ldd` fails for a static program, which wants none.
        let told = output(Command::new("ldd").arg(file))?;
        for line in String::from_utf8_lossy(&told.stdout).lines() {
            found.extend(library(line));
        }
    }
    Ok(found)
}

/// `name => /path (address)`, or `/loader (address)`.
fn library(line: &str) -> Option<PathBuf> {
    let (path, _) = line.trim().rsplit_once(" (")?;
    let path = path.rsplit_once("=> ").map_or(path, |(_, path)| path);
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_lines() {
        let cases = [
            (
                "\tlibc.so.6 => /lib/libc.so.6 (0x00007f)",
                Some("/lib/libc.so.6"),
            ),
            (
                "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)",
                Some("/lib64/ld-linux-x86-64.so.2"),
            ),
            ("\tlinux-vdso.so.1 (0x00007f)", None),
            ("\tstatically linked", None),
        ];
        for (line, want) in cases {
            assert_eq!(library(line), want.map(PathBuf::from), "{line}");
        }
    }
}
