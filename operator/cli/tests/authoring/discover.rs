//! Converts MCP servers to Surfaces and finds their drift: a scripted server with two pages, in
//! both forms, and the official one for Node.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[path = "../common/mod.rs"]
mod common;
mod scripted;

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;

use common::{run, text};
use scripted::ScriptedServer;
use serde_json::{Value, json};
use toolcrib_e2e::packages;

fn tools() -> Value {
    json!([
        {"name": "swim", "title": "Swim", "description": "Swims.\u{200b}", "inputSchema": {"type": "object"}},
        {"name": "dive", "description": "Dives.", "annotations": {"destructiveHint": true},
         "inputSchema": {"type": "object", "properties": {"depth": {"type": "number"}}}},
        {"name": "rest", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
    ])
}

/// Returns a folder with the list that the scripted server reads.
fn listing(tools: &Value) -> tempfile::TempDir {
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("tools.json"), tools.to_string()).unwrap();
    files
}

fn server() -> String {
    scripted::program().to_str().unwrap().to_owned()
}

/// Runs `surface discover fish -n pond` with these flags, for the scripted program.
fn discover(files: &Path, flags: &[&str]) -> Output {
    let server = server();
    let mut all = vec!["surface", "discover", "fish", "-n", "pond", "--stdio"];
    all.extend(flags);
    all.extend(["--", "python3", &server, "stdio", "tools.json"]);
    run(files, &all)
}

fn succeeded(output: &Output) -> String {
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    text(&output.stdout)
}

fn expected_tools() -> Value {
    json!([
        {"name": "dive", "description": "Dives.", "annotations": {"destructiveHint": true},
         "inputSchema": {"type": "object", "properties": {"depth": {"type": "number"}}}},
        {"name": "rest", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
        {"name": "swim", "description": "Swims.", "inputSchema": {"type": "object"}},
    ])
}

fn object(yaml: &str) -> Value {
    serde_yaml::from_str(yaml).unwrap()
}

#[test]
fn a_program_s_tools_become_a_surface_with_remarks() {
    let files = listing(&tools());
    let output = discover(files.path(), &[]);
    let yaml = succeeded(&output);
    let spec = json!({
        "service": {"name": "fish", "port": 8080},
        "auth": {"type": "Header", "headerName": "X-API-Key", "secretKeyRef": {"name": "fish-mcp", "key": "token"}},
        "mcp": {"path": "/mcp"},
        "descriptor": {"version": 2, "tools": expected_tools()},
    });
    assert_eq!(object(&yaml)["spec"], spec);
    for output in [yaml.as_str(), &text(&output.stderr)] {
        assert!(
            output.contains("look: dive: says that it destroys"),
            "{output}"
        );
        assert!(
            output.contains("look: swim: a text held 1 hidden characters"),
            "{output}"
        );
    }
}

#[test]
fn changes_since_the_review_are_found_and_taken_over() {
    let files = listing(&tools());
    let reviewed = files.path().join("fish.yaml");
    let mut surface = object(&succeeded(&discover(files.path(), &[])));
    surface["spec"]["tiers"] = json!({"dive": "System"});
    let own = json!({"name": "own", "inputSchema": {"type": "object"}, "http": {"method": "GET", "path": "/own"}});
    surface["spec"]["descriptor"]["tools"]
        .as_array_mut()
        .unwrap()
        .push(own.clone());
    fs::write(&reviewed, surface.to_string()).unwrap();
    let check = || discover(files.path(), &["-f", "fish.yaml", "--check"]);
    assert_eq!(succeeded(&check()), "");

    type Change = fn(&mut Value);
    let changes: [(&str, Change); 5] = [
        ("changed: swim: description", |it| {
            it[0]["description"] = "Swims far.".into()
        }),
        ("changed: swim: schema", |it| {
            it[0]["inputSchema"]["required"] = json!(["x"])
        }),
        ("changed: dive: annotations", |it| {
            it[1]["annotations"] = json!({})
        }),
        ("changed: rest: output schema", |it| {
            it[2]["outputSchema"] = json!(true)
        }),
        ("removed: rest", |it| drop(it.as_array_mut().unwrap().pop())),
    ];
    for (drift, change) in changes {
        let mut changed = tools();
        change(&mut changed);
        fs::write(files.path().join("tools.json"), changed.to_string()).unwrap();
        let output = check();
        assert_eq!(output.status.code(), Some(1), "{drift}");
        assert_eq!(text(&output.stderr), format!("{drift}\n"));
        assert_eq!(text(&output.stdout), "");
    }
    let updated = object(&succeeded(&discover(files.path(), &["-f", "fish.yaml"])));
    let mut expected = surface;
    let mut kept = expected_tools();
    kept.as_array_mut().unwrap().remove(1);
    kept.as_array_mut().unwrap().insert(0, own);
    expected["spec"]["descriptor"]["tools"] = kept;
    assert_eq!(updated, expected);
}

#[test]
fn the_credential_of_a_server_is_used_and_not_shown() {
    let files = listing(&tools());
    let http = ScriptedServer::start(files.path(), Ipv4Addr::LOCALHOST.into());
    let origin = format!("http://127.0.0.1:{}", http.port);
    let url = format!("{origin}/fish/mcp");
    fs::write(files.path().join("token"), "otter-token\n").unwrap();
    fs::write(
        files.path().join("headers"),
        "Authorization: Bearer otter-token\n",
    )
    .unwrap();
    let base = ["surface", "discover", "fish", "--url", &url];
    for credential in [["--token-file", "token"], ["--header-file", "headers"]] {
        let output = run(files.path(), &[&base[..], &credential].concat());
        let yaml = succeeded(&output);
        let spec = json!({
            "url": origin,
            "mcp": {"path": "/fish/mcp"},
            "descriptor": {"version": 2, "tools": expected_tools()},
        });
        assert_eq!(object(&yaml)["spec"], spec);
        assert!(!yaml.contains("otter-token") && !text(&output.stderr).contains("otter-token"));
    }
    fs::write(files.path().join("token"), "another\n").unwrap();
    let refused = run(
        files.path(),
        &[&base[..], &["--token-file", "token"]].concat(),
    );
    let errors = text(&refused.stderr);
    assert!(
        errors.contains("401 Unauthorized: it refuses the credential of the file"),
        "{errors}"
    );
    let nobody = run(files.path(), &base);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        text(&nobody.stderr).contains("401"),
        "{}",
        text(&nobody.stderr)
    );
}

#[test]
fn a_private_authority_is_trusted_if_it_is_named() {
    let files = listing(&tools());
    let write = |name: &str, text: String| fs::write(files.path().join(name), text).unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write("tls.crt", own.cert.pem());
    write("tls.key", own.signing_key.serialize_pem());
    write("other.crt", other.cert.pem());
    write("headers", "x-otter: otter-token".to_owned());
    let server = ScriptedServer::start(files.path(), Ipv4Addr::LOCALHOST.into());
    let url = format!("https://localhost:{}/session", server.port);
    let ask = |flags: &[&str]| {
        let base = ["surface", "discover", "fish", "--url", &url];
        let all = [&base[..], &["--header-file", "headers"], flags].concat();
        run(files.path(), &all)
    };
    let spec = object(&succeeded(&ask(&["--ca-file", "tls.crt"])))["spec"].clone();
    assert_eq!(spec["descriptor"]["tools"], expected_tools());
    for strange in [&["--ca-file", "other.crt"][..], &[]] {
        let refused = ask(strange);
        assert_eq!(refused.status.code(), Some(1));
        let errors = text(&refused.stderr);
        assert!(
            errors.contains("name a file with the certificate of its CA with --ca-file"),
            "{errors}"
        );
    }
    let torn = own.cert.pem().replacen("MII", "", 1);
    write("torn.crt", format!("{}{torn}", own.cert.pem()));
    for (file, message) in [
        ("tls.key", "tls.key holds no certificate"),
        (
            "torn.crt",
            "torn.crt holds a certificate that cannot be decoded, number 2",
        ),
    ] {
        let refused = ask(&["--ca-file", file]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(message), "{file}");
    }
}

#[test]
fn a_session_with_a_server_is_ended() {
    let files = listing(&tools());
    let http = ScriptedServer::start(files.path(), Ipv4Addr::LOCALHOST.into());
    let url = format!("http://127.0.0.1:{}/session", http.port);
    fs::write(files.path().join("token"), "otter-token\n").unwrap();
    let base = ["surface", "discover", "fish", "--url", &url];
    let output = run(
        files.path(),
        &[&base[..], &["--token-file", "token"]].concat(),
    );
    let tools = object(&succeeded(&output))["spec"]["descriptor"]["tools"].clone();
    assert_eq!(tools, expected_tools());
    let ended = fs::read_to_string(files.path().join("ended")).unwrap();
    assert_eq!(ended, "otter-1");
}

#[test]
fn programs_that_are_no_mcp_server_are_reported() {
    let files = tempfile::tempdir().unwrap();
    let failed = |command: &[&str], words: &str| {
        let mut all = vec!["surface", "discover", "fish", "--stdio", "--"];
        all.extend(command);
        let output = run(files.path(), &all);
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{errors}");
    };
    failed(
        &["/no/such/program"],
        "/no/such/program cannot be started: check its path, and that it may be executed",
    );
    failed(&["true"], "the program");
    failed(
        &["sh", "-c", "read request; exec >&-; read more; read more"],
        "the program closed its standard output: is it an MCP server for stdio?",
    );
    failed(
        &["sh", "-c", "read request; exit 3"],
        "the program ended with exit status: 3: start it alone to see why",
    );
}

/// A web service with its own form of `error` is not mistaken for an MCP server.
#[test]
fn a_service_that_is_no_mcp_server_is_quoted() {
    use std::io::{Read as _, Write as _};
    let files = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let answers = [
        (
            "401 Unauthorized",
            r#"{"error": "bad token"}"#,
            "401 Unauthorized: give a credential",
        ),
        (
            "404 Not Found",
            r#"{"error": "no fish here"}"#,
            r#"404 Not Found, and no MCP message: {"error": "no fish here"}"#,
        ),
        (
            "500 Internal Server Error",
            "the pond is\nfrozen",
            r"500 Internal Server Error, and no MCP message: the pond is\nfrozen; is it an MCP server?",
        ),
    ];
    for (status, body, words) in answers {
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 8192];
                assert_ne!(stream.read(&mut head).unwrap(), 0);
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                )
                .unwrap();
            });
            run(
                files.path(),
                &["surface", "discover", "fish", "--url", &url],
            )
        });
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_explained() {
    let files = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let ask = |url: &str| {
        let output = run(files.path(), &["surface", "discover", "fish", "--url", url]);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let ask_a_server = |scheme: &str, answer: &[u8]| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use std::io::{Read as _, Write as _};
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 8192];
                assert_ne!(stream.read(&mut head).unwrap(), 0);
                stream.write_all(answer).unwrap();
            });
            ask(&format!("{scheme}://{address}/mcp"))
        })
    };
    let plain: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    for (scheme, answer, words) in [
        (
            "https",
            plain,
            "the port does not speak TLS: write http:// for a server without TLS, or name its port with TLS",
        ),
        (
            "http",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            "the server does not speak HTTP: check the port, since a server of another protocol listens there",
        ),
        (
            "http",
            b"",
            "the connection broke off: see the log of the server, which closed the connection",
        ),
    ] {
        let expected = format!("error: {scheme}://{address}/mcp cannot be asked: {words}\n");
        assert_eq!(ask_a_server(scheme, answer), expected);
    }
    // A port that no test binds.
    let errors = ask("http://127.0.0.1:1/mcp");
    assert!(
        errors.contains("cannot be asked: connection refused: check that the server runs and listens at this port"),
        "{errors}"
    );
    // No resolver asks a name server for so long a label.
    let name = format!("{}.pond.svc", "x".repeat(64));
    let errors = ask(&format!("http://{name}/mcp"));
    let (begin, end) = (
        format!(
            "error: http://{name}/mcp cannot be asked: the name does not resolve: this machine looked up {name} ("
        ),
        "): check its spelling; a name that only the cluster knows, such as NAME.NAMESPACE.svc, needs --in-cluster instead of --url\n",
    );
    assert!(
        errors.starts_with(&begin) && errors.ends_with(end),
        "{errors}"
    );
}

#[test]
fn the_official_server_s_tools_become_a_surface_that_has_not_drifted() {
    let modules = packages::node_modules("mcp").unwrap();
    let program = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let files = tempfile::tempdir().unwrap();
    let ask = |flags: &[&str]| {
        let mut all = vec!["surface", "discover", "fish", "--stdio"];
        all.extend(flags);
        all.extend(["--", "node", program.to_str().unwrap(), "stdio"]);
        run(files.path(), &all)
    };
    let yaml = succeeded(&ask(&[]));
    let tools = object(&yaml)["spec"]["descriptor"]["tools"].clone();
    let names: Vec<&str> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(names.is_sorted() && names.contains(&"echo"), "{names:?}");
    fs::write(files.path().join("fish.yaml"), yaml).unwrap();
    succeeded(&ask(&["-f", "fish.yaml", "--check"]));
}
