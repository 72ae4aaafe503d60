//! Each file of the product that parses bytes is in `readers.txt`: with the rows of the growth
//! table that count its work and the fuzz targets that run it, or with the reason why it needs none.
//! The table of fuzz targets in `docs/bounds.md` has every target.
//!
//! A file parses bytes if its code names one of [`PARSERS`]. Tests are not read. [`PARSERS`] does
//! not contain `Url::parse` and the parsers of headers and UTF-8: they are linear in one text that
//! another parser has extracted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toolcrib_growth::entries;

/// Names in code that call a parser.
const PARSERS: &[&str] = &[
    "Archive::new",
    "Array::scan(",
    "GzDecoder",
    "Json<",
    "Message::parse(",
    "NO_PAD.decode",
    "Object::scan(",
    "PemObject",
    "Regex::new",
    "RegexBuilder",
    "RegexSet",
    "STANDARD.decode",
    "SseParser::new",
    "URL_SAFE.decode",
    "from_pem",
    "hex::decode",
    "jsonschema::",
    "percent_decode",
    "regex_syntax::",
    "saphyr_parser::",
    "serde_json::Deserializer",
    "serde_json::from_",
    "serde_json::{",
    "serde_path_to_error::",
    "serde_yaml::Deserializer",
    "serde_yaml::from_",
];

/// `serde_json::{` reaches a parser only with one of these in the braces.
const OF_GROUPS: [&str; 2] = ["Deserializer", "from_"];

#[test]
fn every_file_that_parses_bytes_has_a_row_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crds", "operator", "sidecar"] {
        sources(&root.join(folder), &mut files);
    }
    let parsing: BTreeSet<String> = files
        .iter()
        .filter(|file| parses(&fs::read_to_string(file).expect("a file in UTF-8")))
        .map(|file| {
            let path = file.strip_prefix(&root).expect("a file below the root");
            path.to_str().expect("a path in UTF-8").to_owned()
        })
        .collect();
    // Without this, a moved folder would go unnoticed.
    assert!(parsing.len() > 50, "{parsing:?}");
    let rows = entries::all().iter().map(|entry| entry.name).collect();
    let targets = targets();
    let targets = targets.iter().map(String::as_str).collect();
    let errors = compared(&parsing, include_str!("../readers.txt"), &rows, &targets);
    assert!(
        errors.is_empty(),
        "mend e2e/growth/readers.txt, whose head says how:\n{}",
        errors.join("\n")
    );
}

#[test]
fn the_documented_table_names_every_fuzz_target() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bounds.md");
    let document = fs::read_to_string(path).expect("docs/bounds.md");
    let (_, table) = document
        .split_once("| target | inputs | time | found |\n|---|---|---|---|\n")
        .expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let documented: Vec<String> = rows
        .map(|row| row.split('|').nth(1).expect("a cell").trim().to_owned())
        .collect();
    let distinct: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(
        distinct.len(),
        documented.len(),
        "a target stands there twice"
    );
    assert_eq!(distinct, targets());
}

/// The names of all fuzz targets, as their tests write them.
fn targets() -> BTreeSet<String> {
    let programs = [
        include_str!("fuzz/main.rs"),
        include_str!("fuzz/wire.rs"),
        include_str!("../../../sidecar/dialect/tests/fuzz.rs"),
    ];
    let targets: BTreeSet<String> = programs
        .iter()
        .flat_map(|program| {
            let calls = program.split("fuzz(").chain(program.split("fuzz_bytes("));
            calls.filter_map(|call| {
                let (name, _) = call.trim_start().strip_prefix('"')?.split_once('"')?;
                Some(name.to_owned())
            })
        })
        .collect();
    // Fewer targets mean that calls are written in a way that this function does not find.
    assert!(targets.len() > 20, "{targets:?}");
    targets
}

#[test]
fn a_new_file_with_a_parser_is_found() {
    assert!(parses("fn read() { serde_json::from_str(text) }"));
    assert!(parses("use serde_json::{Value, from_str};"));
    assert!(!parses("use serde_json::{Value, json};"));
    assert!(!parses("// serde_json::from_str is elsewhere"));
    assert!(!parses(
        "\n#[cfg(test)]\nmod tests { use tar::Archive; Archive::new(x) }"
    ));

    let parsing = ["a.rs", "b.rs", "c/d.rs", "e.rs"].map(String::from).into();
    let list = "# head\na.rs | row | otter | swim\nc/ | own | ours\nb.rs | bounded | small | no: tiny\n\
        f.rs | row | eel | dive\n";
    let expected = [
        "b.rs | bounded | small | no: tiny: names no number",
        "e.rs parses bytes and is not in the list",
        "f.rs | row | eel | dive: has no parser, or is not there",
        "f.rs | row | eel | dive: there is no row eel",
        "f.rs | row | eel | dive: there is no target dive",
    ];
    let errors = compared(&parsing, list, &["otter"].into(), &["swim"].into());
    assert_eq!(errors, expected);
    let errors = compared(
        &parsing,
        "a.rs | row | otter\n",
        &["otter"].into(),
        &[].into(),
    );
    assert!(
        errors[1].starts_with("a.rs | row | otter: write PATH"),
        "{errors:?}"
    );
}

/// The sources of all crates below a folder.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_skipped = [
            "target", "tests", "tests.rs", "benches", "examples", "build.rs",
        ]
        .contains(&name.expect("a name in UTF-8"));
        if is_skipped {
            continue;
        }
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

/// Whether the code, without comments and its test module, names a parser.
fn parses(text: &str) -> bool {
    let end = text
        .find("\n#[cfg(test)]\nmod tests {")
        .unwrap_or(text.len());
    let lines = text[..end].lines();
    let code: Vec<&str> = lines
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let code = code.join("\n");
    PARSERS.iter().any(|parser| {
        code.match_indices(parser).any(|(at, _)| {
            let rest = &code[at..];
            let group = rest.split('}').next().unwrap_or(rest);
            !parser.ends_with('{') || OF_GROUPS.iter().any(|name| group.contains(name))
        })
    })
}

/// Returns the faults of the list, given the files that parse bytes and the names of the rows and
/// fuzz targets.
fn compared(
    parsing: &BTreeSet<String>,
    list: &str,
    rows: &BTreeSet<&str>,
    targets: &BTreeSet<&str>,
) -> Vec<String> {
    let mut errors = Vec::new();
    let mut listed = BTreeMap::new();
    for line in list.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(" | ").collect();
        let (path, kind, text, fuzz) = match fields[..] {
            [path, kind, text] if kind == "own" => (path, kind, text, None),
            [path, kind, text, fuzz] if kind != "own" => (path, kind, text, Some(fuzz)),
            _ => {
                errors.push(format!(
                    "{line}: write PATH | KIND | TEXT | FUZZ, or PATH | own | REASON"
                ));
                continue;
            }
        };
        if let Some(fuzz) = fuzz.filter(|fuzz| !fuzz.starts_with("no: ")) {
            let unknown = fuzz.split("; ").filter(|target| !targets.contains(target));
            errors.extend(unknown.map(|target| format!("{line}: there is no target {target}")));
        }
        if listed.insert(path, kind).is_some() {
            errors.push(format!("{line}: stands here a second time"));
        }
        if !parsing.iter().any(|file| is_at(file, path)) {
            errors.push(format!("{line}: has no parser, or is not there"));
        }
        match kind {
            "row" => {
                let unknown = text.split("; ").filter(|row| !rows.contains(row));
                errors.extend(unknown.map(|row| format!("{line}: there is no row {row}")));
            }
            "own" => {}
            "bounded" if text.contains(|c: char| c.is_ascii_digit()) => {}
            "bounded" => errors.push(format!("{line}: names no number")),
            _ => errors.push(format!("{line}: the kind is row, own or bounded")),
        }
    }
    let missing = parsing
        .iter()
        .filter(|file| !listed.keys().any(|path| is_at(file, path)));
    errors.extend(missing.map(|file| format!("{file} parses bytes and is not in the list")));
    errors.sort();
    errors
}

/// Whether a file is the one at a path, or below it if the path ends with a slash.
fn is_at(file: &str, path: &str) -> bool {
    file == path || (path.ends_with('/') && file.starts_with(path))
}
