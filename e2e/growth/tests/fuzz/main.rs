//! Fuzz targets for untrusted bytes, mutated from seeds. No input may cause a panic or take
//! seconds, and two parsers of the same text must agree.
//!
//! `toolcrib-fuzz` decides the number of inputs and the time. The wire formats of models have
//! targets of their own, in `sidecar/dialect/tests/fuzz.rs`.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod wire;

use std::fs;
use std::path::Path;

use kubectl_toolcrib::foreign;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolcrib_bounds::json::{nests_within, number, pointer};
use toolcrib_bounds::pattern;
use toolcrib_bounds::schema::{self, Validator};
use toolcrib_compile::normalize::normalize;
use toolcrib_compile::{ObjectRef, Settings, check_surface, load, yaml};
use toolcrib_dialect::json as scan;
use toolcrib_manifest::{AgentFile, FeedsFile, ProvidersFile, Tier, ToolsFile};
use toolcrib_mcp::{Message, header};
use toolcrib_mediation::Catalog;
use toolcrib_record::{Chain, Line, Verifier, short_form};
use toolcrib_rules::expression::{Expression, Facts};

/// The texts that a mutation inserts: words that parsers look for, and syntax.
const WORDS: &[&str] = &[
    "{}",
    "[]",
    "null",
    "\"\"",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "0",
    "-1",
    "1e999",
    "1.0",
    "18446744073709551616",
    "true",
    "\n",
    "é",
    "\u{feff}",
    "\u{2028}",
    "\"$ref\":\"#\",",
    "\"$defs\":{},",
    "\"anyOf\":[",
    "\"not\":{},",
    "\"pattern\":\"a\",",
    "\"type\":\"string\",",
    "\"enum\":[1.0],",
    "\"id\":1,",
    "\"jsonrpc\":\"2.0\",",
    "\"result\":{},",
    "\"version\":2,",
    "\"name\":\"t\",",
    "\\\\d",
    "\\\\w",
    "[^",
    "(?:",
    "(?=",
    "{2,}",
    "{9}",
    "*",
    "+",
    "|",
    "-",
    "\\\\p{L}",
    "/{a}",
    "%2e",
    "<<: *a",
    "&a ",
    "- ",
    ": ",
    "#",
    "'",
];

/// Runs a target of texts.
fn fuzz(target: &str, seeds: &[String], run: impl Fn(&str)) {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.clone().into_bytes()).collect();
    toolcrib_fuzz::fuzz(target, &seeds, WORDS, |bytes, _| {
        run(&String::from_utf8_lossy(bytes));
    });
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns the file of this name from each fixture of the contract.
fn fixtures(name: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds/manifest/fixtures");
    let mut fixtures: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|fixture| fixture.unwrap().path().join(name))
        .collect();
    fixtures.sort();
    let texts = fixtures
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.collect()
}

/// Schemas that use every keyword, and those of the fixtures.
fn schemas() -> Vec<String> {
    let mut schemas = texts(&[
        r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^a+$","maxLength":9}},"required":["a"],"additionalProperties":false}"#,
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"items":{"$ref":"#/$defs/a"}}}}"##,
        r#"{"allOf":[{"minimum":1},{"multipleOf":0.5}],"not":{"enum":[1,2.0,"a",null]},"const":4}"#,
        r#"{"patternProperties":{"^[a-z]{1,3}$":{}},"propertyNames":{"format":"uri"},"dependentRequired":{"a":["b"]},"unevaluatedProperties":false}"#,
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","items":[{},{}],"contains":{"format":"regex"},"uniqueItems":true,"if":{},"then":{},"else":false}"#,
    ]);
    for text in fixtures("tools.json") {
        let file: ToolsFile = serde_json::from_str(&text).unwrap();
        schemas.extend(
            file.tools
                .iter()
                .map(|tool| tool.input_schema.get().to_owned()),
        );
    }
    schemas
}

#[test]
fn lines_of_a_record_have_one_place_in_their_chain() {
    let mut chain = Chain::new("c1".into());
    let mut seeds = Vec::new();
    for line in [
        r#"{"kind":"start","pod":"otter"}"#,
        r#"{"kind":"gap","lines":3}"#,
        r#"{"kind":"turn","agent_id":"otter","rounds":[]}"#,
    ] {
        let mut line = line.as_bytes().to_vec();
        let sealed = chain.seal(&mut line);
        chain.advance(sealed);
        seeds.push(String::from_utf8(line).unwrap());
    }
    fuzz("line of a record", &seeds, |text| {
        let line = text.as_bytes();
        let read = Line::parse(line);
        if let (Ok(Line::Gap(_)), Some(link)) = (&read, short_form(line)) {
            let mut verifier = Verifier::default();
            verifier.source("fuzz");
            verifier.push(line).unwrap();
            let (chains, _) = verifier.finish(&[]);
            assert_eq!(chains.len(), 1, "{link:?}");
        }
    });
}

#[test]
fn grants_are_proposed_only_for_calls_of_a_record() {
    let call = |id: &str, arguments: &str, rest: &str| {
        format!(
            r#"{{"call_id":"{id}","name":"pond.n","arguments":{arguments},"result":{{}},"latency_ms":1,"executed":true{rest}}}"#
        )
    };
    let turn = |request: &str, calls: &[String]| {
        format!(
            r#"{{"kind":"turn","request_id":"{request}","agent_id":"otter","namespace":"pond","pod":"otter-1","timestamp":"2026-11-26T10:00:00Z","dialect":"openai","token":"t","http_status":200,"duration_ms":1,"status":"ok","usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_trace":[{{"round":1,"round_usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_calls":[{}]}}]}}"#,
            calls.join(",")
        )
    };
    let intent = r#"{"kind":"intent","request_id":"r","call_id":"c","agent_id":"otter","pod":"otter-1","timestamp":"2026-11-26T10:00:00Z","round":1,"name":"pond.n","arguments":{"a":"x"},"service":"pond","tier":"System","read_only":false}"#;
    let used = turn("r", &[call("c", r#"{"a":"x","b":1}"#, "")]);
    let denied = turn(
        "s",
        &[
            call("d", r#"{"a":"y","b":2.5}"#, r#","would_deny":"unmet""#),
            call(
                "e",
                r#"{"c":[{"d":null}]}"#,
                r#","error":{"code":"permission_denied","message":"m"}"#,
            ),
        ],
    );
    let seeds = [
        format!("{intent}\n{used}\n{denied}"),
        format!("{used}\n{used}"),
        format!(r#"{{"kind":"gap","lines":3}}{}{denied}"#, '\n'),
    ];
    assert!(foreign::proposed_grants(&seeds[0]) > Some(0));
    fuzz("calls of a record", &seeds, |text| {
        let calls = foreign::calls_of_record(text).unwrap();
        if foreign::proposed_grants(text).is_some_and(|bytes| bytes > 0) {
            assert!(calls > 0);
        }
    });
}

#[test]
fn expressions_are_read_and_decide_the_same_twice() {
    let seeds = texts(&[
        "args.a <= 100 && args.b.all(x, x.size() > 1)",
        "has(args.a) ? now.getHours('+01:00') > 8 : args['b'] in [1, 2.5, 'c']",
        "!args.a.matches(r'^[a-z]{2,}$') || -args.b % 2 == 1 // why",
        "timestamp(args.a) - now < duration('1h30m') && args.b.exists(x, args.c.exists_one(y, x == y))",
    ]);
    let arguments =
        serde_json::json!({"a": "a1", "b": [1, 2.5, "c", {"d": null}], "c": {"e": true}});
    fuzz("expression", &seeds, |text| {
        let Ok(expression) = Expression::read(text) else {
            return;
        };
        let facts = Facts {
            agent_name: "otter",
            agent_namespace: "pond",
            tool_name: "take",
            tool_surface: "fish",
            tool_tier: "System",
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let first = expression.holds(&facts, &arguments, |_, _| Some(true));
        let again = expression.holds(&facts, &arguments, |_, _| Some(true));
        assert_eq!(first, again);
    });
}

#[test]
fn a_counted_pattern_can_be_built() {
    let seeds = texts(&[
        "^[a-z0-9-]{1,63}$",
        r"^\d{4}-\d{2}-\d{2}T(?:[01]\d|2[0-3])$",
        r"(?i:a|b)*?[^\s\w-]+\b\u0041\x41\cA\p{L}{3}",
        r"[\w.+-]+@[\w-]+\.[a-z]{2,}",
        r"(?<year>\d+)(a?){9}$|^[\]\\^]",
    ]);
    fuzz("pattern", &seeds, |text| {
        let schema = json!({ "pattern": text }).to_string();
        let counted = pattern::cost(text);
        let built = schema::check(&schema);
        assert_eq!(
            counted.is_ok(),
            built.is_ok(),
            "{counted:?}, {:?}",
            built.err()
        );
    });
}

#[test]
fn compile_and_mediator_accept_the_same_schemas() {
    let values = [
        json!({"a": "aaa", "b": [1, 2.5, null]}),
        json!([[], {}, "a", 0]),
        json!("aé"),
        json!(4),
    ];
    fuzz("schema", &schemas(), |text| {
        let checked = schema::check(text);
        let read = Validator::read(text);
        assert_eq!(checked.is_ok(), read.is_ok(), "{:?}", checked.err());
        let Ok(validator) = read else { return };
        for value in &values {
            assert_eq!(validator.accepts(value), validator.check(value).is_ok());
        }
        header::is_marked_well(text);
        drop(pointer::decoded(text));
    });
}

#[test]
fn readers_of_mcp_messages_agree() {
    let seeds = texts(&[
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[1.0]}}}"#,
        r#"{"jsonrpc":"2.0","id":"a","result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.5}}"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}"#,
        r#"[[[[[[[["\ud83d\udc1f",1e5]]]]]]]]"#,
    ]);
    fuzz("MCP message", &seeds, |text| {
        if Message::parse(text.as_bytes()).is_ok() {
            assert!(scan::Object::scan(text).is_ok());
        }
        let value: Result<Value, _> = serde_json::from_str(text);
        if value.is_ok() {
            assert!(scan::checked(text).is_some());
            assert!(nests_within(text, 128));
            number::first_rounded(text);
        }
        if let Some(canonical) = scan::canonical(text) {
            assert_eq!(scan::canonical(&canonical).as_ref(), Some(&canonical));
            let again: Result<Value, _> = serde_json::from_str(&canonical);
            assert_eq!(again.is_ok(), value.is_ok());
        }
    });
}

/// Decodes the text and encodes the value. The result must decode, and encode to the same text.
fn round_trip<F: DeserializeOwned + Serialize>(text: &str) -> Option<F> {
    let file: F = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&file).unwrap();
    let again: F = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
    Some(again)
}

#[test]
fn written_manifests_read_back_unchanged() {
    fuzz("tools.json", &fixtures("tools.json"), |text| {
        if let Some(file) = round_trip::<ToolsFile>(text) {
            Catalog::load(&file, Tier::Elevated);
        }
    });
    fuzz("agent.json", &fixtures("agent.json"), |text| {
        round_trip::<AgentFile>(text);
    });
    fuzz("feeds.json", &fixtures("feeds.json"), |text| {
        round_trip::<FeedsFile>(text);
    });
    fuzz("providers.json", &fixtures("providers.json"), |text| {
        round_trip::<ProvidersFile>(text);
    });
}

#[test]
fn normalized_text_stays_as_it_is() {
    let mut seeds = schemas();
    seeds.extend(texts(&[
        r#"{"b":1.50,"a":[1e3,-0.0,12345678901234567890,"\u00e9"]}"#,
    ]));
    fuzz("normalize", &seeds, |text| {
        let Ok(normalized) = normalize(text) else {
            return;
        };
        let again = normalize(&normalized.text).unwrap();
        assert_eq!(again.text, normalized.text);
        // Parsers treat repeated keys and large numbers differently.
        assert!(serde_json::from_str::<Value>(&normalized.text).is_ok());
    });
}

#[test]
fn any_surface_is_checked_without_a_panic() {
    let seeds = texts(&[
        r#"{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{"name":"reef","namespace":"pond"},"spec":{"url":"https://reef.test","descriptor":{"version":2,"tools":[{"name":"t","description":"d","tier":"ReadOnly","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}},"http":{"method":"GET","path":"/a/{a}"}}],"feeds":[{"name":"f","path":"/f","ttl":60}],"skillText":"s"}}}"#,
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Surface\nmetadata: {name: reef, namespace: pond}\nspec: &a\n  url: https://reef.test\n  descriptor:\n    version: 2\n    tools: [{name: t, inputSchema: {}, http: {method: GET, path: /a}}]\n",
        "a: &a {b: yes}\nc:\n  <<: *a\n  d: |\n    0777\n---\n- 1_000\n- 'x'\n",
    ]);
    fuzz("surface", &seeds, |text| {
        let files = [("surface.yaml".to_owned(), text.to_owned())];
        let loaded = load(files, Settings::default());
        check_surface(&loaded.inputs, &ObjectRef::new("pond", "reef"));
        let documents = yaml::documents(text).into_iter();
        for value in documents.filter_map(|document| document.value.ok()) {
            yaml::to_string(&value).unwrap();
        }
    });
}

#[test]
fn pod_files_are_imported_or_refused() {
    let pods = texts(&[
        "x-claw: {pod: reef, tools-defaults: [s], cllama-defaults: {proxy: passthrough}}\nservices:\n  s: &s {image: 'i:${V:-1}', expose: ['80:4000/tcp'], environment: {A: $B}}\n  t:\n    <<: *s\n    x-claw: {agent: ./a.md, surfaces: [...], tools: [{service: s, allow: [t]}], feeds: [{source: s, path: /f, ttl: 5m}], skills: [k.md], models: {primary: a/b}, tool-policy: {max-rounds: 3}, count: 2}\n",
        "services:\n  s: {image: i, user: '7', command: \"a 'b c'\", x-claw: {mcp-stdio: {command: c, args: [d]}}}\n",
    ]);
    fuzz("pod file", &pods, |text| {
        foreign::pod_file(text);
    });
}

#[test]
fn openapi_documents_are_imported_or_refused() {
    let documents = texts(&[
        r##"{"openapi":"3.0.3","servers":[{"url":"https://reef.test/{v}"}],"paths":{"/a/{b}":{"post":{"operationId":"o","parameters":[{"name":"b","in":"path","schema":{"type":"string"}}],"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/s"}}}}}}},"components":{"schemas":{"s":{"allOf":[{"properties":{"a":{"nullable":true}}}]}}}}"##,
        "swagger: '2.0'\nhost: reef.test\npaths:\n  /a:\n    get: {parameters: [{name: b, in: query, type: string}]}\n",
    ]);
    fuzz("OpenAPI document", &documents, |text| {
        foreign::openapi(text);
    });
}

#[test]
fn descriptors_are_imported_or_refused() {
    let descriptors = texts(&[
        r#"{"version":2,"auth":{"type":"basic","env":"A"},"feeds":[{"name":"tides","path":"/t","ttl":"5m"}],"tools":[{"name":"t","inputSchema":{},"http":{"method":"GET","path":"/a"}}],"skill":"s.md"}"#,
    ]);
    fuzz("descriptor", &descriptors, |text| {
        foreign::service_descriptor(text);
        foreign::image_descriptor(text);
    });
}

#[test]
fn answers_of_servers_and_registries_are_read_or_refused() {
    let listed = texts(&[
        r#"[{"name":"t","description":"you must","inputSchema":{"properties":{"a":{}}},"annotations":{"readOnlyHint":true}}]"#,
        r#"{"schemaVersion":2,"manifests":[{"mediaType":"m","digest":"sha256:1","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}"#,
        r#"{"config":{"Labels":{"a":"b"}}}"#,
        "data: {\"id\":7,\"result\":{\"tools\":[]}}\n\n",
    ]);
    fuzz("answer", &listed, |text| {
        foreign::tool_list(text);
        foreign::image_manifest(text);
        foreign::image_config(text);
        foreign::mcp_stream(text);
        foreign::layer(text.as_bytes());
    });
}
