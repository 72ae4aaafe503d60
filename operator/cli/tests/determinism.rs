//! The same objects give the same bytes, in any order and in any files.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn compile(files: &[PathBuf]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"));
    command.arg("compile");
    for file in files {
        command.arg("-f").arg(file);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn order_and_files_do_not_matter() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds/examples/trading-desk");
    let mut files: Vec<PathBuf> = fs::read_dir(&example)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let whole = compile(std::slice::from_ref(&example));
    assert_eq!(whole, compile(&files));
    files.reverse();
    assert_eq!(whole, compile(&files));

    let mut documents: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.split("\n---\n")
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        })
        .collect();
    documents.sort();
    let one = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(one.path(), documents.join("\n---\n")).unwrap();
    assert_eq!(whole, compile(&[one.path().to_path_buf()]));
}

#[test]
fn no_secret_is_printed() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds/examples/trading-desk");
    let printed = compile(std::slice::from_ref(&example));
    for secret in [
        "sk-scripted-7c1e52f0",
        "desk-reader-41d9b7a2",
        "desk-executor-e83c06f5",
    ] {
        let written = fs::read_dir(&example).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            path.is_file() && fs::read_to_string(path).unwrap().contains(secret)
        });
        assert!(
            written,
            "the example no longer holds {secret}; this test must follow it"
        );
        assert!(!printed.contains(secret), "{secret} is printed");
    }
    assert!(printed.contains("${secret:trading/trading-api-reader/token}"));
}
