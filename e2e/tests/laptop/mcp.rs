//! MCP servers that others wrote, unchanged, called by the real mediator: the protocol
//! project's own test server (sessions, streams of events, progress), the official Python SDK
//! and FastMCP (no sessions).

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use toolcrib_e2e::{model::Script, packages};

use crate::machine::{DEADLINE, Laptop, POLL, document, example, repository, runner};

/// A server that ends with the test.
struct McpServer {
    child: Child,
    address: SocketAddr,
}

impl McpServer {
    /// Listening on a port of its own when this returns.
    fn start(command: impl FnOnce(u16) -> Command) -> Self {
        // Free a moment ago; a test of this machine that takes it in between fails loudly.
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = command(address.port());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(began.elapsed() < DEADLINE, "the server does not listen");
            std::thread::sleep(POLL);
        }
        server
    }

    fn python(program: &str) -> Self {
        let sources = repository().join("e2e/mcp");
        let python = packages::python("mcp/requirements.txt").unwrap();
        Self::start(|port| {
            let mut command = Command::new(python);
            command.arg("-B").arg(sources.join(program));
            command.arg(port.to_string());
            command
        })
    }

    fn everything() -> Self {
        let packages = packages::node_modules("mcp").unwrap();
        let program = "@modelcontextprotocol/server-everything/dist/index.js";
        Self::start(|port| {
            let mut command = Command::new("node");
            command.arg(packages.join(program)).arg("streamableHttp");
            command.env("PORT", port.to_string());
            command
        })
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        // Err: it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An agent whose surface is this server hears these results when it says these words.
fn check(surface: &str, server: &McpServer, expected: &[(&str, Value)]) {
    let folder = repository().join("e2e/mcp");
    let script = fs::read_to_string(folder.join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let objects = folder.join("objects.yaml");
    let program = runner("agent_stdlib.py");
    // The others are not there, and nobody calls them.
    let mut flags = vec!["-f".to_string(), objects.to_str().unwrap().to_string()];
    for name in ["everything", "heron", "ibis"] {
        let address = match name == surface {
            true => server.address.to_string(),
            false => "127.0.0.1:1".to_string(),
        };
        flags.extend(["--at".to_string(), format!("{name}=http://{address}")]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for (words, result) in expected {
        let command = ["python3", program.as_str(), "--json", words];
        let output = laptop.run_with(&[], &example(), "caller", &flags, &command);
        let answer = document(&output);
        let said: Value = serde_json::from_str(answer["answer"].as_str().unwrap()).unwrap();
        assert_eq!(said, *result, "{words}");
        assert_eq!(answer["tool_calls"], json!([]));
    }
}

#[test]
fn the_protocol_s_own_test_server_is_called_in_a_session() {
    let done = "Long running operation completed. Duration: 1 seconds, Steps: 4.";
    let image = "Here's the image you requested:\n[image/png, 4033 bytes]\nThe image above is the MCP logo.";
    let weather = json!({"temperature": 33, "conditions": "Cloudy", "humidity": 82});
    check(
        "everything",
        &McpServer::everything(),
        &[
            ("echo", json!({"ok": true, "data": "Echo: otter"})),
            ("weather", json!({"ok": true, "data": weather})),
            ("picture", json!({"ok": true, "data": image})),
            ("slowly", json!({"ok": true, "data": done})),
        ],
    );
}

#[test]
fn the_official_python_server_is_called_without_a_session() {
    let sum = json!({"ok": true, "data": {"result": 5}});
    check(
        "heron",
        &McpServer::python("mcp_server.py"),
        &[("heron", sum)],
    );
}

#[test]
fn a_fastmcp_server_is_called() {
    let sum = json!({"ok": true, "data": {"result": 6}});
    check(
        "ibis",
        &McpServer::python("fastmcp_server.py"),
        &[("ibis", sum)],
    );
}
