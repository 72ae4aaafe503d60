//! `approvals --watch`: a line for each call, and one whenever its phase changes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::ToolApproval;

use super::super::{DEADLINE, client, define, kubeconfig, label};
use super::{ask, clear, write_status};

const NAMESPACE: &str = "watched";

/// The running command. Dropping it ends the command.
struct Watch {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Watch {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
            .args(["approvals", "-n", NAMESPACE, "--watch"])
            .env("KUBECONFIG", kubeconfig())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // The thread ends with the command.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Name, agent, tool and phase of the next line.
    fn next(&self) -> String {
        let line = self.lines.recv_timeout(DEADLINE).unwrap();
        let (before, arguments) = line.split_once("{").unwrap();
        assert_eq!(arguments, r#""depth":40,"note":"r\u0435d"}"#);
        let words: Vec<&str> = before.split_whitespace().collect();
        let expires = words.iter().position(|word| *word == "in").unwrap();
        words[..expires].join(" ")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Err: it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn decide(client: &Client, name: &str, phase: &str) {
    let approvals: Api<ToolApproval> = Api::namespaced(client.clone(), NAMESPACE);
    let status: Value = json!({"status": {"phase": phase, "decidedBy": "heron"}});
    write_status(&approvals, name, &status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_each_call_and_each_change_of_its_phase() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    clear(&client, NAMESPACE, "toolapprovals").await;
    ask(&client, NAMESPACE, "otter-early", 1).await;
    let watch = Watch::start();
    assert_eq!(watch.next(), "otter-early otter kelp.dive Pending");
    ask(&client, NAMESPACE, "otter-late", 1).await;
    assert_eq!(watch.next(), "otter-late otter kelp.dive Pending");
    decide(&client, "otter-early", "Approved").await;
    assert_eq!(
        watch.next(),
        "otter-early otter kelp.dive Approved by heron"
    );
    // A change of anything else is no line.
    let approvals: Api<ToolApproval> = Api::namespaced(client.clone(), NAMESPACE);
    let labels = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    approvals
        .patch("otter-late", &PatchParams::default(), &labels)
        .await
        .unwrap();
    decide(&client, "otter-late", "Denied").await;
    assert_eq!(watch.next(), "otter-late otter kelp.dive Denied by heron");
}
