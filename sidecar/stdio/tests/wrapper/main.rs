//! Tests the `toolcrib-mcp-stdio` binary over HTTP, with a scripted child behind it.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod real;
mod support;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use support::{Wrapper, body, eventually, kill, text};

#[tokio::test]
async fn a_session_lists_and_calls() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let listed = wrapper
        .ask(
            &session,
            1,
            "tools/list",
            json!({"cursor": "c", "_meta": {"progressToken": 4}}),
        )
        .await;
    let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
    let expected =
        json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools, "seen": {"cursor": "c"}}});
    assert_eq!(listed, expected);
    let called = wrapper
        .call(&session, 2, "echo", json!({"depth": 2.50}))
        .await;
    assert_eq!(text(&called), r#"{"depth": 2.5}"#);
    let refused = wrapper.call(&session, 3, "dive", json!({})).await;
    let error = json!({"code": -32602, "message": "no such tool", "data": "dive"});
    assert_eq!(refused, json!({"jsonrpc": "2.0", "id": 3, "error": error}));
    let pong = wrapper.ask(&session, 4, "ping", json!({})).await;
    assert_eq!(pong["result"], json!({}));
    // This method would change state that all clients share.
    let level = wrapper
        .ask(&session, 5, "logging/setLevel", json!({"level": "debug"}))
        .await;
    assert_eq!(level["error"]["code"], -32601);
    let variable = wrapper
        .call(&session, 6, "environment", json!({"name": "OTTER"}))
        .await;
    assert_eq!(text(&variable), "swims");
}

#[tokio::test]
async fn a_stateless_client_discovers_lists_and_calls() {
    let wrapper = Wrapper::start().await;
    let discovered = wrapper
        .stateless("server/discover", json!({}))
        .send()
        .await
        .unwrap();
    assert!(discovered.headers().get("mcp-session-id").is_none());
    let discovered = body(discovered).await;
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    assert_eq!(discovered["result"]["capabilities"], json!({"tools": {}}));
    let listed = wrapper
        .stateless("tools/list", json!({}))
        .send()
        .await
        .unwrap();
    let result = &body(listed).await["result"];
    assert_eq!(
        (
            &result["resultType"],
            &result["ttlMs"],
            &result["cacheScope"],
            &result["seen"]
        ),
        (&json!("complete"), &json!(0), &json!("private"), &json!({}))
    );
    let call = json!({"name": "echo", "arguments": {"depth": 1}});
    let called = body(wrapper.stateless("tools/call", call).send().await.unwrap()).await;
    assert_eq!(
        (text(&called), &called["id"]),
        (r#"{"depth": 1}"#, &json!("s"))
    );

    let refused = wrapper
        .stateless("tools/list", json!({}))
        .header("mcp-method", "x");
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert_eq!(body(refused).await["error"]["code"], -32020);
    let unknown = wrapper.stateless("ping", json!({})).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    assert_eq!(body(unknown).await["error"]["code"], -32601);
    let future = wrapper.post(&json!({"jsonrpc": "2.0", "method": "notifications/x"}));
    let future = future
        .header("mcp-protocol-version", "2031-01-01")
        .send()
        .await
        .unwrap();
    assert_eq!(
        body(future).await["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(wrapper.post(&list)).await, 400);
    let unknown = wrapper.post(&list).header("mcp-session-id", "otter");
    assert_eq!(status(unknown).await, 404);
    let page = wrapper.post(&list).header("mcp-session-id", &session);
    assert_eq!(status(page.header("origin", "http://localhost")).await, 403);
    assert_eq!(status(wrapper.get("/mcp")).await, 405);
    assert_eq!(
        status(wrapper.post(&json!("x".repeat(1024 * 1024)))).await,
        413
    );
    let batch = wrapper.post(&json!([list])).send().await.unwrap();
    assert_eq!(batch.status(), 400);
    let error = json!({"code": -32600, "message": "the body is not a single JSON-RPC message"});
    assert_eq!(
        body(batch).await,
        json!({"jsonrpc": "2.0", "id": null, "error": error})
    );
    assert_eq!(status(wrapper.delete("otter")).await, 404);
    assert_eq!(status(wrapper.delete(&session)).await, 204);
    let ended = wrapper.post(&list).header("mcp-session-id", &session);
    assert_eq!(status(ended).await, 404);
}

#[tokio::test]
async fn a_request_without_the_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "otter-token-3b81\n").unwrap();
    let wrapper = Wrapper::start_with(&["--token-file", file.to_str().unwrap()], &[]).await;
    let list = || wrapper.stateless("tools/list", json!({}));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(list()).await, 401);
    for (name, value) in [
        ("x-api-key", "otter-token-3b8"),
        ("x-api-key", ""),
        ("authorization", "Basic otter-token-3b81"),
    ] {
        assert_eq!(status(list().header(name, value)).await, 401, "{value}");
    }
    assert_eq!(status(wrapper.delete("otter")).await, 401);
    let first = || list().header("x-api-key", "otter-token-3b81");
    assert_eq!(status(first()).await, 200);
    assert_eq!(status(list().bearer_auth("otter-token-3b81")).await, 200);
    assert!(wrapper.is_ready().await);

    std::fs::write(&file, "otter-token-77c0").unwrap();
    assert_eq!(status(first()).await, 401);
    let next = list().header("x-api-key", "otter-token-77c0");
    assert_eq!(status(next).await, 200);
    std::fs::write(&file, "").unwrap();
    assert_eq!(status(list().header("x-api-key", "")).await, 401);
}

#[test]
fn an_unusable_token_file_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let said = || {
        let output = Command::new(env!("CARGO_BIN_EXE_toolcrib-mcp-stdio"))
            .args(["--listen", "127.0.0.1:0", "--token-file"])
            .args([file.as_os_str(), "--".as_ref(), "true".as_ref()])
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said().contains("cannot be read"));
    for (held, words) in [("${FISH_MCP_TOKEN}", "placeholder"), ("otter", "openssl")] {
        std::fs::write(&file, held).unwrap();
        let said = said();
        assert!(said.contains(words), "{said}");
        assert!(!said.contains(held), "{said}");
    }
}

#[tokio::test]
async fn sessions_with_equal_ids_get_their_own_answers() {
    let wrapper = Wrapper::start().await;
    let (first, second) = (wrapper.initialize().await, wrapper.initialize().await);
    let held = wrapper.call(&first, 1, "hold", json!({}));
    let others = async {
        wrapper.logged(|line| line["line"] == "holding").await;
        let echoed = wrapper.call(&second, 1, "echo", json!({"mine": 1})).await;
        assert_eq!(text(&echoed), r#"{"mine": 1}"#);
        let released = wrapper.call(&second, 1, "release", json!({})).await;
        assert_eq!(text(&released), "released");
    };
    let (held, ()) = tokio::join!(held, others);
    assert_eq!(text(&held), "held");
}

#[tokio::test]
async fn calls_of_a_child_that_ends_get_an_error_and_the_next_one_works() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let before = wrapper.call(&session, 1, "pid", json!({})).await;
    let held = wrapper.call(&session, 2, "hold", json!({}));
    let dies = async {
        wrapper.logged(|line| line["line"] == "holding").await;
        wrapper.call(&session, 3, "die", json!({})).await
    };
    let (held, died) = tokio::join!(held, dies);
    for (id, answer) in [(2, held), (3, died)] {
        let error = json!({
            "code": -32012, "message": "the program ended while the call was running",
            "data": {"reason": "program_ended", "mayHaveRun": true},
        });
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }
    let after = wrapper.call(&session, 4, "pid", json!({})).await;
    assert_ne!(text(&before), text(&after));
    // No call was sent again: the new child holds none.
    let released = wrapper.call(&session, 5, "release", json!({})).await;
    assert_eq!(text(&released), "released");
    let down = wrapper
        .logged(|line| line["message"] == "program not running, restarting")
        .await;
    assert_eq!(down["why"], "it ended with exit status: 3");
}

#[tokio::test]
async fn a_cancelled_or_abandoned_call_is_cancelled_at_the_child() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let held = wrapper.call(&session, 7, "hold", json!({}));
    let cancels = async {
        wrapper.logged(|line| line["line"] == "holding").await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        let cancel = wrapper.post(&cancel).header("mcp-session-id", &session);
        assert_eq!(cancel.send().await.unwrap().status(), 202);
    };
    let (held, ()) = tokio::join!(held, cancels);
    assert_eq!(held["error"]["data"]["reason"], "cancelled");
    let call = wrapper.stateless("tools/call", json!({"name": "hold"}));
    let abandoned = tokio::spawn(call.send());
    let cancelled = async || {
        let answer = wrapper.call(&session, 8, "cancelled", json!({})).await;
        serde_json::from_str::<Vec<Value>>(text(&answer))
            .unwrap()
            .len()
    };
    assert_eq!(cancelled().await, 1);
    let holding = || wrapper.count(|line| line["line"] == "holding");
    eventually("the second call", || async {
        (holding() == 2).then_some(())
    })
    .await;
    abandoned.abort();
    eventually("the second cancellation", || async {
        (cancelled().await == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_times_out() {
    let wrapper = Wrapper::start_with(&["--call-timeout", "1"], &[]).await;
    let session = wrapper.initialize().await;
    let held = wrapper.call(&session, 1, "hold", json!({})).await;
    assert_eq!(held["error"]["data"]["reason"], "timed_out");
    wrapper
        .logged(|line| {
            line["line"]
                .as_str()
                .is_some_and(|it| it.starts_with("cancelled"))
        })
        .await;
}

#[tokio::test]
async fn invalid_lines_are_dropped_and_stderr_is_logged() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let noisy = wrapper.call(&session, 1, "noise", json!({})).await;
    assert_eq!(text(&noisy), "noisy");
    wrapper
        .logged(|line| line["line"] == "this is no message" && line["level"] == "WARN")
        .await;
    let line = wrapper
        .logged(|line| line["line"] == "a\u{1b}[2Jb\u{85}c")
        .await;
    assert_eq!(line["target"], "program");

    let long = wrapper.call(&session, 2, "long", json!({})).await;
    assert_eq!(long["error"]["data"]["reason"], "answer_too_long");
    let next = wrapper.call(&session, 3, "echo", json!({})).await;
    assert_eq!(text(&next), "{}");
}

#[tokio::test]
async fn a_running_call_is_answered_before_shutdown() {
    let mut wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let child = text(&wrapper.call(&session, 1, "pid", json!({})).await).to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let waits = wrapper.call(&session, 2, "wait_for_file", json!({"path": file}));
    let ends = async {
        wrapper.logged(|line| line["line"] == "waiting").await;
        wrapper.signal("TERM");
        wrapper.logged(|line| line["message"] == "draining").await;
        std::fs::write(&file, "").unwrap();
    };
    let (answer, ()) = tokio::join!(waits, ends);
    assert_eq!(text(&answer), "the file is there");
    assert!(wrapper.ended().await.success());
    assert!(!is_running(&child));
}

#[tokio::test]
async fn a_child_does_not_outlive_a_killed_wrapper() {
    let mut wrapper = Wrapper::start_with(&[], &["--stubborn"]).await;
    let session = wrapper.initialize().await;
    let child = text(&wrapper.call(&session, 1, "pid", json!({})).await).to_owned();
    assert!(is_running(&child));
    wrapper.signal("KILL");
    wrapper.ended().await;
    eventually("the child's end", || async {
        (!is_running(&child)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_program_that_stops_reading_is_restarted() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let deaf = wrapper.call(&session, 1, "deaf", json!({})).await;
    assert_eq!(text(&deaf), "deaf");
    eventually("a program that reads", || async {
        let echoed = wrapper.call(&session, 2, "echo", json!({})).await;
        let reason = &echoed["error"]["data"]["reason"];
        assert!(reason.is_null() || reason == "program_ended", "{echoed}");
        reason.is_null().then_some(())
    })
    .await;
    let down = wrapper
        .logged(|line| line["message"] == "program not running, restarting")
        .await;
    assert_eq!(down["why"], "it closed its standard input");
}

#[tokio::test]
async fn orphans_of_the_program_are_reaped() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    let left = wrapper.call(&session, 1, "leave", json!({})).await;
    let left = text(&left).to_owned();
    let place = Path::new("/proc").join(&left);
    let status = std::fs::read_to_string(place.join("status")).unwrap();
    let parent = format!("\nPPid:\t{}\n", wrapper.id());
    assert!(status.contains(&parent), "{status}");
    kill("KILL", left.parse().unwrap());
    eventually("its end", || async { (!place.exists()).then_some(()) }).await;
    // The program itself is not an orphan.
    let next = wrapper.call(&session, 2, "echo", json!({})).await;
    assert_eq!(text(&next), "{}");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_logged() {
    let wrapper = Wrapper::start_command(&[], &["/no/such/program"]).await;
    wrapper
        .logged(|line| {
            line["line"]
                .as_str()
                .is_some_and(|it| it.contains("/no/such/program cannot be started"))
        })
        .await;
    assert!(!wrapper.is_ready().await);
    let health = wrapper.get("/healthz").send().await.unwrap();
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn a_killed_child_is_restarted() {
    let wrapper = Wrapper::start().await;
    let session = wrapper.initialize().await;
    assert!(wrapper.is_ready().await);
    let child = text(&wrapper.call(&session, 1, "pid", json!({})).await).to_owned();
    kill("KILL", child.parse().unwrap());
    wrapper
        .logged(|line| line["message"] == "program not running, restarting")
        .await;
    eventually("another child", || async {
        wrapper.is_ready().await.then_some(())
    })
    .await;
    let next = wrapper.call(&session, 2, "pid", json!({})).await;
    assert_ne!(text(&next), child);
}

#[test]
fn the_binary_installs_itself_for_another_image() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let program = Path::new(env!("CARGO_BIN_EXE_toolcrib-mcp-stdio"));
    run(program, &["--install", folder.path().to_str().unwrap()]);
    let installed = folder.path().join("toolcrib-mcp-stdio");
    let version = concat!("toolcrib-mcp-stdio ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(run(&installed, &["--version"]), version);
}

/// Returns true if the process runs; a zombie does not.
fn is_running(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
}
