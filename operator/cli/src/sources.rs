//! Files into texts, and texts into [`Loaded`] inputs.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use toolcrib_compile::{Loaded, ObjectRef, Settings, load};

use crate::{args::FileArgs, failure::Failure};

/// Larger than any set of manifests; smaller than what would hurt.
const MAX_BYTES: u64 = 64 << 20;

/// Reads and loads all of `-f`. Documents that are no objects at all are an error: an
/// answer from half of the files would be wrong without a word.
pub fn loaded(files: &FileArgs) -> Result<Loaded, Failure> {
    let texts = read(&files.paths).map_err(Failure::Usage)?;
    let loaded = load(texts, Settings::default());
    if let Some(error) = loaded.errors.first() {
        let (path, number) = (&error.origin.path, error.origin.document);
        return Err(Failure::usage(format_args!(
            "{path}, document {number}: {}",
            error.message
        )));
    }
    Ok(loaded)
}

/// The one agent of that name, in `namespace` if that is given.
pub fn find_agent(
    loaded: &Loaded,
    name: &str,
    namespace: Option<&str>,
) -> Result<ObjectRef, Failure> {
    let fits = |agent: &&ObjectRef| {
        agent.name == name && namespace.is_none_or(|namespace| agent.namespace == namespace)
    };
    let agents: BTreeSet<&ObjectRef> = loaded.inputs.agents().map(|(key, _)| key).collect();
    let found: Vec<&&ObjectRef> = agents.iter().filter(|agent| fits(agent)).collect();
    match found.as_slice() {
        [agent] => Ok((**agent).clone()),
        [] => {
            let known: Vec<_> = agents.iter().map(ToString::to_string).collect();
            let known = if known.is_empty() {
                "none".to_string()
            } else {
                known.join(", ")
            };
            Err(Failure::usage(format_args!(
                "no agent {name} in the files; there are: {known}"
            )))
        }
        _ => Err(Failure::usage(format_args!(
            "agents named {name} are in several namespaces: add --namespace"
        ))),
    }
}

/// `(path, text)` of every file, folders in name order.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    let mut budget = MAX_BYTES;
    for path in paths {
        if path.as_os_str() == "-" {
            let text = read_capped(std::io::stdin().lock(), &mut budget, "standard input")?;
            texts.push(("standard input".to_string(), text));
            continue;
        }
        for file in files_below(path)? {
            let shown = file.display().to_string();
            let open = fs::File::open(&file).with_context(|| format!("cannot open {shown}"))?;
            let text = read_capped(open, &mut budget, &shown)?;
            texts.push((shown, text));
        }
    }
    Ok(texts)
}

fn read_capped(from: impl std::io::Read, budget: &mut u64, name: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(*budget + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    *budget = budget
        .checked_sub(length)
        .with_context(|| format!("more than {MAX_BYTES} bytes in all, at {name}"))?;
    Ok(text)
}

/// The file itself, or the YAML and JSON files below a folder, as kubectl's `-R` has it.
fn files_below(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let kind = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !kind.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read {}", path.display()))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let extension = entry.extension().and_then(|extension| extension.to_str());
        // A link may lead in a circle; folders are followed only where they really are.
        if !hidden && fs::symlink_metadata(&entry).is_ok_and(|kind| kind.is_dir()) {
            files.extend(files_below(&entry)?);
        } else if !hidden && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    Ok(files)
}
