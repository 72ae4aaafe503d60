//! The image of a third-party MCP server as its users install it: Node from this machine, and the
//! package with its dependencies.
//!
//! Not here: the wrapper that serves it; an init container copies the wrapper into the pod.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::machine::{add_libraries, add_tree};
use crate::cluster::image_archive::Archive;
use crate::packages;

const NODE: &str = "/usr/bin/node";
/// Folder of the packages; a package's own program is below it, under the package's name.
pub const MODULES: &str = "/srv/node_modules";

/// Lists the image's files; installs the packages if they are missing.
pub fn archive(tag: &str, packages: &str) -> Result<Archive> {
    let modules = packages::node_modules(packages)?;
    let node = installed()?;
    let mut image = Archive::new(tag, &[NODE]);
    image.environment("PATH", "/usr/bin");
    image.program(NODE, &node);
    let mut linked = BTreeSet::from([node]);
    // Leaves out the folder of links to the packages' programs.
    let left_out = [".bin"];
    add_tree(
        &mut image,
        Path::new(MODULES),
        &modules,
        &left_out,
        &mut linked,
    )?;
    add_libraries(&mut image, &linked)?;
    Ok(image)
}

/// Resolves the `node` that a shell would start here.
fn installed() -> Result<PathBuf> {
    let path = env::var_os("PATH").context("PATH is not set")?;
    let found = env::split_paths(&path)
        .map(|folder| folder.join("node"))
        .find(|path| path.is_file())
        .context("node is not installed: apt-get install nodejs")?;
    fs::canonicalize(&found).with_context(|| format!("find {}", found.display()))
}
