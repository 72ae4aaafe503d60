//! Checks the place of modules, and that they import each other in one direction: in each folder
//! of a crate, the imports between neighbouring files and folders have no cycle. Checks the names of types, too.
//!
//! A folder's own `mod.rs`, and a crate's `lib.rs` and `main.rs`, compose the modules below them
//! and are not checked. Tests are not read. A re-exported name counts as its module's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module, or of an item, in its crate.
type Names = Vec<String>;
/// The imports between the modules of one folder, each with the first place that has it.
type Imports = BTreeMap<(String, String), String>;

#[test]
fn the_modules_of_every_crate_import_in_one_direction() {
    let crates: Vec<PathBuf> = folders()
        .into_iter()
        .filter(|folder| folder.join("Cargo.toml").is_file() && folder.join("src").is_dir())
        .collect();
    // Without this, a moved crate would go unnoticed.
    assert!(crates.len() > 15, "{crates:?}");
    let circles: Vec<String> = crates
        .iter()
        .flat_map(|folder| {
            let circles = circles(&folder.join("src")).into_iter();
            circles.map(|circle| format!("{}: {circle}", folder.display()))
        })
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// The webhook is another process, and the controller starts the link, claw-api and the listeners,
/// so none of them imports it.
#[test]
fn no_other_module_of_the_operator_imports_the_controller() {
    let imports = &imports(&sources("operator/src"))[&[][..]];
    let places: Vec<&String> = imports
        .iter()
        .filter(|((_, to), _)| to == "controller")
        .map(|(_, place)| place)
        .collect();
    assert!(imports.keys().any(|(from, _)| from == "controller"));
    assert!(places.is_empty(), "{places:?}");
}

#[test]
fn a_module_with_files_below_it_is_in_their_folder() {
    let has_source = |folder: &PathBuf| {
        let mut entries = fs::read_dir(folder).expect("a folder");
        entries.any(|entry| {
            let path = entry.expect("an entry").path();
            path.extension().is_some_and(|it| it == "rs")
        })
    };
    let beside: Vec<PathBuf> = folders()
        .into_iter()
        .filter(|folder| folder.with_extension("rs").is_file() && has_source(folder))
        .collect();
    assert!(
        beside.is_empty(),
        "move FOLDER.rs to FOLDER/mod.rs: {beside:?}"
    );
}

#[test]
fn a_type_is_named_by_a_noun() {
    let mut others = Vec::new();
    let mut types = 0;
    for folder in folders() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let names: Vec<&str> = text.lines().filter_map(defined_type).collect();
                types += names.len();
                let others_here = names.into_iter().filter(|name| !is_noun(name));
                others.extend(others_here.map(|name| format!("{}: {name}", path.display())));
            }
        }
    }
    assert!(types > 1_000, "{types}");
    assert!(
        others.is_empty(),
        "name what it is, such as RecordedCall for Recorded: {others:#?}"
    );
}

/// The name of the type that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(' ');
    let kind = words.find(|word| !word.starts_with("pub"))?;
    let name = ["struct", "enum", "trait", "type"]
        .contains(&kind)
        .then(|| words.next())??;
    name.split(|letter: char| !letter.is_alphanumeric()).next()
}

/// False for names that are one word, and a participle, a pronoun, a preposition or an adverb. Other words
/// that are no nouns are left to the reader.
fn is_noun(name: &str) -> bool {
    const PARTICIPLES: [&str; 22] = [
        "Chosen",
        "Found",
        "Given",
        "Held",
        "Hidden",
        "Kept",
        "Known",
        "Left",
        "Lost",
        "Made",
        "Met",
        "Read",
        "Running",
        "Said",
        "Seen",
        "Sent",
        "Shown",
        "Taken",
        "Told",
        "Withdrawn",
        "Woken",
        "Written",
    ];
    const OTHERS: [&str; 28] = [
        "After", "Along", "And", "At", "Before", "Below", "Beside", "By", "From", "How", "In",
        "It", "Many", "None", "Now", "Of", "On", "One", "Onward", "Out", "Over", "Then", "To",
        "Under", "Via", "Why", "With", "Within",
    ];
    const NOUNS: [&str; 3] = ["Feed", "Need", "Seed"];
    let is_regular_participle = name.ends_with("ed") && !NOUNS.contains(&name);
    let is_one_word = name.chars().skip(1).all(|letter| letter.is_lowercase());
    !(is_one_word
        && (is_regular_participle || PARTICIPLES.contains(&name) || OTHERS.contains(&name)))
}

#[test]
fn nouns_are_told_from_participles() {
    for (line, is_one) in [
        ("pub struct Recorded {", false),
        ("enum Via<'a> {", false),
        ("pub(super) trait Shared: Sized {", false),
        ("    type Woken = usize;", false),
        ("pub struct RecordedCall(u8);", true),
        ("struct Feed;", true),
    ] {
        let name = defined_type(line).expect(line);
        assert_eq!(is_noun(name), is_one, "{name}");
    }
    for line in [
        "// struct Recorded",
        "fn struct_of() {",
        "use pond::Recorded;",
        "",
    ] {
        assert_eq!(defined_type(line), None, "{line}");
    }
}

#[test]
fn circles_are_found_through_groups_and_re_exports() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        (
            "lib.rs",
            "mod reed;\nmod pond;\nmod otter;\npub use pond::newt::{Newt, Frog as Toad};\n\
             pub use pond::pond;\n",
        ),
        (
            "otter.rs",
            "use crate::{reed, Toad};\n// use crate::heron;\n",
        ),
        (
            "reed.rs",
            "fn swim() { super::otter::swim(); }\n#[cfg(test)]\nmod tests { use crate::heron; }\n",
        ),
        ("heron.rs", "use crate::reed;\n"),
        (
            "pond/mod.rs",
            "pub mod newt;\nmod perch;\npub use perch::Perch;\n",
        ),
        ("pond/newt.rs", "use std::fmt;\nuse super::{\n    Perch};\n"),
        (
            "pond/perch.rs",
            "use super::super::pond::newt::Newt;\nuse crate::otter::{self, Paw};\n",
        ),
        ("pond/tests.rs", "use crate::heron;\n"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    assert_eq!(
        circles(folder.path()),
        [
            "otter pond reed: otter.rs:1 imports pond; otter.rs:1 imports reed; \
             pond/perch.rs:2 imports otter; reed.rs:1 imports otter",
            "pond/newt pond/perch: pond/newt.rs:2 imports perch; pond/perch.rs:1 imports newt",
        ]
    );
}

fn sources(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder)
}

/// Lists the folders of the workspace, without those that hold build results.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["crds", "docs", "e2e", "operator", "sidecar"]
        .map(sources)
        .into();
    let mut read = 0;
    while let Some(folder) = folders.get(read) {
        let entries = fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        // A crate with a workspace of its own may be built in its folder.
        let below: Vec<PathBuf> = paths
            .filter(|path| path.is_dir() && !path.ends_with("target"))
            .collect();
        folders.extend(below);
        read += 1;
    }
    folders
}

/// Returns the import cycles below `root`: their modules, and the imports between these.
fn circles(root: &Path) -> Vec<String> {
    imports(root)
        .iter()
        .flat_map(|(folder, imports)| {
            tangles(imports)
                .into_iter()
                .map(|circle| describe(folder, imports, &circle))
        })
        .collect()
}

/// Returns the imports between neighbouring modules, by the folder's path.
fn imports(root: &Path) -> BTreeMap<Names, Imports> {
    let mut sources = Vec::new();
    read(root, &mut Vec::new(), &mut sources);
    let modules: BTreeSet<&[String]> = sources.iter().map(|source| &*source.module).collect();
    // A re-exported function may have its module's name: paths through that name lead into the module.
    let exports: BTreeMap<Names, Names> = sources
        .iter()
        .flat_map(Source::exports)
        .filter(|(here, _)| !modules.contains(&**here))
        .collect();

    let mut folders: BTreeMap<Names, Imports> = BTreeMap::new();
    for source in &sources {
        for (line, path) in source.imports() {
            let target = defined(path, &exports);
            let common = common(&source.module, &target);
            let (Some(from), Some(to)) = (source.module.get(common), target.get(common)) else {
                continue;
            };
            if modules.contains(&target[..=common]) {
                let place = format!("{}:{line}", source.file);
                folders
                    .entry(source.module[..common].to_vec())
                    .or_default()
                    .entry((from.clone(), to.clone()))
                    .or_insert(place);
            }
        }
    }
    folders
}

fn describe(folder: &[String], imports: &Imports, circle: &BTreeSet<String>) -> String {
    let names: Vec<String> = circle
        .iter()
        .map(|name| [folder, std::slice::from_ref(name)].concat().join("/"))
        .collect();
    let edges: Vec<String> = imports
        .iter()
        .filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
        .map(|((_, to), place)| format!("{place} imports {to}"))
        .collect();
    format!("{}: {}", names.join(" "), edges.join("; "))
}

/// Returns the sets of modules in which each imports every other, directly or through others.
fn tangles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(name) = open.pop() {
            for (from, to) in imports.keys() {
                if from == name && reached.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<String>> = imports
        .keys()
        .map(|(from, _)| (from, reached(from)))
        .collect();
    let together = |name: &String| -> BTreeSet<String> {
        let others = all
            .iter()
            .filter(|(other, reached)| all[name].contains(**other) && reached.contains(name));
        others.map(|(other, _)| (*other).clone()).collect()
    };
    all.keys()
        .map(|name| together(name))
        .filter(|circle| circle.len() > 1)
        .collect()
}

/// A file of a crate.
struct Source {
    file: String,
    module: Names,
    /// The code without comments and tests.
    code: String,
}

/// Reads the files of `folder`, whose path in the crate is `module`.
fn read(folder: &Path, module: &mut Names, sources: &mut Vec<Source>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name in UTF-8").to_owned();
        if name == "tests" || name == "bin" {
            continue;
        }
        let composes = ["lib", "main", "mod"].contains(&&*name);
        if !composes {
            module.push(name);
        }
        if path.is_dir() {
            read(&path, module, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a file in UTF-8");
            sources.push(Source {
                file: format!(
                    "{}.rs",
                    if composes {
                        folder_file(module)
                    } else {
                        module.join("/")
                    }
                ),
                module: module.clone(),
                code: code(&text),
            });
        }
        if !composes {
            module.pop();
        }
    }
}

fn folder_file(module: &[String]) -> String {
    [module, &["mod".to_owned()]].concat().join("/")
}

/// Returns the text up to its test module, without comments; lines keep their numbers.
fn code(text: &str) -> String {
    let end = text
        .find("\n#[cfg(test)]\nmod tests {")
        .unwrap_or(text.len());
    let lines = text[..end].lines();
    let code: Vec<&str> = lines
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    code.join("\n")
}

impl Source {
    /// Returns the module's re-exports: the path of each name here, and its origin.
    fn exports(&self) -> Vec<(Names, Names)> {
        let mut exports = Vec::new();
        for statement in self.code.split("pub use ").skip(1) {
            let mut found = Vec::new();
            expand(statement, &self.module, &mut found);
            for (from, name) in found {
                let here = [&*self.module, &[name]].concat();
                exports.push((here, from));
            }
        }
        exports
    }

    /// Returns the paths that begin at the crate's root or at a parent, with their lines.
    fn imports(&self) -> Vec<(usize, Names)> {
        let mut imports = Vec::new();
        for start in ["crate::", "super::"] {
            for (at, _) in self.code.match_indices(start) {
                let before = self.code[..at].chars().next_back();
                if before.is_some_and(|before| before.is_alphanumeric() || "_:".contains(before)) {
                    continue;
                }
                let line = self.code[..at].matches('\n').count() + 1;
                let mut found = Vec::new();
                expand(&self.code[at..], &self.module, &mut found);
                imports.extend(found.into_iter().map(|(path, _)| (line, path)));
            }
        }
        imports
    }
}

/// Expands the paths that `text` begins with, and collects each with the name that it gets. `base`
/// is the module that a path without `crate` or `super` starts from.
fn expand<'a>(text: &'a str, base: &[String], found: &mut Vec<(Names, String)>) -> &'a str {
    let mut path = base.to_vec();
    let mut text = text.trim_start();
    loop {
        let end = text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        text = rest.trim_start();
        match name {
            "crate" => path.clear(),
            "super" => {
                path.pop();
            }
            "self" | "" => {}
            name => path.push(name.to_owned()),
        }
        if let Some(next) = text.strip_prefix("::") {
            text = next.trim_start();
        } else if name.is_empty()
            && let Some(group) = text.strip_prefix('{')
        {
            text = group.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                let rest = expand(text, &path, found).trim_start();
                text = rest.strip_prefix(',').unwrap_or(rest).trim_start();
                if rest.starts_with(|c: char| c != ',' && c != '}') {
                    break;
                }
            }
            return text.strip_prefix('}').unwrap_or(text);
        } else {
            let mut name = path.last().cloned().unwrap_or_default();
            if let Some(renamed) = text.strip_prefix("as ") {
                let end = renamed
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(renamed.len());
                name = renamed[..end].to_owned();
                text = &renamed[end..];
            }
            found.push((path, name));
            return text.strip_prefix('*').unwrap_or(text);
        }
    }
}

/// Follows re-exports to the path of the definition.
fn defined(mut path: Names, exports: &BTreeMap<Names, Names>) -> Names {
    // A chain of re-exports is short; a cycle would not compile.
    for _ in 0..8 {
        let export = (1..=path.len()).find_map(|end| Some((end, exports.get(&path[..end])?)));
        match export {
            Some((end, from)) if from[..] != path[..end] => path = [from, &path[end..]].concat(),
            _ => break,
        }
    }
    path
}

fn common(one: &[String], other: &[String]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
