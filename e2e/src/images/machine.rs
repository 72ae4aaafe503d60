//! Adds files of this machine to an image: folders, and the shared libraries that programs need.
//!
//! Not here: the choice of files (`python.rs`, `node.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cluster::image_archive::Archive;
use crate::cluster::process::output;

/// Adds the files below `from`, except those in `left_out`, and adds the shared objects among them
/// to `linked`.
pub fn add_tree(
    image: &mut Archive,
    to: &Path,
    from: &Path,
    left_out: &[&str],
    linked: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let (to, from) = (to.join(&name), entry.path());
        if left_out.iter().any(|left_out| name == *left_out) {
            continue;
        }
        // Follows links: Debian keeps some modules elsewhere.
        match fs::metadata(&from) {
            Ok(metadata) if metadata.is_dir() => add_tree(image, &to, &from, left_out, linked)?,
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

/// Adds the shared libraries of these files, where the loader finds them.
pub fn add_libraries(image: &mut Archive, linked: &BTreeSet<PathBuf>) -> Result<()> {
    for library in libraries(linked)? {
        if !image.contains(&library) {
            image.program(library.clone(), library);
        }
    }
    Ok(())
}

/// The shared libraries of these files, by the paths the loader finds them at.
fn libraries(files: &BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for file in files {
        // `ldd` fails for a static program, which needs no libraries.
        let told = output(Command::new("ldd").arg(file))?;
        for line in String::from_utf8_lossy(&told.stdout).lines() {
            found.extend(library(line));
        }
    }
    Ok(found)
}

/// Reads a line `name => /path (address)`, or `/loader (address)`.
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
