//! Checks that every test named in `docs/security.md` exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../security.md");

#[test]
fn every_named_test_exists() {
    let tree = Tree::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")));
    let names = names_in(DOCUMENT);
    assert!(names.len() > 200, "found {} names", names.len());
    let missing: Vec<String> = names
        .iter()
        .filter(|name| !tree.has(name))
        .map(|name| format!("line {}: {:?}", name.line, name.what))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/security.md names what does not exist:\n{}",
        missing.join("\n")
    );
}

#[test]
fn a_missing_name_is_found() {
    let tree = Tree {
        tests: vec![
            Test::new("pond/src/reed.rs", "mod tests {", "otters_swim"),
            Test::new("pond/tests/shore/heron.rs", "", "herons_wait_for_fish"),
        ],
        entries: BTreeSet::from(["cases/big-fish".into(), "pond/tests/shore/heron.rs".into()]),
        words: BTreeSet::from(["tides".into()]),
    };
    for (cell, want) in [
        ("`reed::tests::otters_swim`, `reed::tests`", true),
        ("`heron::herons_wait_for_fish`", true),
        ("`heron::*`", true),
        ("`pond/tests/shore/heron.rs`: `herons_wait_for_fish`", true),
        ("case `big-fish`; row `tides`", true),
        ("`reed::tests::herons_wait_for_fish`", false),
        ("`newt::tests`", false),
        ("`newt::*`", false),
        ("`herons_wait_for_frogs`", false),
        ("`pond/src/reed.rs`: `herons_wait_for_fish`", false),
        ("`pond/src/newt.rs`", false),
        ("case `small-fish`", false),
    ] {
        let names = names_in(&format!("| a | b | {cell} |"));
        assert!(!names.is_empty(), "{cell}");
        let found = names.iter().all(|name| tree.has(name));
        assert_eq!(found, want, "{cell}: {names:?}");
    }
}

/// A name in the document that must exist.
#[derive(Debug)]
struct Name {
    line: usize,
    what: Target,
}

#[derive(Debug)]
enum Target {
    /// `module::name`, `module::tests`, `module::*` or a name alone; in this file, if one is
    /// named.
    Test { path: String, file: Option<String> },
    /// The end of a path.
    File(String),
    /// A folder or file of cases, a test target, or a row of one.
    Word(String),
}

/// The file to which the next names belong: in `path.rs`: `one`, `two`.
enum Scope {
    None,
    /// The path was just named.
    Path(String),
    /// The path is followed by names of its tests.
    Names(String),
}

/// Reads the code spans. Paths, cases and rows count only in the last column of tables, where
/// tests are named.
fn names_in(document: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for (line, text) in (1..).zip(document.lines()) {
        let row = text.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let last = row
            .and_then(|row| row.rsplit_once('|'))
            .map(|(_, last)| last);
        let mut scope = Scope::None;
        let mut parts = last.unwrap_or(text).split('`');
        while let (Some(between), Some(span)) = (parts.next(), parts.next()) {
            let goes_on = match scope {
                Scope::None => false,
                Scope::Path(_) => between == ": ",
                Scope::Names(_) => matches!(between, ", " | " and " | ", and "),
            };
            scope = match scope {
                Scope::Path(file) | Scope::Names(file) if goes_on => Scope::Names(file),
                Scope::None | Scope::Path(_) | Scope::Names(_) => Scope::None,
            };
            let what = match form(span) {
                Form::Test => Target::Test {
                    path: span.into(),
                    file: match &scope {
                        Scope::Names(file) => Some(file.clone()),
                        Scope::None | Scope::Path(_) => None,
                    },
                },
                Form::File if last.is_some() => {
                    scope = Scope::Path(span.into());
                    Target::File(span.into())
                }
                Form::Word if last.is_some() => Target::Word(span.into()),
                Form::File | Form::Word | Form::Other => continue,
            };
            names.push(Name { line, what });
        }
    }
    names
}

enum Form {
    Test,
    File,
    Word,
    Other,
}

fn form(span: &str) -> Form {
    let made_of = |more: &str| {
        span.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c))
    };
    if made_of("_:*") && (span.contains("::") || span.matches('_').count() >= 2) {
        Form::Test
    } else if made_of("-_./") && (span.ends_with(".rs") || span.ends_with(".yaml")) {
        Form::File
    } else if made_of("-") {
        Form::Word
    } else {
        Form::Other
    }
}

/// The names in the source tree.
struct Tree {
    tests: Vec<Test>,
    /// Paths of files and folders, without those of builds.
    entries: BTreeSet<String>,
    /// Quoted words in tests: rows of tables.
    words: BTreeSet<String>,
}

struct Test {
    file: String,
    /// Modules of the file's path, and those within the file.
    modules: Vec<String>,
    name: String,
}

impl Test {
    fn new(file: &str, module: &str, name: &str) -> Test {
        let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let mut modules: Vec<String> = path.split('/').map(Into::into).collect();
        modules.extend(opened_module(module).map(Into::into));
        Test {
            file: file.into(),
            modules,
            name: name.into(),
        }
    }
}

/// The name in `mod name {`.
fn opened_module(line: &str) -> Option<&str> {
    line.trim().strip_prefix("mod ")?.strip_suffix(" {")
}

/// The name in `fn name(`.
fn function(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?
        .split_once('(')
        .map(|(name, _)| name)
}

impl Tree {
    fn read(root: &Path) -> Tree {
        let mut tree = Tree {
            tests: Vec::new(),
            entries: BTreeSet::new(),
            words: BTreeSet::new(),
        };
        tree.add(root, root);
        tree
    }

    fn add(&mut self, root: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path: PathBuf = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || name == "target" || name == "node_modules" {
                continue;
            }
            let relative = path.strip_prefix(root).expect("below the root");
            let relative = relative.to_string_lossy().into_owned();
            if path.is_dir() {
                self.add(root, &path);
            } else if name.ends_with(".rs") {
                self.add_source(&relative, &fs::read_to_string(&path).expect("text"));
            }
            self.entries.insert(relative);
        }
    }

    fn add_source(&mut self, file: &str, text: &str) {
        let mut module = "";
        let mut is_test = false;
        // A program with a main of its own names its tests as texts.
        let has_main = text.contains("fn main() -> ExitCode");
        let is_named = |name: &str| has_main && text.contains(&format!("\"{name}\""));
        for line in text.lines() {
            let code = line.trim();
            if !line.starts_with(' ') && opened_module(line).is_some() {
                module = line;
            } else if line == "}" {
                module = "";
            }
            if code.starts_with("#[") {
                is_test |= ["#[test]", "#[tokio::test"]
                    .iter()
                    .any(|attribute| code.starts_with(attribute));
            } else if let Some(name) = function(line) {
                if is_test || is_named(name) {
                    self.tests.push(Test::new(file, module, name));
                }
                is_test = false;
            }
        }
        if file.contains("/tests/") {
            let words = text.split('"').skip(1).step_by(2);
            self.words.extend(words.map(Into::into));
        }
    }

    fn has(&self, name: &Name) -> bool {
        match &name.what {
            Target::Test { path, file } => self.tests.iter().any(|test| {
                let file = file.as_ref();
                file.is_none_or(|file| test.file.ends_with(file)) && test.is_called(path)
            }),
            Target::File(path) => self.entries.iter().any(|entry| ends_with(entry, path)),
            Target::Word(word) => {
                self.words.contains(word)
                    || self.entries.iter().any(|entry| {
                        let (entry, _) = entry.rsplit_once('.').unwrap_or((entry, ""));
                        ends_with(entry, word)
                    })
            }
        }
    }
}

impl Test {
    /// True if a path names this test, or a module around it.
    fn is_called(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split("::").collect();
        let (last, above) = parts.split_last().expect("a part");
        let within = |modules: &[&str]| {
            self.modules.len() >= modules.len()
                && self.modules[self.modules.len() - modules.len()..]
                    .iter()
                    .zip(modules)
                    .all(|(one, other)| one == other)
        };
        match *last {
            "*" => within(above),
            name => (name == self.name && within(above)) || (parts.len() > 1 && within(&parts)),
        }
    }
}

/// True if a path ends with another one, by whole names.
fn ends_with(path: &str, end: &str) -> bool {
    let end = end.trim_end_matches('/');
    path.strip_suffix(end)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}
