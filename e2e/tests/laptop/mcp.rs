//! Third-party MCP servers, unchanged, called by the real mediator: the MCP project's own test
//! server (sessions, streams of events, progress), the official Python SDK and FastMCP (no
//! sessions), on HTTP and on standard streams behind the wrapper. `surface discover` lists their
//! tools unchanged.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use crate::machine::{
    DEADLINE, Laptop, POLL, built, document, example, repository, runner, stderr, stdout,
};

/// A server that ends with the test.
pub struct McpServer {
    child: Child,
    pub address: SocketAddr,
}

impl McpServer {
    /// Starts the server; it listens on a port of its own when this returns.
    pub fn start(command: impl FnOnce(u16) -> Command) -> Self {
        let address = toolcrib_ports::free().unwrap();
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
        Self::start(|port| python(program, &port.to_string()))
    }

    /// Starts the program, which speaks on standard streams, behind the wrapper. Returns when it is
    /// ready for calls.
    pub fn wrapped(program: &Command) -> Self {
        let wrapper = built("toolcrib-mcp-stdio");
        let server = Self::start(|port| {
            let mut command = Command::new(wrapper);
            command.args(["--listen", &format!("127.0.0.1:{port}"), "--"]);
            command.arg(program.get_program()).args(program.get_args());
            command
        });
        let began = Instant::now();
        while !server.is_ready() {
            assert!(began.elapsed() < DEADLINE, "the program is not ready");
            std::thread::sleep(POLL);
        }
        server
    }

    /// Returns the result of the wrapper's own readiness probe.
    fn is_ready(&self) -> bool {
        let mut answer = String::new();
        let asked = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
            stream.read_to_string(&mut answer)
        });
        asked.is_ok() && answer.starts_with("HTTP/1.0 200")
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

/// Returns the command of one of our programs on a Python SDK. `place` is the port that it listens
/// on, or `stdio`.
fn python(program: &str, place: &str) -> Command {
    let sources = repository().join("e2e/mcp");
    let mut command = Command::new(packages::python("mcp/requirements.txt").unwrap());
    command.arg("-B").arg(sources.join(program)).arg(place);
    command
}

impl Drop for McpServer {
    fn drop(&mut self) {
        // Err: the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Checks that an agent whose surface is this server gets these results.
fn check(surface: &str, server: &McpServer, expected: &[(&str, Value)]) {
    let folder = repository().join("e2e/mcp");
    let script = fs::read_to_string(folder.join("script.yaml")).unwrap();
    let laptop = Laptop::start(Script::parse(&script).unwrap());
    let objects = folder.join("objects.yaml");
    let program = runner("agent_stdlib.py");
    // The other servers do not run, and are not called.
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
fn the_mcp_projects_test_server_is_called_in_a_session() {
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

#[test]
fn servers_of_the_python_sdks_are_called_behind_the_wrapper() {
    for (surface, program, words, sum) in [
        ("heron", "mcp_server.py", "heron", 5),
        ("ibis", "fastmcp_server.py", "ibis", 6),
    ] {
        let sum = json!({"ok": true, "data": {"result": sum}});
        check(
            surface,
            &McpServer::wrapped(&python(program, "stdio")),
            &[(words, sum)],
        );
    }
}

/// Returns the Surface that `surface discover` writes with these arguments.
pub fn discovered(name: &str, arguments: &[&str], program: Option<&Command>) -> Value {
    let mut command = Command::new(built("kubectl-toolcrib"));
    command.args(["surface", "discover", name]);
    command.args(["--service", &format!("{name}:80")]);
    command.args(arguments);
    if let Some(program) = program {
        command.arg("--").arg(program.get_program());
        command.args(program.get_args());
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_yaml::from_str(&stdout(&output)).unwrap()
}

#[test]
fn python_servers_are_discovered_equally_over_http_and_stdio() {
    for program in ["mcp_server.py", "fastmcp_server.py"] {
        let served = McpServer::python(program);
        let streams = python(program, "stdio");
        let wrapped = McpServer::wrapped(&streams);
        let url = |server: &McpServer| format!("http://{}/mcp", server.address);
        let surface = discovered("heron", &["--url", &url(&served)], None);
        let tools = surface["spec"]["descriptor"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1, "{program}: {surface}");
        assert_eq!(tools[0]["name"], "add");
        assert_eq!(tools[0]["description"], "The sum of two numbers.");
        assert_eq!(tools[0]["inputSchema"]["required"], json!(["a", "b"]));
        assert_eq!(
            discovered("heron", &["--url", &url(&wrapped)], None),
            surface
        );
        assert_eq!(discovered("heron", &["--stdio"], Some(&streams)), surface);
    }
}
