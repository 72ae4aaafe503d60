//! A third-party MCP server for standard streams, from its package to an agent's call: `surface
//! from-stdio` runs it in a pod, `surface discover` writes its tools for review, a grant allows
//! some of them.
//!
//! The namespace enforces Pod Security `restricted`, so a running server passes it. Not here: the
//! effect of the NetworkPolicy, since this cluster accepts the object and enforces none; the
//! protocol (`tests/laptop/mcp.rs`).

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::images::node;
use toolcrib_e2e::platform::PollResult;

use crate::offline::plugin;
use crate::support::{Desk, START, offered, process_of};

const HERE: &str = "mcp";
const SERVER: &str = "everything";
/// The credential in the environment of the server's pod.
const CREDENTIAL: &str = "everything-5f3a91c7";
/// The token that mediators send to its wrapper.
const TOKEN: &str = "wrapper-e0b7714c5a";

#[test]
fn a_stdio_server_is_run_reviewed_granted_and_called() -> Result<()> {
    let desk = Desk::open(HERE)?;
    let cluster = desk.platform.cluster();
    desk.play(include_str!("script.yaml"))?;

    let plugin = plugin()?;
    let plugin = plugin.to_str().context("the plugin's path")?;
    let folder = tempfile::tempdir()?;
    let objects = folder.path().join("objects.yaml");
    fs::write(&objects, from_stdio(plugin)?)?;
    desk.platform.apply(include_str!("objects.yaml"))?;
    desk.platform.apply(&fs::read_to_string(&objects)?)?;
    desk.rollout(SERVER)?;
    let policy = desk
        .platform
        .get(&["networkpolicy", SERVER, "--namespace", HERE])?;
    let who = &policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0];
    assert_eq!(who["key"], "toolcrib.dev/agent", "{policy}");

    // The server's list becomes the Surface, and a second discovery gives the same.
    let url = url(&desk)?;
    let token = folder.path().join("token");
    fs::write(&token, format!("X-API-Key: {TOKEN}"))?;
    let discover = |more: &[&str]| {
        let mut discover = cluster.on_node(plugin).context("a node of ours")?;
        discover.args(["surface", "discover", SERVER, "--namespace", HERE]);
        discover.args(["--url", &url, "--filename"]).arg(&objects);
        discover.arg("--header-file").arg(&token);
        run(discover.args(more))
    };
    let surface = discover(&[])?;
    for tool in ["name: echo", "name: get-env", "name: get-sum"] {
        ensure!(surface.contains(tool), "no {tool} in\n{surface}");
    }
    ensure!(surface.contains("X-API-Key"), "no auth in\n{surface}");
    desk.platform.apply(&surface)?;
    fs::write(&objects, surface)?;
    discover(&["--check"])?;
    // Discovers the same from outside the node, through the API server.
    run(Command::new(plugin)
        .args(["surface", "discover", SERVER, "--namespace", HERE])
        .args(["--in-cluster", "--check", "--header-file"])
        .arg(&token)
        .env("KUBECONFIG", cluster.kubeconfig()))?;

    desk.platform.wait_ready(HERE, &["caller"])?;
    desk.wait_in_force("caller")?;
    let echoed = json!({"ok": true, "data": "Echo: otter"});
    assert_eq!(answer(&desk, "echo")?, echoed);
    let requests = desk.model_requests()?;
    assert_eq!(
        offered(requests.first().context("the model was asked")?),
        [
            "local_clock",
            "everything__echo",
            "everything__trigger-long-running-operation"
        ]
    );

    // A model may call any name; this tool would return the environment of the server's pod.
    let refused = answer(&desk, "environment")?;
    assert_eq!(refused["ok"], false, "{refused}");

    // The runner cannot bypass the mediator either, although the NetworkPolicy allows its pod.
    let round = format!(
        "curl -s -o /dev/null -w '%{{http_code}}' --max-time 10 -d '{{}}' http://{SERVER}:8080/mcp"
    );
    let status = desk.platform.exec(HERE, "caller", &["sh", "-c", &round])?;
    assert_eq!(status, "401");

    let ended = ended_in_mid_call(&desk)?;
    assert_eq!(ended["ok"], false, "{ended}");
    assert_eq!(ended["error"]["code"], "mcp_error", "{ended}");
    assert_eq!(ended["error"]["details"]["rpc_code"], -32012, "{ended}");
    assert_eq!(answer(&desk, "echo")?, echoed, "the program runs again");
    let server = server(&desk)?;
    assert_eq!(server["restartCount"], 0, "its pod ran on: {server}");

    let requests = Value::from(desk.model_requests()?).to_string();
    for secret in [CREDENTIAL, TOKEN] {
        ensure!(!requests.contains(secret), "the server's own secret");
    }
    in_the_record(&desk)?;
    desk.passed()
}

/// Returns the objects that `surface from-stdio` writes for a user, with the token filled in.
fn from_stdio(plugin: &str) -> Result<String> {
    let program = format!(
        "{}/@modelcontextprotocol/server-everything/dist/index.js",
        node::MODULES
    );
    let objects = run(Command::new(plugin)
        .args(["surface", "from-stdio", SERVER, "--namespace", HERE])
        .args(["--image", "docker.io/toolcrib/mcp-servers:dev"])
        .args(["--wrapper-image", "docker.io/toolcrib/mcp-stdio:dev"])
        .args(["--env", "EVERYTHING_TOKEN=everything-token/token"])
        .args(["--", "node", &program, "stdio"]))?;
    Ok(objects.replace("${EVERYTHING_MCP_TOKEN}", TOKEN))
}

/// The Service's URL, which the node reaches as pods do.
fn url(desk: &Desk) -> Result<String> {
    let service = desk
        .platform
        .get(&["service", SERVER, "--namespace", HERE])?;
    let address = service["spec"]["clusterIP"].as_str();
    let address = address.context("the Service's address")?;
    let port = &service["spec"]["ports"][0]["port"];
    Ok(format!("http://{address}:{port}/mcp"))
}

/// Returns the tool result that the model got for the call that these words trigger.
fn answer(desk: &Desk, words: &str) -> Result<Value> {
    let said = desk.ask("caller", words)?;
    serde_json::from_str(&said).with_context(|| said)
}

/// Returns the status of the container that runs the server.
fn server(desk: &Desk) -> Result<Value> {
    let selector = format!("--selector=app={SERVER}");
    let pods = desk
        .platform
        .get(&["pods", "--namespace", HERE, &selector])?;
    let all = pods["items"].as_array().context("pods")?;
    ensure!(all.len() == 1, "one pod of the server: {all:?}");
    Ok(all[0]["status"]["containerStatuses"][0].clone())
}

/// Kills the program during a call. Returns the tool result that the model got.
fn ended_in_mid_call(desk: &Desk) -> Result<Value> {
    let program = process_of(&server(desk)?, "node")?;
    // A stopped program reads nothing, so unread bytes in its stdin are the call.
    kill_process(program, Signal::STOP).context("stop the program")?;
    thread::scope(|scope| {
        let slowly = scope.spawn(|| answer(desk, "slowly"));
        desk.platform
            .eventually("the call to reach the program", START, || {
                let unread = unread_by(program)?;
                Ok(PollResult::when(unread > 0, format!("{unread} bytes")))
            })?;
        kill_process(program, Signal::KILL).context("kill the program")?;
        slowly.join().expect("a question does not panic")
    })
}

/// Returns the number of unread bytes in the pipe to the process's stdin.
fn unread_by(process: Pid) -> Result<u64> {
    let stdin = format!("/proc/{}/fd/0", process.as_raw_nonzero());
    let stdin = fs::File::open(stdin).context("the program's stdin")?;
    ioctl_fionread(stdin).context("the unread bytes")
}

/// Checks that the record has the interrupted call, like every other.
fn in_the_record(desk: &Desk) -> Result<()> {
    let cut = |line: &Value| {
        let call = &line["tool_trace"][0]["tool_calls"][0];
        call["name"] == "everything.trigger-long-running-operation"
            && call["executed"] == true
            && call["result"]["ok"] == false
    };
    desk.platform
        .eventually("the call to be in the record", START, || {
            let record = desk.record("caller")?;
            Ok(PollResult::when(
                record.iter().any(cut),
                format!("{record:?}"),
            ))
        })
}
