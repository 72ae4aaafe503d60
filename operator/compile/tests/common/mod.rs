//! Reading cases from files.

#![allow(clippy::disallowed_methods, reason = "the cases are files")]

use std::path::{Path, PathBuf};

/// `(name, text)` of every YAML file of a case: its own, and what its `include` lists.
pub fn documents(case: &Path) -> Vec<(String, String)> {
    let include = std::fs::read_to_string(case.join("include")).unwrap_or_default();
    let included = include
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| case.join(line));
    let mut files: Vec<PathBuf> = included
        .chain([case.to_path_buf()])
        .flat_map(yaml_files)
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("readable");
            let name = path.file_name().expect("a file").to_string_lossy();
            (name.into_owned(), text)
        })
        .collect()
}

fn yaml_files(path: PathBuf) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path];
    }
    std::fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect()
}
