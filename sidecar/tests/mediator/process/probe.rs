//! The binary itself: probes, a start without files, SIGTERM.

use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::support::World;

fn probe(world: &World, question: &str) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_toolcrib-sidecar"))
        .args(["probe", question, "--admin-listen"])
        .arg(world.server.admin_address.to_string())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_distinguish_ready_from_live() {
    let mut world = World::start().await;
    assert!(probe(&world, "--ready").status.success());
    assert!(probe(&world, "--live").status.success());
    world.files.swap([]);
    world.until(|now| now.version().is_err()).await;
    let not_ready = probe(&world, "--ready");
    assert!(!not_ready.status.success());
    let says = String::from_utf8(not_ready.stderr).unwrap();
    assert!(says.contains("access is withdrawn"), "{says}");
    assert!(probe(&world, "--live").status.success());
}

#[test]
fn starting_without_files_fails_with_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let history = tempfile::tempdir().unwrap();
    let token = history.path().join("token");
    let claims = r#"{"kubernetes.io":{"namespace":"pond","pod":{"name":"otter-0","uid":"u-7"}}}"#;
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims);
    std::fs::write(&token, format!("e30.{claims}.c2ln")).unwrap();
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_toolcrib-sidecar"))
        .arg("--config-dir")
        .arg(empty.path())
        .arg("--link-token-file")
        .arg(token)
        .arg("--history-dir")
        .arg(history.path())
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(began.elapsed() < Duration::from_secs(15));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("no manifest in"), "{text}");
    assert!(
        text.contains("for the agent of pod pond/otter-0,"),
        "{text}"
    );
    let command = "`kubectl get pod otter-0 -n pond -L toolcrib.dev/agent`";
    assert!(text.contains(command), "{text}");
}

/// A mediator that waits for its first manifest listens and answers no request.
#[test]
fn a_probe_without_an_answer_reports_not_ready() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_toolcrib-sidecar"))
        .args(["probe", "--ready", "--admin-listen"])
        .arg(silent.local_addr().unwrap().to_string())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("not ready: no answer from 127.0.0.1"),
        "{text}"
    );
    assert!(!text.contains("os error"), "{text}");
}

/// Returns the one line that the binary prints about its failure.
fn failure(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_toolcrib-sidecar"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_failure_names_its_cause_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let free = "127.0.0.1:0";
    let files = ["--config-dir", folder, "--history-dir", folder];
    let listen = [&files[..], &["--listen", free, "--admin-listen", &address]].concat();
    let no_folder = [
        "--config-dir",
        folder,
        "--history-dir",
        "/dev/null/history",
        "--listen",
        free,
        "--admin-listen",
        free,
    ];
    let start = [failure(&listen), failure(&no_folder)];
    drop(taken);
    let probe = failure(&["probe", "--ready", "--admin-listen", &address]);
    assert!(
        probe.contains(&format!("no answer from {address}: ")),
        "{probe}"
    );
    for text in start.iter().chain([&probe]) {
        assert_eq!(text.matches("os error").count(), 1, "{text}");
    }
}
