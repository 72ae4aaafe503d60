//! `import`: converts a Clawdapus pod file to objects for review.
//!
//! Here: reading the files that the pod file names, and checking that the result compiles. Not
//! here: the translation ([`crate::authoring::import`]).
//!
//! Exit codes: 0; 1 if an agent does not get something that the pod file gives it (the objects are
//! written, and a finding names the loss); 2 when the files cannot be read or written.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use toolcrib_compile::{LoadResult, Settings, compile_all, load};

use crate::args::ImportArgs;
use crate::authoring::import;
use crate::authoring::import::{
    ExistingObjects, File, Finding, ImportOptions, PodImport, PodObjects, SecretValues, Weight,
    describe,
};
use crate::commands::compile::of_objects;
use crate::failure::Failure;
use crate::sources::admitted::admitted;
use crate::{print, sources};

/// Longest file, in bytes: larger than any contract, descriptor or pod file.
const MAX_BYTES: u64 = 1 << 20;
/// Bytes of all files that the pod file names, since it may name some for each of its services.
const MAX_NAMED_BYTES: u64 = 16 << 20;

pub fn import(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let shown = args.pod_file.display().to_string();
    let text = read(&args.pod_file).map_err(Failure::Usage)?;
    let mut read = import::read(&text).map_err(|error| {
        let at = match error.line {
            0 => shown.clone(),
            line => format!("{shown}:{line}"),
        };
        Failure::usage(format_args!("{at}: {}", error.message))
    })?;
    if let Some(namespace) = &args.namespace
        && *namespace != import::dns_label(namespace)
    {
        return Err(Failure::usage(format_args!(
            "--namespace {namespace:?} is not a valid name of a namespace: write a-z, 0-9 and -, such as {}",
            import::dns_label(namespace)
        )));
    }
    let existing = existing_texts(args)?;
    let given = given(args, &mut read, &existing)?;
    let translated = read.translate(&given);

    let mut texts = Vec::new();
    for file in &translated.files {
        let text = file.text().context("an object does not print as YAML")?;
        texts.push((file.name.to_owned(), text));
    }
    match &args.output_dir {
        Some(folder) => write(folder, args.force, &translated.files, &texts)?,
        None => print(&texts)?,
    }
    texts.extend(existing);
    let report = check(translated, texts);
    for finding in &report.findings {
        let colon = if finding.line == 0 { ": " } else { ":" };
        eprintln!("{shown}{colon}{finding}");
    }
    let is_whole = report
        .findings
        .iter()
        .all(|finding| finding.weight != Weight::Error);
    let checked = print::findings(&report.loaded, []).exit_code();
    Ok(if is_whole { checked } else { ExitCode::from(1) })
}

/// The faults of a pod file, each once.
pub struct Report {
    pub findings: Vec<Finding>,
    /// The findings of the API server and the compiler are in its `diagnostics`.
    pub loaded: LoadResult,
}

/// Checks the objects as the API server and the compiler do. `texts` are those of all files and of
/// the objects beside them.
pub fn check(objects: PodObjects, texts: Vec<(String, String)>) -> Report {
    let mut loaded = admitted(load(texts, Settings::default()));
    let compiled = compile_all(&loaded.inputs).into_values();
    let mut diagnostics = std::mem::take(&mut loaded.diagnostics);
    diagnostics.extend(of_objects(&loaded.inputs));
    diagnostics.extend(compiled.flat_map(|compilation| compilation.diagnostics));
    diagnostics.sort();
    diagnostics.dedup();
    let (findings, diagnostics) = objects.report(diagnostics);
    loaded.diagnostics = diagnostics;
    Report { findings, loaded }
}

fn existing_texts(args: &ImportArgs) -> Result<Vec<(String, String)>, Failure> {
    let texts = sources::read(&args.existing).map_err(Failure::Usage)?;
    let loaded = load(texts.clone(), Settings::default());
    match loaded.errors.first() {
        None => Ok(texts),
        Some(error) => Err(Failure::usage(format_args!(
            "{}: {}",
            error.origin, error.message
        ))),
    }
}

fn given(
    args: &ImportArgs,
    read_file: &mut PodImport,
    existing: &[(String, String)],
) -> Result<ImportOptions, Failure> {
    let mut folder = Folder::of(&args.pod_file);
    let beside = folder.path.join(".env");
    let env_file = args
        .env_file
        .clone()
        .or_else(|| beside.is_file().then_some(beside));
    let values = match env_file {
        None => BTreeMap::new(),
        Some(path) => {
            let text = read(&path).map_err(Failure::Usage)?;
            import::dotenv(&text)
                .map_err(|message| Failure::usage(format_args!("{}: {message}", path.display())))?
        }
    };
    let files = read_file
        .files()
        .into_iter()
        .map(|path| (path.to_owned(), folder.read(path)))
        .collect();
    Ok(ImportOptions {
        namespace: args.namespace.clone(),
        values,
        secret_values: if args.with_secrets {
            SecretValues::Written
        } else {
            SecretValues::Placeholders
        },
        descriptors: descriptors(args, &mut folder, read_file)?,
        files,
        providers: args.provider.clone(),
        existing: existing_objects(args, read_file, existing),
    })
}

/// Returns the existing objects of the target namespace.
fn existing_objects(
    args: &ImportArgs,
    read: &PodImport,
    texts: &[(String, String)],
) -> ExistingObjects {
    let loaded = load(texts.to_vec(), Settings::default());
    let namespace = import::namespace(&read.pod, args.namespace.as_deref());
    let is_here = |key: &toolcrib_compile::ObjectRef| key.namespace == namespace;
    let inputs = &loaded.inputs;
    ExistingObjects {
        services: inputs
            .services()
            .filter(|(key, _)| is_here(key))
            .map(|(key, facts)| {
                let mut ports = facts.ports.keys();
                let only = ports.next().filter(|_| ports.next().is_none());
                (key.name.clone(), only.copied())
            })
            .collect(),
        surfaces: inputs
            .surfaces()
            .filter(|(key, _)| is_here(key))
            .map(|(key, _)| key.name.clone())
            .collect(),
        providers: inputs
            .providers()
            .filter(|(key, _)| is_here(key))
            .map(|(key, _)| key.name.clone())
            .collect(),
    }
}

/// Reads the descriptors that `--describe` or the pod file names, or that `claw discover` left.
fn descriptors(
    args: &ImportArgs,
    folder: &mut Folder,
    read_file: &mut PodImport,
) -> Result<BTreeMap<String, serde_json::Value>, Failure> {
    let mut texts: BTreeMap<String, (usize, Result<String, String>)> = BTreeMap::new();
    for (service, path) in read_file.described() {
        let discovered = format!(".claw-discovered/{service}.claw-describe.json");
        let text = match path {
            Some(path) => folder.read(&path.value),
            None if folder.path.join(&discovered).is_file() => folder.read(&discovered),
            None => continue,
        };
        let line = path.map_or(0, |path| path.line);
        texts.insert(service.to_owned(), (line, text));
    }
    for given in &args.describe {
        let text = read(&given.file).map_err(Failure::Usage)?;
        let (_, known) = texts
            .entry(given.service.clone())
            .or_insert((0, Ok(String::new())));
        *known = Ok(text);
    }
    let mut descriptors = BTreeMap::new();
    for (service, (line, text)) in texts {
        match text.and_then(|text| describe::parse(&text)) {
            Err(reason) => read_file.undescribed(line, &service, &reason),
            Ok(mut descriptor) => {
                let skill = describe::skill(&descriptor).and_then(|path| folder.read(path).ok());
                read_file.adapt(&service, &mut descriptor, skill);
                descriptors.insert(service, descriptor);
            }
        }
    }
    Ok(descriptors)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| sources::unreadable(path, error))?;
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        u64::try_from(text.len()).is_ok_and(|length| length <= MAX_BYTES),
        "{} is longer than {MAX_BYTES} bytes",
        path.display()
    );
    Ok(text)
}

/// The pod file's folder. The pod file is not trusted, so it may name files of its own folder
/// only, links included, and all of them together have a bound.
struct Folder {
    path: PathBuf,
    /// Bytes that may still be read.
    left: u64,
}

impl Folder {
    fn of(pod_file: &Path) -> Self {
        let path = match pod_file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Self {
            path,
            left: MAX_NAMED_BYTES,
        }
    }

    fn read(&mut self, path: &str) -> Result<String, String> {
        let real =
            |path: &Path| fs::canonicalize(path).map_err(|_| "there is no such file".to_owned());
        let file = real(&self.path.join(path))?;
        if !file.starts_with(real(&self.path)?) {
            return Err("it is outside of the pod file's folder".to_owned());
        }
        if file.is_dir() {
            return Err("it is a folder".to_owned());
        }
        let text = read(&file).map_err(|error| format!("{error:#}"))?;
        let left = u64::try_from(text.len())
            .ok()
            .and_then(|length| self.left.checked_sub(length));
        self.left = left.ok_or_else(|| {
            format!(
                "the files that the pod file names are larger than {MAX_NAMED_BYTES} bytes together"
            )
        })?;
        Ok(text)
    }
}

fn print(texts: &[(String, String)]) -> Result<(), Failure> {
    let all: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
    print::to_stdout(&all.join("---\n")).context("cannot write to standard output")?;
    Ok(())
}

fn write(
    folder: &Path,
    force: bool,
    files: &[File],
    texts: &[(String, String)],
) -> Result<(), Failure> {
    let there: Vec<&str> = texts
        .iter()
        .map(|(name, _)| name.as_str())
        // A dangling link counts as existing, too.
        .filter(|name| folder.join(name).symlink_metadata().is_ok())
        .collect();
    if !there.is_empty() && !force {
        return Err(Failure::usage(format_args!(
            "{} has {} already: choose another folder, or replace them with --force",
            folder.display(),
            there.join(", ")
        )));
    }
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make {}", folder.display()))
        .map_err(Failure::Usage)?;
    let mut written = String::new();
    for (file, (name, text)) in files.iter().zip(texts) {
        let path = folder.join(name);
        write_private(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
        let objects = toolcrib_bounds::count(file.documents.len(), "object");
        written += &format!("{} ({objects})\n", path.display());
    }
    print::to_stdout(&written).context("cannot write to standard output")?;
    Ok(())
}

/// Writes a file that only this user can read, since it may hold Secrets. It never follows a link:
/// the folder may be a repository of another person. An existing file is removed first.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_named_by_a_pod_file_share_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.json"), "x".repeat(1 << 20)).unwrap();
        let mut named = Folder::of(&folder.path().join("claw-pod.yml"));
        for _ in 0..16 {
            assert!(named.read("a.json").is_ok());
        }
        let error = named.read("a.json").unwrap_err();
        assert!(error.contains("16777216 bytes together"), "{error}");
    }

    #[test]
    fn a_file_with_secrets_is_private_and_written_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        std::os::unix::fs::symlink(&outside, out.join("secrets.yaml")).unwrap();
        let files = [File {
            name: "secrets.yaml",
            about: "",
            documents: Vec::new(),
        }];
        let texts = [("secrets.yaml".to_owned(), "value".to_owned())];
        // A dangling link counts as an existing file.
        assert!(write(&out, false, &files, &texts).is_err());
        assert!(!outside.exists());
        write(&out, true, &files, &texts).unwrap();
        assert!(!outside.exists());
        let path = out.join("secrets.yaml");
        assert_eq!(fs::read_to_string(&path).unwrap(), "value");
        assert!(!path.is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
