//! The container images, made from files without Docker.
//!
//! [`IMAGES`] is the one list of them. `e2e/images/Dockerfile` builds the same images with Docker,
//! and a test compares the two. In reading order: [`programs`] (static programs by Cargo), [`sbom`]
//! (the crates linked into them), [`machine`] (files of this machine), [`python`] (the runner's
//! image), [`node`] (an MCP server's image).
//!
//! Not here: an image from a list of files ([`crate::cluster::image_archive`]), pushing to a registry.

mod machine;
pub mod node;
pub mod programs;
mod python;
mod sbom;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use self::programs::Profile;
use self::programs::{BuiltProgram, cargo_build_static};
use self::sbom::Sbom;
use crate::cluster::image_archive::Archive;
use crate::cluster::lock::Lock;
use crate::cluster::{Cluster, Home, Progress};

/// One image: `docker.io/toolcrib/<name>:dev`.
#[derive(Debug)]
pub struct Image {
    pub name: &'static str,
    pub contents: Contents,
}

/// Sources of an image's files.
#[derive(Debug)]
pub enum Contents {
    /// Each program at the root, the first of them the entrypoint, and the SBOM beside them.
    Programs(&'static [Program]),
    /// Python with the OpenAI SDK, a shell and curl.
    PythonRunner,
    /// Node with the packages that this folder of `e2e/sdk` names.
    NodePackages(&'static str),
}

/// A program of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    pub package: &'static str,
    pub binary: &'static str,
}

/// The target of the programs: glibc and not musl. Every toolchain here has it, and a program with
/// statically linked glibc resolves names in an empty root, because glibc has its own DNS client.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// All images. The first three are the product.
pub const IMAGES: [Image; 6] = [
    Image {
        name: "operator",
        contents: Contents::Programs(&[Program {
            package: "toolcrib-operator",
            binary: "toolcrib-operator",
        }]),
    },
    Image {
        name: "sidecar",
        contents: Contents::Programs(&[Program {
            package: "toolcrib-sidecar",
            binary: "toolcrib-sidecar",
        }]),
    },
    Image {
        name: "mcp-stdio",
        contents: Contents::Programs(&[Program {
            package: "toolcrib-mcp-stdio",
            binary: "toolcrib-mcp-stdio",
        }]),
    },
    Image {
        name: "demo",
        contents: Contents::Programs(&[
            Program {
                package: "toolcrib-e2e",
                binary: "scripted-model",
            },
            Program {
                package: "toolcrib-e2e",
                binary: "trading-desk",
            },
        ]),
    },
    Image {
        name: "runner-python",
        contents: Contents::PythonRunner,
    },
    Image {
        name: "mcp-servers",
        contents: Contents::NodePackages("mcp"),
    },
];

impl Image {
    pub fn tag(&self) -> String {
        format!("docker.io/toolcrib/{}:dev", self.name)
    }

    /// The file name of the SBOM, at the image's root and beside the image's archive. Scanners
    /// look for this ending.
    fn sbom(&self) -> String {
        format!("{}.cdx.json", self.name)
    }
}

/// Images whose programs are built.
#[derive(Debug)]
pub struct Programs {
    home: Home,
    images: Vec<&'static Image>,
    /// The programs, in the order of `built`.
    programs: Vec<Program>,
    built: Vec<BuiltProgram>,
    /// Held until the programs are in images.
    lock: Lock,
}

/// Archives of images.
#[derive(Debug)]
pub struct Archives {
    paths: Vec<PathBuf>,
    /// Held until they are imported: another process would write the same files.
    _lock: Lock,
}

impl Archives {
    /// Imports the images into a cluster. Returns when pods can use them.
    pub fn import(&self, cluster: &Cluster, progress: &Progress) -> Result<()> {
        for path in &self.paths {
            cluster.import_image(path)?;
        }
        progress.stage("images: imported into the cluster");
        Ok(())
    }
}

/// Builds the programs of the named images (all, if none is named).
pub fn build_programs(only: &[String], profile: Profile, progress: &Progress) -> Result<Programs> {
    let home = Home::find()?;
    let images = choose(only)?;
    let programs: Vec<Program> = images
        .iter()
        .flat_map(|image| match image.contents {
            Contents::Programs(programs) => programs,
            Contents::PythonRunner | Contents::NodePackages(_) => &[],
        })
        .copied()
        .collect();
    if !programs.is_empty() {
        progress.stage("images: building the programs");
    }
    let (built, lock) = cargo_build_static(&home, profile, &programs)?;
    Ok(Programs {
        home,
        images,
        programs,
        built,
        lock,
    })
}

/// Builds `kubectl toolcrib` and returns its path.
pub fn build_command_line(profile: Profile) -> Result<PathBuf> {
    const PROGRAM: Program = Program {
        package: "kubectl-toolcrib",
        binary: "kubectl-toolcrib",
    };
    let (built, _lock) = cargo_build_static(&Home::find()?, profile, &[PROGRAM])?;
    let program = built.into_iter().next().context("Cargo built nothing")?;
    Ok(program.path)
}

impl Programs {
    /// Writes each image as an archive.
    pub fn write_archives(self, progress: &Progress) -> Result<Archives> {
        let folder = self.home.join("images");
        let mut paths = Vec::with_capacity(self.images.len());
        for image in &self.images {
            let path = folder.join(format!("{}.tar", image.name));
            let size = self.files(image, &folder, progress)?.write(&path)?;
            let megabytes = size as f64 / 1e6;
            progress.stage(format!(
                "{}: {megabytes:.1} MB in {}",
                image.tag(),
                path.display()
            ));
            paths.push(path);
        }
        Ok(Archives {
            paths,
            _lock: self.lock,
        })
    }

    /// Writes each image as an OCI layout into a folder of its name below `folder`, under this tag,
    /// and its SBOM beside it. Prints each image's name and the digest of its manifest.
    pub fn write_layouts(&self, folder: &Path, tag: &str, progress: &Progress) -> Result<()> {
        for image in &self.images {
            let layout = folder.join(image.name);
            let digest = self
                .files(image, folder, progress)?
                .write_layout(&layout, tag)?;
            println!("{} {digest}", image.name);
        }
        Ok(())
    }

    fn files(&self, image: &Image, folder: &Path, progress: &Progress) -> Result<Archive> {
        let own = match image.contents {
            Contents::PythonRunner => return python::archive(&image.tag(), &self.home, progress),
            Contents::NodePackages(packages) => return node::archive(&image.tag(), packages),
            Contents::Programs(own) => own,
        };
        let first = own.first().context("an image has a program")?;
        let mut archive = Archive::new(&image.tag(), &[&format!("/{}", first.binary)]);
        let mut crates = BTreeSet::new();
        for (program, built) in self.programs.iter().zip(&self.built) {
            if own.contains(program) {
                archive.program(format!("/{}", program.binary), &built.path);
                crates.extend(built.crates.iter().cloned());
            }
        }
        let sbom = Sbom::describe(image.name, own)?;
        sbom.check(&crates)?;
        archive.file(
            format!("/{}", image.sbom()),
            write_sbom(folder, image, &sbom)?,
        );
        Ok(archive)
    }
}

fn choose(only: &[String]) -> Result<Vec<&'static Image>> {
    let names = IMAGES.iter().map(|image| image.name).collect::<Vec<_>>();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no image {unknown:?}: the images are {}", names.join(", "));
    }
    static TABLE: [Image; 6] = IMAGES;
    Ok(TABLE
        .iter()
        .filter(|image| only.is_empty() || only.iter().any(|name| name == image.name))
        .collect())
}

/// Writes the SBOMs of the named images (if none is named, of all images that consist of our
/// programs) into `folder`. Builds no image. Returns the files' paths.
pub fn write_sboms(folder: &Path, only: &[String]) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for image in choose(only)? {
        if let Contents::Programs(programs) = image.contents {
            let sbom = Sbom::describe(image.name, programs)?;
            written.push(write_sbom(folder, image, &sbom)?);
        }
    }
    Ok(written)
}

fn write_sbom(folder: &Path, image: &Image, sbom: &Sbom) -> Result<PathBuf> {
    let path = folder.join(image.sbom());
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, sbom.text()))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `e2e/images/Dockerfile`, from a `FROM scratch AS name` to the next stage.
    fn dockerfile_stages() -> Vec<(String, Vec<String>)> {
        let mut stages: Vec<(String, Vec<String>)> = Vec::new();
        let mut inside = false;
        for line in include_str!("../../images/Dockerfile").lines() {
            if line.starts_with("FROM ") {
                inside = false;
            }
            if let Some(name) = line.strip_prefix("FROM scratch AS ") {
                stages.push((name.into(), Vec::new()));
                inside = true;
            } else if inside
                && !line.trim().is_empty()
                && let Some((_, lines)) = stages.last_mut()
            {
                lines.push(line.into());
            }
        }
        stages
    }

    #[test]
    fn the_dockerfile_has_the_same_files() {
        let want: Vec<(String, Vec<String>)> = IMAGES
            .iter()
            .filter_map(|image| match image.contents {
                Contents::Programs(programs) => Some((image.name.to_string(), programs)),
                Contents::PythonRunner | Contents::NodePackages(_) => None,
            })
            .map(|(name, programs)| {
                let mut lines: Vec<String> = programs
                    .iter()
                    .map(|Program { binary, .. }| {
                        format!("COPY --from=build /out/{binary} /{binary}")
                    })
                    .collect();
                lines.push(format!(
                    "COPY --from=build /out/{name}.cdx.json /{name}.cdx.json"
                ));
                lines.push("USER 65532:65532".into());
                lines.push(format!("ENTRYPOINT [\"/{}\"]", programs[0].binary));
                (name, lines)
            })
            .collect();
        assert_eq!(dockerfile_stages(), want);
    }

    #[test]
    fn an_unknown_image_is_an_error_that_lists_the_images() {
        let error = choose(&["otter".into()]).expect_err("unknown").to_string();
        assert!(
            error.contains("operator, sidecar, mcp-stdio, demo, runner-python, mcp-servers"),
            "{error}"
        );
    }
}
