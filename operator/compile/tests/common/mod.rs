//! Reading cases from files.

#![expect(clippy::disallowed_methods, reason = "the cases are files")]

use std::path::{Path, PathBuf};

use toolcrib_compile::{AgentSelectors, ObjectRef};

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
            let text = many(&std::fs::read_to_string(&path).expect("readable"));
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

/// `many(121, 10)` stands for a list of 121 tools whose schemas have 10 bytes of padding.
fn many(text: &str) -> String {
    let Some((before, rest)) = text.split_once("many(") else {
        return text.to_owned();
    };
    let (arguments, after) = rest.split_once(')').expect("a closing ')'");
    let (count, padding) = arguments.split_once(", ").expect("two numbers");
    let count: usize = count.parse().expect("a number");
    let padding = "x".repeat(padding.parse().expect("a number"));
    let tools: Vec<String> = (1..=count)
        .map(|index| {
            format!(
                "{{name: t{index:03}, inputSchema: {{type: object, description: {padding:?}}}, http: {{method: GET, path: /x}}}}"
            )
        })
        .collect();
    format!("{before}[{}]{}", tools.join(", "), many(after))
}

/// Objects that the case cannot read: lines `Secret pond/otter: why` of its `unknown`.
#[allow(
    dead_code,
    reason = "not every program that includes this file asks for it"
)]
pub fn unknown(case: &Path) -> Vec<(String, ObjectRef, String)> {
    let text = std::fs::read_to_string(case.join("unknown")).unwrap_or_default();
    text.lines()
        .map(|line| {
            let (object, why) = line.split_once(": ").expect("KIND NAMESPACE/NAME: why");
            let (kind, name) = object.split_once(' ').expect("KIND NAMESPACE/NAME");
            let (namespace, name) = name.split_once('/').expect("NAMESPACE/NAME");
            (
                kind.to_owned(),
                ObjectRef::new(namespace, name),
                why.to_owned(),
            )
        })
        .collect()
}

/// URL of the mediators' OpenTelemetry receiver, from the case's file `collector`.
#[allow(
    dead_code,
    reason = "not every program that includes this file asks for it"
)]
pub fn collector(case: &Path) -> Option<String> {
    let text = std::fs::read_to_string(case.join("collector")).ok()?;
    Some(text.trim().to_owned())
}

/// Whether grants may select agents: not if the case says why in its `selectors-off`.
#[allow(
    dead_code,
    reason = "not every program that includes this file asks for it"
)]
pub fn agent_selectors(case: &Path) -> AgentSelectors {
    match std::fs::read_to_string(case.join("selectors-off")) {
        Ok(why) => AgentSelectors::Off(why.trim().to_owned()),
        Err(_) => AgentSelectors::Guarded,
    }
}
