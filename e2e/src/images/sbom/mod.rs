//! The software bill of materials (SBOM) of an image of programs, as CycloneDX 1.5 JSON.
//!
//! It lists the crates that are linked into the programs, and the static libraries that the
//! toolchain adds. Build scripts, procedural macros and dev-dependencies are not listed, because
//! none of their code is in the image.
//!
//! Invariant: the same commit and toolchain give the same bytes. So the SBOM has neither a
//! timestamp nor a serial number, which are optional in CycloneDX.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{Program, TARGET, WORKSPACE};
use crate::cluster::process::run;

/// One version of a crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    pub name: String,
    pub version: String,
}

/// The SBOM of one image.
#[derive(Debug, PartialEq, Eq)]
pub struct Sbom {
    crates: BTreeSet<Crate>,
    text: String,
}

impl Sbom {
    /// Describes the image `name` with these programs. Builds nothing and needs no network: the
    /// crates are those that Cargo resolves for the programs' packages, target and features.
    pub fn describe(name: &str, programs: &[Program]) -> Result<Sbom> {
        let packages: BTreeSet<&str> = programs.iter().map(|program| program.package).collect();
        let mut linked = BTreeMap::new();
        for package in &packages {
            linked.extend(parse_tree(&cargo_tree(package)?)?);
        }
        let lock = fs::read_to_string(Path::new(WORKSPACE).join("Cargo.lock"))
            .context("read Cargo.lock")?;
        let bom = bom(
            name,
            &packages,
            &linked,
            &checksums(&lock),
            &static_libraries()?,
        )?;
        Ok(Sbom {
            crates: linked.into_keys().collect(),
            text: bom.to_string(),
        })
    }

    /// The CycloneDX document.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Compares the SBOM with the crates that Cargo compiled for the same programs.
    pub fn check(&self, compiled: &BTreeSet<Crate>) -> Result<()> {
        let names = |crates: Vec<&Crate>| {
            let names = crates
                .iter()
                .map(|Crate { name, version }| format!("{name} {version}"));
            names.collect::<Vec<_>>().join(", ")
        };
        let missing: Vec<&Crate> = compiled.difference(&self.crates).collect();
        let absent: Vec<&Crate> = self.crates.difference(compiled).collect();
        ensure!(
            missing.is_empty() && absent.is_empty(),
            "the SBOM differs from the build: it lacks [{}], and lists [{}], which were not compiled",
            names(missing),
            names(absent),
        );
        Ok(())
    }
}

/// A crate in the output of `cargo tree`.
#[derive(Debug, PartialEq, Eq)]
struct LinkedCrate {
    licence: String,
    /// The crate belongs to this workspace. It is not published, so it has neither checksum nor
    /// package URL; on crates.io its name may belong to somebody else.
    own: bool,
    dependencies: BTreeSet<Crate>,
}

/// Runs `cargo tree` for one package alone: packages together would share their features.
fn cargo_tree(package: &str) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(WORKSPACE)
        .args(["tree", "--locked", "--quiet"])
        .args(["--package", package, "--target", TARGET])
        .args(["--edges", "normal,no-proc-macro", "--prefix", "depth"])
        .args(["--format", "{p}\t{l}\t"]);
    run(&mut cargo)
}

/// Reads `DEPTHname vVERSION (path)\tlicence\t`. Cargo lists a crate's dependencies at its first
/// occurrence, and marks later ones with `(*)`.
fn parse_tree(tree: &str) -> Result<BTreeMap<Crate, LinkedCrate>> {
    let mut linked: BTreeMap<Crate, LinkedCrate> = BTreeMap::new();
    let mut above: Vec<Crate> = Vec::new();
    for line in tree.lines() {
        let read = || {
            let digits = line.find(|c: char| !c.is_ascii_digit())?;
            let depth: usize = line[..digits].parse().ok()?;
            let (package, rest) = line[digits..].split_once('\t')?;
            let (licence, _) = rest.split_once('\t')?;
            let (name, version) = package.split_once(" v")?;
            let (version, path) = version.split_once(" (").unwrap_or((version, ""));
            let read = Crate {
                name: name.into(),
                version: version.into(),
            };
            Some((depth, read, licence, !path.is_empty()))
        };
        let (depth, read, licence, own) =
            read().with_context(|| format!("cargo tree printed {line:?}"))?;
        ensure!(
            !licence.is_empty(),
            "{} {} has no licence",
            read.name,
            read.version
        );
        above.truncate(depth);
        if let Some(parent) = above.last().and_then(|parent| linked.get_mut(parent)) {
            parent.dependencies.insert(read.clone());
        }
        linked.entry(read.clone()).or_insert_with(|| LinkedCrate {
            // The older form of SPDX expressions, which crates.io still accepts.
            licence: licence.replace('/', " OR "),
            own,
            dependencies: BTreeSet::new(),
        });
        above.push(read);
    }
    Ok(linked)
}

/// Reads the SHA-256 checksums of the crates' archives from a Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Crate, String> {
    lock.split("[[package]]")
        .filter_map(|package| {
            let value = |key: &str| {
                let mut lines = package.lines();
                let text = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
                Some(text.trim_end_matches('"').to_owned())
            };
            let name = value("name")?;
            let version = value("version")?;
            Some((Crate { name, version }, value("checksum")?))
        })
        .collect()
}

/// Reads the crates that Cargo compiled for the target, from the messages of `cargo build
/// --message-format=json`. Build scripts and procedural macros are compiled for the host, in
/// another folder.
pub fn compiled_crates(messages: &str, target_folder: &Path) -> Result<BTreeSet<Crate>> {
    let folder = target_folder.join(TARGET);
    let mut compiled = BTreeSet::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)
            .with_context(|| format!("cargo printed a line that is not a message: {line}"))?;
        let files = message["filenames"].as_array().into_iter().flatten();
        let for_target = files
            .filter_map(Value::as_str)
            .any(|file| Path::new(file).starts_with(&folder));
        if message["reason"] != "compiler-artifact" || !for_target {
            continue;
        }
        let id = message["package_id"].as_str().context("a package's id")?;
        compiled.insert(package_of(id).with_context(|| format!("cargo named a package {id:?}"))?);
    }
    Ok(compiled)
}

/// Reads `SOURCE#name@version`, or `SOURCE/name#version`.
fn package_of(id: &str) -> Option<Crate> {
    let (source, rest) = id.rsplit_once('#')?;
    let (name, version) = match rest.split_once('@') {
        Some(named) => named,
        None => (source.rsplit_once('/')?.1, rest),
    };
    Some(Crate {
        name: name.into(),
        version: version.into(),
    })
}

/// A library that is linked statically into a program, beside its crates.
#[derive(Debug)]
struct StaticLibrary {
    name: String,
    version: String,
    licence: &'static str,
    purl: Option<String>,
    /// The name under which vulnerabilities are filed, if the package URL does not lead to them.
    cpe: Option<String>,
}

/// The libraries that the toolchain links: Rust's own, glibc, and GCC's for unwinding.
fn static_libraries() -> Result<Vec<StaticLibrary>> {
    let rustc = run(Command::new("rustc").arg("-vV"))?;
    let release = rustc
        .lines()
        .find_map(|line| line.strip_prefix("release: "));
    let release = release.context("rustc names its release")?;
    Ok(vec![
        StaticLibrary {
            name: "rust-std".into(),
            version: release.into(),
            licence: "MIT OR Apache-2.0",
            purl: None,
            cpe: Some(format!("cpe:2.3:a:rust-lang:rust:{release}:*:*:*:*:*:*:*")),
        },
        debian_library("libc.a", "LGPL-2.1-or-later")?,
        debian_library("libgcc_eh.a", "GPL-3.0-or-later WITH GCC-exception-3.1")?,
    ])
}

/// The Debian package that contains a static library of the linker's search path.
fn debian_library(file: &str, licence: &'static str) -> Result<StaticLibrary> {
    let path = run(Command::new("cc").arg(format!("-print-file-name={file}")))?;
    let path = fs::canonicalize(path.trim()).with_context(|| format!("find {file}"))?;
    let path = path.to_str().context("a path in UTF-8")?;
    let owner = run(Command::new("dpkg-query").args(["--search", path]))?;
    let (package, _) = owner
        .split_once(": ")
        .with_context(|| format!("dpkg-query printed {owner:?}"))?;
    let fields = run(Command::new("dpkg-query").args([
        "--show",
        "--showformat",
        "${Package}\t${Version}\t${Architecture}",
        package,
    ]))?;
    let mut fields = fields.split('\t');
    let (Some(name), Some(version), Some(architecture)) =
        (fields.next(), fields.next(), fields.next())
    else {
        bail!("dpkg-query knows no version of {package}");
    };
    // A package URL reserves `+`, which Debian's versions may contain.
    let encoded = version.replace('+', "%2B").replace(':', "%3A");
    Ok(StaticLibrary {
        name: name.into(),
        version: version.into(),
        licence,
        purl: Some(format!(
            "pkg:deb/debian/{name}@{encoded}?arch={architecture}"
        )),
        cpe: None,
    })
}

fn bom(
    image: &str,
    packages: &BTreeSet<&str>,
    linked: &BTreeMap<Crate, LinkedCrate>,
    checksums: &BTreeMap<Crate, String>,
    libraries: &[StaticLibrary],
) -> Result<Value> {
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    let mut of_image = Vec::new();
    for (key, found) in linked {
        let Crate { name, version } = key;
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(key),
            "name": name,
            "version": version,
            "scope": "required",
            "licenses": [{"expression": found.licence}],
        });
        if found.own {
            if packages.contains(name.as_str()) {
                component["type"] = json!("application");
                of_image.push(reference(key));
            }
        } else {
            let checksum = checksums
                .get(key)
                .with_context(|| format!("Cargo.lock has no checksum of {name} {version}"))?;
            component["purl"] = json!(format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        components.push(component);
        dependencies.push(json!({
            "ref": reference(key),
            "dependsOn": found.dependencies.iter().map(reference).collect::<Vec<_>>(),
        }));
    }
    for library in libraries {
        let reference = format!("{}@{}", library.name, library.version);
        let mut component = json!({
            "type": "library",
            "bom-ref": reference,
            "name": library.name,
            "version": library.version,
            "scope": "required",
            "licenses": [{"expression": library.licence}],
        });
        if let Some(purl) = &library.purl {
            component["purl"] = json!(purl);
        }
        if let Some(cpe) = &library.cpe {
            component["cpe"] = json!(cpe);
        }
        components.push(component);
        dependencies.push(json!({"ref": reference, "dependsOn": []}));
        of_image.push(reference);
    }
    dependencies.push(json!({"ref": "image", "dependsOn": of_image}));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": format!("toolcrib/{image}"),
                "version": env!("CARGO_PKG_VERSION"),
            },
            "properties": [{"name": "toolcrib.dev/target", "value": TARGET}],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn reference(Crate { name, version }: &Crate) -> String {
    format!("{name}@{version}")
}

#[cfg(test)]
mod tests;
