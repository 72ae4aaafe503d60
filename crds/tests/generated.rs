//! What is committed is what the types say.

#[path = "../yaml/crdgen.rs"]
mod crdgen;

#[test]
fn committed_files_are_current() {
    let stale: Vec<String> = crdgen::files()
        .into_iter()
        .filter(|(path, text)| std::fs::read_to_string(path).ok().as_ref() != Some(text))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(
        stale.is_empty(),
        "stale: {stale:#?}\nrun: cargo run -p toolcrib-crds --example crdgen"
    );
}
