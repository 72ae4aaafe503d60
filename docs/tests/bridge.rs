//! Runs the chat bridge of `docs/approvals.md` as it is printed there, with a kubectl whose watches end
//! and a chat that fails once.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../approvals.md");
const DEADLINE: Duration = Duration::from_secs(60);

/// Prints one watch after the other. The last one does not end.
const KUBECTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
watch="watch-$(wc -l < calls | tr -d ' ')"
cat "$watch"
test -e "$watch.ends" || exec cat > /dev/null
"#;

/// Python runs this before the program: pauses are noted and take no time.
const WITHOUT_PAUSES: &str = r#"
import os, time

def pause(seconds):
    with open(os.environ["PAUSES"], "a") as pauses:
        pauses.write(f"{seconds}\n")

time.sleep = pause
"#;

/// The program between the fences.
fn bridge() -> &'static str {
    let (_, rest) = DOCUMENT.split_once("```python\n").unwrap();
    rest.split_once("```\n").unwrap().0
}

fn approval(name: &str, phase: Option<&str>, expires: &str) -> Value {
    let mut approval = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolApproval",
        "metadata": {"name": name, "namespace": "pond", "uid": format!("uid-of-{name}")},
        "spec": {
            "agent": {"name": "otter", "uid": "a"}, "tool": "kelp.dive", "tier": "System",
            "arguments": r#"{"depth":40,"note":"} {"}"#, "expiresAt": expires,
        },
    });
    if let Some(phase) = phase {
        approval["status"] = json!({"phase": phase});
    }
    approval
}

fn pending(name: &str) -> Value {
    approval(name, Some("Pending"), "2099-01-01T00:00:00Z")
}

/// A running bridge. Dropping it ends the program and its kubectl.
struct Bridge(Child);

impl Drop for Bridge {
    fn drop(&mut self) {
        // Err: it has ended already. Its kubectl ends with the standard input, which they share.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn start(folder: &Path, hook: &str) -> Bridge {
    let kubectl = folder.join("kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("sitecustomize.py"), WITHOUT_PAUSES).unwrap();
    fs::write(folder.join("bridge.py"), bridge()).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    let child = Command::new("python3")
        .arg(folder.join("bridge.py"))
        .arg(hook)
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PAUSES", folder.join("pauses"))
        .env("no_proxy", "127.0.0.1")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    Bridge(child)
}

/// A chat that refuses the first message. Returns its address and the texts that it gets.
fn chat() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!("http://{}/hook", listener.local_addr().unwrap());
    let (told, texts) = mpsc::channel();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.trim().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let status = match number {
                0 => "503 Service Unavailable",
                _ => "200 OK",
            };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let text = body["text"].as_str().unwrap().to_owned();
            if told.send(text).is_err() {
                return;
            }
        }
    });
    (hook, texts)
}

#[test]
fn the_bridge_tells_each_pending_call_once_over_ended_watches_and_a_failing_chat() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let watches = [
        vec![
            pending("one"),
            approval("decided", Some("Approved"), "2099-01-01T00:00:00Z"),
            approval("over", Some("Pending"), "2020-01-01T00:00:00Z"),
            approval("new", None, "2099-01-01T00:00:00Z"),
            pending("one"),
        ],
        vec![
            approval("one", Some("Approved"), "2099-01-01T00:00:00Z"),
            pending("new"),
            pending("two"),
        ],
        vec![pending("two"), pending("last")],
    ];
    for (number, watch) in watches.iter().enumerate() {
        let file = folder.join(format!("watch-{}", number + 1));
        let objects = watch
            .iter()
            .map(|it| serde_json::to_string_pretty(it).unwrap() + "\n");
        fs::write(&file, objects.collect::<String>()).unwrap();
        if number + 1 < watches.len() {
            fs::write(file.with_extension("ends"), "").unwrap();
        }
    }
    let (hook, texts) = chat();
    let bridge = start(folder, &hook);
    let mut told = Vec::new();
    while told.last().is_none_or(|name| name != "last") {
        let text = texts.recv_timeout(DEADLINE).unwrap();
        let (_, name) = text.rsplit_once("\nkubectl toolcrib deny ").unwrap();
        let (name, rest) = name.split_once(' ').unwrap();
        assert_eq!(rest, "-n pond --reason …");
        let expected = format!(
            "Agent otter wants to call kelp.dive (System):\n{}\nIt expires at 2099-01-01T00:00:00Z.\n\
             kubectl toolcrib approve {name} -n pond\nkubectl toolcrib deny {name} -n pond --reason …",
            r#"{"depth":40,"note":"} {"}"#
        );
        assert_eq!(text, expected);
        told.push(name.to_owned());
    }
    // The first one twice: the chat refused it.
    assert_eq!(told, ["one", "one", "new", "two", "last"]);
    let calls = fs::read_to_string(folder.join("calls")).unwrap();
    assert_eq!(
        calls,
        "get toolapprovals -A --watch --output json\n".repeat(3)
    );
    // After the refusal, and after each watch that ended.
    let pauses = fs::read_to_string(folder.join("pauses")).unwrap();
    assert_eq!(pauses, "5\n".repeat(3));
    drop(bridge);
}
