//! Tests with unchanged third-party servers and clients: the official SDKs for Node and Python.

use serde_json::{Value, json};
use tokio::process::Command;
use toolcrib_e2e::packages;

use crate::support::Wrapper;

fn beside(file: &str) -> String {
    format!("{}/tests/wrapper/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn python() -> String {
    packages::python("requirements.txt")
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

/// Returns the results that the official client gets from the wrapper.
async fn ask(wrapper: &Wrapper, mode: &str, calls: &[&str]) -> Value {
    let output = Command::new(python())
        // -B: no cache files beside the sources.
        .args(["-B", &beside("client.py"), &wrapper.url("/mcp"), mode])
        .args(calls)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The client's modes, each with the revision that it negotiates. By default that is the newer one;
/// `legacy` selects the one with sessions.
const MODES: [(&str, &str); 2] = [("auto", "2026-07-28"), ("legacy", "2025-11-25")];

#[tokio::test]
async fn the_official_client_calls_the_official_server_for_node_in_both_revisions() {
    let modules = packages::node_modules("mcp").unwrap();
    let program = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let command = ["node", program.to_str().unwrap(), "stdio"];
    let wrapper = Wrapper::start_command(&[], &command).await;
    for (mode, version) in MODES {
        let answer = ask(&wrapper, mode, &["echo", r#"{"message": "otter"}"#]).await;
        assert_eq!(answer["version"], version);
        assert_eq!(answer["said"], json!([["Echo: otter"]]));
        let tools = answer["tools"].as_array().unwrap();
        assert!(tools.contains(&json!("get-sum")), "{tools:?}");
    }
}

#[tokio::test]
async fn a_server_on_the_official_sdk_for_python_may_end_in_mid_call() {
    let wrapper = Wrapper::start_command(&[], &[&python(), "-B", &beside("server.py")]).await;
    for (mode, version) in MODES {
        let sum = r#"{"a": 2, "b": 3}"#;
        let answer = ask(&wrapper, mode, &["add", sum, "leave", "{}", "add", sum]).await;
        let ended = json!({
            "code": -32012, "message": "the program ended while the call was running",
            "data": {"reason": "program_ended", "mayHaveRun": true},
        });
        let expected = json!({
            "version": version, "server": "heron", "instructions": "Wade.",
            "tools": ["add", "leave"], "said": [["5"], ended, ["5"]],
        });
        assert_eq!(answer, expected);
    }
}
