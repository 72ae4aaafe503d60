//! Hostile arguments of a model, as they arrive at the service's socket: the rows of the threat
//! table "from the model".

#[path = "../../../mediation/tests/support/corpus.rs"]
mod corpus;

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, Raw, RawAnswer, TOOL_TOKEN, Wire, World};

/// Has the model call `tool` once with each of these arguments; returns the results.
async fn call_each(world: &World, tool: &str, arguments: &[String]) -> Vec<Value> {
    let ids: Vec<String> = (0..arguments.len()).map(|at| format!("c{at}")).collect();
    let all: Vec<(&str, &str, &str)> = ids
        .iter()
        .zip(arguments)
        .map(|(id, arguments)| (id.as_str(), tool, arguments.as_str()))
        .collect();
    world.model.will(world.wire.will_call(&all));
    world.model.will(world.wire.will_say("done"));
    world.chat().await;
    world
        .results()
        .into_iter()
        .map(|(_, result)| result)
        .collect()
}

#[tokio::test]
async fn no_encoding_of_a_path_value_reaches_the_service() {
    let corpus = corpus::path_values();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let arguments: Vec<String> = corpus
        .iter()
        .map(|value| json!({"symbol": value}).to_string())
        .collect();
    World::each(
        |_| {},
        &[],
        async |world| {
            let results = call_each(&world, "desk__quote", &arguments).await;
            assert_eq!(results.len(), corpus.len());
            for (result, value) in results.iter().zip(&corpus) {
                assert_eq!(result["ok"], false, "{value:?}: {result}");
            }
            assert_eq!(world.desk.connections(), 0);
        },
    )
    .await;
}

#[tokio::test]
async fn a_path_value_is_sent_as_one_encoded_segment() {
    let values = [
        ("OTR", "OTR"),
        ("a b", "a%20b"),
        ("a+b&c=d", "a%2Bb%26c%3Dd"),
        ("a:b@c", "a%3Ab%40c"),
        ("..a", "..a"),
        ("a;b,c", "a%3Bb%2Cc"),
        ("é漢", "%C3%A9%E6%BC%A2"),
        ("'\"<>", "%27%22%3C%3E"),
        ("HTTP", "HTTP"),
    ];
    let raw = Raw::start(values.iter().map(|_| RawAnswer::json("1"))).await;
    let at = |files: &mut Files| {
        files.tools["tools"][0]["execution"]["base_url"] = json!(format!("{}/base", raw.url()));
    };
    let world = World::start_with(at, |_| {}, &[]).await;
    let arguments: Vec<String> = values
        .iter()
        .map(|(value, _)| json!({"symbol": value}).to_string())
        .collect();
    for result in call_each(&world, "desk__quote", &arguments).await {
        assert_eq!(result["ok"], true, "{result}");
    }
    let sent = raw.connections().concat();
    let lines: Vec<&str> = sent
        .lines()
        .filter(|line| line.contains(" HTTP/1.1"))
        .collect();
    let expected: Vec<String> = values
        .iter()
        .map(|(_, encoded)| format!("GET /base/quotes/{encoded}?claw_id=otter HTTP/1.1"))
        .collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn bombs_and_ambiguous_arguments_are_refused_before_sending() {
    let deep = |open: &str, close: &str| {
        format!(
            "{{\"symbol\":\"A\",\"x\":{}1{}}}",
            open.repeat(20_000),
            close.repeat(20_000)
        )
    };
    let objects = [
        deep("[", "]"),
        deep("{\"a\":", "}"),
        format!("{{\"symbol\":\"{}\"}}", "x".repeat(64 * 1024 + 1)),
        format!("{{\"symbol\":\"A\",\"x\":1{}}}", "0".repeat(10_000)),
        format!("{{\"symbol\":\"A\",\"x\":1e{}}}", "9".repeat(100)),
        r#"{"symbol":"A","symbol":"B"}"#.to_string(),
        r#"{"symbol":"A","x":{"y":1,"y":2}}"#.to_string(),
        r#"{"symbol":"A","\u0073ymbol":"B"}"#.to_string(),
        format!("{{\"symbol\":\"A\"{}}}", ",\"x\":1".repeat(50_000)),
        format!("{{\"symbol\":\"A\",\"x\":[{}1]}}", "1,".repeat(200_000)),
    ];
    // These can be sent only as text: where arguments are part of the reply's JSON, the reply
    // itself would be invalid.
    let texts = [
        r#"["symbol"]"#.to_string(),
        r#"{"symbol":"A""#.to_string(),
        r#"{"symbol":"A"} {"symbol":"B"}"#.to_string(),
    ];
    // The two ways in which a dialect encodes arguments.
    for (dialect, texts) in [
        (Dialect::OpenaiChat, &texts[..]),
        (Dialect::AnthropicMessages, &[]),
    ] {
        let wire = Wire(dialect);
        let world = World::speaking(wire).await;
        for one in objects.iter().chain(texts) {
            let call = wire.will_call(&[("c1", "desk__quote", one)]);
            world.model.will(call);
            world.model.will(wire.will_say("done"));
            world.chat().await;
            // From the record: the next request repeats a bomb as the model wrote it.
            let line = world.last_line();
            let error = &line["tool_trace"][0]["tool_calls"][0]["result"]["error"];
            let start: String = one.chars().take(40).collect();
            assert_eq!(error["code"], "invalid_arguments", "{start}: {error}");
            assert!(error["message"].as_str().unwrap().len() < 500, "{error}");
        }
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn the_identity_argument_of_a_model_is_overwritten_everywhere() {
    let at = |files: &mut Files| {
        let claw = json!({"type": "string"});
        let search = json!({"name": "desk.search", "description": "",
            "inputSchema": {"type": "object", "properties": {"claw_id": claw, "q": {}}},
            "execution": {"transport": "http", "service": "desk",
                "base_url": files.tools["tools"][0]["execution"]["base_url"],
                "method": "GET", "path": "/search"},
            "x-toolcrib": {"tier": "ReadOnly"}});
        let mut wrapped = search.clone();
        wrapped["name"] = json!("desk.wrapped");
        wrapped["execution"]["method"] = json!("POST");
        wrapped["execution"]["body_key"] = json!("order");
        let mut foreign = wrapped.clone();
        foreign["name"] = json!("desk.foreign");
        foreign["x-toolcrib"]["foreign"] = json!(true);
        for tool in [search, wrapped, foreign] {
            files.tools["tools"].as_array_mut().unwrap().push(tool);
        }
    };
    let spoofed =
        r#"{"claw_id":"heron","q":{"claw_id":"heron","list":[{"cl\u0061w_id":["heron"]}]}}"#;
    let body = |id: &str| {
        format!(
            r#"{{"order":{{"q":{{"claw_id":"{id}","list":[{{"cl\u0061w_id":"{id}"}}]}},"claw_id":"{id}"}}}}"#
        )
    };
    World::each(at, &[], async |world| {
        for (tool, target, sent) in [
            (
                "desk__search",
                "/search?q=%7B%22claw_id%22%3A%22otter%22%2C%22list%22%3A%5B%7B%22cl%5Cu0061w_id%22%3A%22otter%22%7D%5D%7D&claw_id=otter",
                String::new(),
            ),
            ("desk__wrapped", "/search", body("otter")),
            ("desk__foreign", "/search", body("otter.pond")),
        ] {
            world.desk.will(Answer::json(json!(1)));
            let results = call_each(&world, tool, &[spoofed.to_string()]).await;
            assert_eq!(results[0]["ok"], true, "{}", results[0]);
            let asked = world.desk.requests().pop().unwrap();
            assert_eq!(asked.target, target, "{tool}");
            assert_eq!(asked.body, sent, "{tool}");
            let id = if tool == "desk__foreign" {
                "otter.pond"
            } else {
                "otter"
            };
            assert_eq!(asked.header("x-claw-id"), Some(id));
        }
        let history = std::fs::read_to_string(world.history.path().join("history.jsonl")).unwrap();
        let executed = history.lines().filter(|line| line.contains("\"intent\""));
        assert_eq!(executed.filter(|line| line.contains("heron")).count(), 0);
    })
    .await;
}

/// The lax readers are in `sidecar/mediation/tests/lax_readers.rs`.
#[tokio::test]
async fn arguments_that_a_lax_service_reads_differently_are_not_sent() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let attempts = [
                (
                    r#"{"claw_id":"x","CLAW_ID":"heron"}"#,
                    "invalid_arguments",
                    "keys `claw_id` and `CLAW_ID` differ in case only: services could read \
                     either; write one",
                ),
                (
                    r#"{"symbol":"A","claw.id":"heron"}"#,
                    "invalid_arguments",
                    "key `claw.id` could be read as `claw_id`, which is not yours to set: leave \
                     it out",
                ),
                (
                    r#"{"symbol":"A","SYMBOL":"B"}"#,
                    "invalid_arguments",
                    "keys `symbol` and `SYMBOL` differ in case only: services could read either; \
                     write one",
                ),
                (
                    r#"{"symbol":"A","_method":"DELETE"}"#,
                    "schema_validation",
                    "`_method` is not an argument of this tool; its arguments are `quantity`, `symbol`",
                ),
            ];
            for (arguments, code, message) in attempts {
                let results = call_each(&world, "desk__order", &[arguments.to_string()]).await;
                let error = &results[0]["error"];
                assert_eq!(error["code"], code, "{arguments}: {error}");
                assert_eq!(error["message"], message);
            }
            assert_eq!(world.desk.connections(), 0);
        },
    )
    .await;
}

#[tokio::test]
async fn a_credential_of_each_form_is_read_from_a_file() {
    for (auth, header, sent) in [
        (
            json!({"type": "bearer"}),
            "authorization",
            format!("Bearer {TOOL_TOKEN}"),
        ),
        (
            json!({"type": "header", "header": "X-Desk-Key"}),
            "x-desk-key",
            TOOL_TOKEN.to_string(),
        ),
        (
            json!({"type": "basic", "username": "otter"}),
            "authorization",
            "Basic b3R0ZXI6ZGVzay10b2tlbi0wMDAx".to_string(),
        ),
    ] {
        let at = |files: &mut Files| {
            let mut auth = auth.clone();
            auth["file"] = json!("desk-secret");
            files.tools["tools"][0]["execution"]["auth"] = auth;
            files.secrets = vec![("desk-secret".into(), format!("{TOOL_TOKEN}\n"))];
        };
        let world = World::start_with(at, |_| {}, &[]).await;
        world
            .desk
            .will(Answer::text(200, &format!("echo {TOOL_TOKEN}")));
        let results = call_each(&world, "desk__quote", &[r#"{"symbol":"A"}"#.to_string()]).await;
        assert_eq!(results[0]["data"], "echo [redacted]");
        assert_eq!(world.desk.requests()[0].header(header), Some(&*sent));
    }
}

/// A secret in a separate file is read below the directory and nowhere else.
#[tokio::test]
async fn a_credential_file_outside_the_directory_withholds_the_tool() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "outside-secret").unwrap();
    let path = outside.path().to_str().unwrap();
    let climbs = format!("../../../../../../{}", path.trim_start_matches('/'));
    for file in [
        path,
        &climbs,
        "..",
        ".",
        "",
        "./desk-secret",
        "link",
        "dir/link",
        "missing",
    ] {
        let world = World::start_with(
            |files| {
                files.secrets = vec![("desk-secret".into(), "inside".into())];
                files.links = vec![("link".into(), path.into())];
                let execution = &mut files.tools["tools"][0]["execution"];
                execution["auth"] = json!({"type": "bearer", "file": file});
            },
            |_| {},
            &[],
        )
        .await;
        let now = world.server.app.current.now();
        let withheld = now.version().unwrap().withheld();
        let withheld: Vec<_> = withheld
            .iter()
            .map(|it| (it.tool.as_str(), it.reason.as_str()))
            .collect();
        assert_eq!(withheld, [("desk.quote", "credential_missing")], "{file:?}");
        world
            .model
            .will(Wire::CHAT.will_call(&[("c1", "desk__quote", r#"{"symbol":"A"}"#)]));
        world.model.will(Wire::CHAT.will_say("no"));
        world.chat().await;
        assert_eq!(world.result()["error"]["code"], "unsupported_requirement");
        assert_eq!(world.desk.connections(), 0);
    }
}
