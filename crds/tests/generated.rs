//! The committed definitions and the chart's copies match the types.

#[path = "../yaml/crdgen.rs"]
mod crdgen;

#[test]
fn committed_files_are_current() {
    let stale: Vec<String> = crdgen::files()
        .iter()
        .filter_map(|(path, text)| {
            toolcrib_golden::compare(path, text, &toolcrib_golden::here!().command()).err()
        })
        .collect();
    assert!(stale.is_empty(), "{}", stale.join("\n\n"));
}
