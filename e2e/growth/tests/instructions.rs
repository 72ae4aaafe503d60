//! Every entry point executes instructions linear in its input: its own and its dependencies'.
//!
//! Callgrind counts them. `UPDATE_EXPECT=1 ./e2e/run growth` writes the table in `docs/bounds.md`.
//! With `TOOLCRIB_GROWTH=text,text`, only entry points whose name contains one of the texts are
//! counted, and the other rows stay as they are.
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use toolcrib_growth::entries::{self, Entry};
use toolcrib_growth::table::{self, WorstGrowth};
use toolcrib_growth::{SCALES, judge};

/// A step below these is noise, such as the reallocation of a hash table, or the first touch of a
/// memory page.
const FEW_INSTRUCTIONS: u64 = 60_000;
const FEW_BYTES: u64 = 16 * 1024;

/// Largest accepted difference between the documented and the measured growth, besides rounding.
const DRIFT: f64 = 0.4;

type Counts = [u64; SCALES.len()];

/// The counts of one shape.
#[derive(Debug, Default)]
struct Series {
    instructions: Counts,
    allocated: Counts,
}

#[test]
fn instructions_grow_linearly() {
    let parts = std::env::var("TOOLCRIB_GROWTH").unwrap_or_default();
    let entries = entries::all();
    let chosen: Vec<&Entry> = entries
        .iter()
        .filter(|entry| parts.split(',').any(|part| entry.name.contains(part)))
        .collect();
    assert!(!chosen.is_empty(), "no entry point's name has {parts:?}");
    let counted = counted_in_parallel(&chosen);
    let mut failures = Vec::new();
    let mut measured = BTreeMap::new();
    for entry in chosen {
        let mut worst: Option<WorstGrowth> = None;
        for shape in &entry.shapes {
            let series = &counted[&(entry.name.to_owned(), shape.name.to_owned())];
            let found = WorstGrowth {
                shape: shape.name.to_owned(),
                instructions: judge::growth(series.instructions, FEW_INSTRUCTIONS),
                allocated: judge::growth(series.allocated, FEW_BYTES),
            };
            if found.instructions.max(found.allocated) > judge::MOST {
                failures.push(format!("{}: {found:?}: {series:?}", entry.name));
            }
            if worst
                .as_ref()
                .is_none_or(|worst| found.instructions > worst.instructions)
            {
                worst = Some(found);
            }
        }
        measured.insert(entry.name, worst.expect("every entry point has a shape"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    compare_with_table(&entries, &measured);
}

/// Compares or writes the rows of the measured entry points.
fn compare_with_table(entries: &[Entry], measured: &BTreeMap<&str, WorstGrowth>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bounds.md");
    let document = std::fs::read_to_string(path).expect("docs/bounds.md");
    let new_row = |entry: &Entry| Some(table::row(entry, measured.get(entry.name)?));
    let new_rows: Vec<String> = entries.iter().filter_map(new_row).collect();
    println!("{}", new_rows.join("\n"));
    if toolcrib_golden::updating() {
        let row = |entry: &Entry| {
            let row = new_row(entry).or_else(|| table::row_of(&document, entry));
            row.unwrap_or_else(|| panic!("{} has no row: count it, too", entry.name))
        };
        let rows: Vec<String> = entries.iter().map(row).collect();
        let document = table::replaced(&document, &rows).expect("docs/bounds.md has the table");
        std::fs::write(path, document).expect("docs/bounds.md can be written");
        return;
    }
    let documented = table::read(&document, entries);
    let is_current = documented.as_ref().is_ok_and(|rows| {
        rows.iter().zip(entries).all(|(row, entry)| {
            measured
                .get(entry.name)
                .is_none_or(|found| (row.instructions - found.instructions).abs() <= DRIFT)
        })
    });
    assert!(
        is_current,
        "docs/bounds.md differs: {documented:#?}\nWrite it anew: UPDATE_EXPECT=1 ./e2e/run growth"
    );
}

/// Returns the series of these entry points, by entry point and shape. Runs one process per core
/// until all entry points are counted.
fn counted_in_parallel(entries: &[&Entry]) -> BTreeMap<(String, String), Series> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Not the entry points, which hold functions of this thread.
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let next = AtomicUsize::new(0);
    let counted_on_core = || {
        let mut series = BTreeMap::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            series.extend(counted(name));
        }
        series
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..cores).map(|_| scope.spawn(counted_on_core)).collect();
        let counts = runs.into_iter().map(|run| run.join().expect("no panic"));
        counts.flatten().collect()
    })
}

/// Runs an entry point under callgrind.
fn counted(name: &str) -> BTreeMap<(String, String), Series> {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = folder.path().join("callgrind");
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg("--toggle-collect=toolcrib_growth::growth_measured")
        .arg("--dump-after=toolcrib_growth::growth_measured")
        .arg("--dump-line=no")
        .arg(format!("--callgrind-out-file={}", parts.display()))
        .arg(env!("CARGO_BIN_EXE_growth"))
        .arg(name)
        .output()
        .expect("valgrind runs: ./e2e/run growth installs it");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    let printed = String::from_utf8(run.stdout).expect("is text");
    let mut series: BTreeMap<(String, String), Series> = BTreeMap::new();
    for (at, line) in printed.lines().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, shape, scale, allocated] = fields[..] else {
            panic!("{line}");
        };
        let scale: usize = scale.parse().expect("a number");
        let place = SCALES.iter().position(|of| *of == scale).expect("a scale");
        let series = series
            .entry((name.to_owned(), shape.to_owned()))
            .or_default();
        // Callgrind numbers its parts from 1.
        series.instructions[place] = instructions(&parts, at + 1);
        series.allocated[place] = allocated.parse().expect("a number");
    }
    series
}

/// Reads the count of one call from the file that callgrind wrote after it.
fn instructions(parts: &Path, part: usize) -> u64 {
    let path = format!("{}.{part}", parts.display());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let summary = text.lines().find_map(|line| {
        line.strip_prefix("summary: ")
            .or(line.strip_prefix("totals: "))
    });
    summary
        .and_then(|count| count.split_whitespace().next())
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{path} has no count"))
}
