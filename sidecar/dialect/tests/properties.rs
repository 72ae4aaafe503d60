//! Invariants that hold for any input.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use proptest::collection::vec;
use proptest::prelude::*;
use toolcrib_dialect::json::{self, Array, Change, Object};
use toolcrib_dialect::*;

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_string()),
        Just("true".to_string()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?",
        any::<String>().prop_map(|text| json::quote(&text)),
        Just(r#""\u0041\/\ud83d\ude00""#.to_string()),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            vec((inner.clone(), space()), 0..5).prop_map(|items| {
                let items: Vec<String> = items
                    .into_iter()
                    .map(|(item, space)| format!("{space}{item}{space}"))
                    .collect();
                format!("[{}]", items.join(","))
            }),
            vec(("[a-c]{1,2}", inner, space()), 0..5).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value, space)| format!("{space}\"{key}\"{space}:{space}{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// An item, message, block or tool whose known members have arbitrary values.
fn odd_part() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec![
        "message",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "reasoning",
        "computer_call",
        "namespace",
        "output_text",
        "tool_use",
        "tool_result",
        "thinking",
        "text",
        "function",
        "custom",
        "allowed_tools",
    ]);
    let keys = vec![
        "role",
        "name",
        "id",
        "call_id",
        "content",
        "arguments",
        "input",
        "summary",
        "output",
        "tool_calls",
        "function",
        "tools",
        "text",
        "thinking",
        "toolset_name",
        "usage",
        "input_tokens_details",
    ];
    let inner = (kind.clone(), value())
        .prop_map(|(kind, value)| format!(r#"[{{"type":"{kind}","text":{value}}}]"#));
    let role =
        prop::sample::select(vec!["user", "assistant", "tool", "system"]).prop_map(json::quote);
    let member = (
        prop::sample::select(keys),
        prop_oneof![
            value(),
            any::<String>().prop_map(|text| json::quote(&text)),
            inner,
            role
        ],
    );
    (kind, vec(member, 0..6)).prop_map(|(kind, members)| {
        let members: String = members
            .iter()
            .map(|(key, value)| format!(",\"{key}\":{value}"))
            .collect();
        format!("{{\"type\":\"{kind}\"{members}}}")
    })
}

proptest! {
    #[test]
    fn an_edit_that_changes_nothing_gives_the_same_bytes(
        raw in value(), before in space(), after in space()
    ) {
        let text = format!("{before}{raw}{after}");
        if let Ok(object) = Object::scan(&text) {
            prop_assert_eq!(&object.edit(&text, |_| Change::Keep, &[]), &text);
        }
        if let Ok(array) = Array::scan(&text) {
            prop_assert_eq!(&array.edit(&text, |_| Change::Keep, &[]), &text);
        }
    }

    #[test]
    fn an_edit_changes_only_its_member(raw in value(), at in 0usize..5, new in value()) {
        if let Ok(object) = Object::scan(&raw) {
            let Some(member) = object.members.get(at).cloned() else { return Ok(()) };
            let edited = object.edit(
                &raw,
                |m| if *m == member { Change::Set(new.clone()) } else { Change::Keep },
                &[],
            );
            let wanted = format!("{}{new}{}", &raw[..member.value.start], &raw[member.value.end..]);
            prop_assert_eq!(edited, wanted);
        }
    }

    #[test]
    fn canonical_text_is_idempotent_and_equal_in_value(raw in value()) {
        if let Some(canonical) = json::canonical(&raw) {
            prop_assert_eq!(json::canonical(&canonical), Some(canonical.clone()));
            prop_assert_eq!(exact(&raw), exact(&canonical));
        }
    }

    #[test]
    fn any_chunking_gives_the_same_events(
        lines in vec("(data|event|id|: c|x)?:? ?[a-zé\u{2028}]{0,6}(\r\n|\n|\r)", 0..24),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = lines.concat().into_bytes();
        let whole = SseParser::new(1 << 16).push(&stream).unwrap();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut parser = SseParser::new(1 << 16);
        let mut pieces = Vec::new();
        for pair in cuts.windows(2) {
            pieces.extend(parser.push(&stream[pair[0]..pair[1]]).unwrap());
        }
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn a_frame_round_trips(data in "[^\r\n \t\x0c]{1,40}") {
        let events = SseParser::new(1 << 16).push(frame(Some("e"), &data).as_bytes()).unwrap();
        prop_assert_eq!(events, vec![SseEvent { event: Some("e".into()), data }]);
    }

    #[test]
    fn bytes_outside_of_edits_stay_in_every_dialect(
        members in vec(("[a-f]{3,6}", space(), value(), space()), 0..6), at in 0usize..7,
    ) {
        for dialect in Dialect::ALL {
            let history = match dialect {
                Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
                Dialect::OpenaiResponses => "input",
            };
            let written = |model: &str, appended: &str| {
                let mut all: Vec<String> = members
                    .iter()
                    .map(|(key, before, value, after)| {
                        format!("{before}\"{key}\"{after}: {value}{before}")
                    })
                    .collect();
                let at = at.min(all.len());
                let item = r#"{"role":"user","content":"hi"}"#;
                let fields = format!("\"model\" : \"{model}\",\t\"{history}\":[ {item}  {appended}]");
                all.insert(at, fields);
                format!(" {{{}}}\n", all.join(","))
            };
            let body = written("house/otter", "").into_bytes();
            let Ok(request) = Request::decode(dialect, body) else {
                continue; // A repeated member.
            };
            let mut edits = Edits::new("otter");
            let same = String::from_utf8(request.encode(&edits).unwrap()).unwrap();
            prop_assert_eq!(same, written("otter", ""));
            let item = r#"{"role":"user","content":"more"}"#;
            edits.appended = vec![item.to_string()];
            let more = String::from_utf8(request.encode(&edits).unwrap()).unwrap();
            prop_assert_eq!(more, written("otter", &format!(",{item}")));
        }
    }

    #[test]
    fn no_shape_of_a_known_field_panics(
        a in odd_part(), b in odd_part(), choice in value(), stream in any::<bool>(),
    ) {
        let body = format!(
            r#"{{"model":"m","stream":{stream},"messages":[{a},{b}],"input":[{a},{b}],"tools":[{b}],"tool_choice":{choice}}}"#
        );
        let replied = format!(
            r#"{{"id":"r","output":[{a},{b}],"content":[{a},{b}],"choices":[{{"message":{a}}}],"usage":{b}}}"#
        );
        for dialect in Dialect::ALL {
            let _read = history_item(dialect, &a).is_ok();
            let Ok(reply) = Reply::decode(dialect, replied.clone().into_bytes()) else { continue };
            let results = [0, 1, 7].map(|call| ToolResult {
                call,
                content: "x".into(),
            });
            let spell = |name: &str| Some(format!("{name}_"));
            let items = reply.items(&results, spell).unwrap_or_default();
            for item in &items {
                prop_assert!(json::checked(item).is_some(), "{item}");
                let _respelled = rename_calls(dialect, item, spell).is_ok();
            }
            if let Ok(empty) = terminal_answer(&reply) {
                prop_assert_eq!(empty.calls(), []);
                prop_assert_eq!(empty.content(), None);
            }
            let Ok(request) = Request::decode(dialect, body.clone().into_bytes()) else { continue };
            if let Ok(answered) = answer(&request, &reply, Some(reply.usage())) {
                let text = String::from_utf8(answered.body).unwrap();
                prop_assert!(stream || json::checked(&text).is_some(), "{text}");
            }
            let mut edits = Edits::new("n");
            edits.context = Some("late".into());
            edits.inserted = vec![Insertion { before: 9, items: items.clone(), replaced: 0 }];
            edits.appended = items;
            edits.tool_choice = ToolChoiceEdit::Auto;
            edits.stream = StreamEdit::Whole;
            let tool = ToolDeclaration {
                name: "t".into(),
                description: String::new(),
                schema: "{}".into(),
            };
            edits.tools = DeclaredTools::new(request.dialect(), &[tool]);
            if let Ok(body) = request.encode(&edits) {
                let text = String::from_utf8(body).unwrap();
                prop_assert!(json::checked(&text).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), raw in value()) {
        for dialect in Dialect::ALL {
            for body in [bytes.clone(), raw.clone().into_bytes()] {
                let _decoded = Request::decode(dialect, body.clone()).is_ok();
                let _replied = Reply::decode(dialect, body.clone()).is_ok();
            }
            let _read = history_item(dialect, &raw).is_ok();
            let mut reassembly = Reassembly::new(dialect, MAX_REPLY);
            reassembly.push(SseEvent { event: None, data: raw.clone() }).unwrap();
            let _whole = reassembly.finish().is_ok();
        }
    }
}

#[test]
fn numbers_are_compared_by_value_with_all_their_digits() {
    let same = |a: &str, b: &str| json::canonical(a) == json::canonical(b);
    assert!(same("1", "1.0") && same("1e2", "100") && same("-0", "0.0") && same("10e-1", "1"));
    assert!(!same("9007199254740993", "9007199254740992"));
    assert!(!same("0.1", "0.10000000000000000001"));
    assert!(same(r#"{"b":1,"a":"\u0041"}"#, r#"{ "a":"A", "b":1.0 }"#));
    assert_eq!(json::canonical(r#"{"a":1,"a":1}"#), None);
}

#[test]
fn an_oversized_event_is_refused_and_comments_are_not_counted() {
    let mut parser = SseParser::new(32);
    for _ in 0..100 {
        assert_eq!(parser.push(keepalive()).unwrap(), []);
    }
    let error = parser.push(&[b'd'; 64]).unwrap_err();
    assert_eq!(error, DialectError::StreamTooLarge { limit: 32 });
}

#[test]
fn a_body_that_two_readers_could_read_differently_is_refused() {
    let decode = |body: &str| Request::decode(Dialect::OpenaiChat, body.into()).unwrap_err();
    assert_eq!(
        decode(r#"{"messages":[],"model":"a","model":"b"}"#),
        DialectError::Repeated("model".into())
    );
    assert_eq!(
        decode(r#"{"messages":[],"api_base":"http://elsewhere"}"#),
        DialectError::FieldRefused("api_base".into())
    );
    for (body, name, other) in [
        (r#"{"messages":[],"MODEL":"b"}"#, "MODEL", "model"),
        (
            r#"{"messages":[],"model":"a","Model":"b"}"#,
            "Model",
            "model",
        ),
        (r#"{"messages":[],"API_BASE":"x"}"#, "API_BASE", "api_base"),
        (r#"{"messages":[],"apiBase":"x"}"#, "apiBase", "api_base"),
        (r#"{"messages":[],"N":2}"#, "N", "n"),
        (r#"{"messages":[],"\u017ftream":true}"#, "ſtream", "stream"),
        (
            r#"{"messages":[],"tool-choice":"none"}"#,
            "tool-choice",
            "tool_choice",
        ),
        (
            r#"{"messages":[],"\u212aey":1,"key":2}"#,
            "key",
            "\u{212a}ey",
        ),
        (
            r#"{"messages":[],"tools":[{"type":"function","TYPE":"mcp","function":{"name":"a"}}]}"#,
            "TYPE",
            "type",
        ),
        (
            r#"{"messages":[],"tools":[{"type":"function","function":{"name":"a","Name":"b"}}]}"#,
            "Name",
            "name",
        ),
        (
            r#"{"messages":[],"stream_options":{"includeUsage":true}}"#,
            "includeUsage",
            "include_usage",
        ),
        (
            r#"{"messages":[],"tool_choice":{"type":"allowed_tools","allowed_tools":{"MODE":"auto"}}}"#,
            "MODE",
            "mode",
        ),
    ] {
        let error = DialectError::FieldReadsAs {
            name: name.into(),
            other: other.into(),
        };
        assert_eq!(decode(body), error, "{body}");
    }
    // Free JSON may have any content.
    for fine in [
        r#"{"messages":[],"topK":1,"providerOptions":{"Model":1,"model":2},"metadata":{"N":1,"n":2}}"#,
        r#"{"messages":[{"role":"user","content":"","ROLE":1}]}"#,
        r#"{"messages":[],"tools":[{"type":"function","function":{"name":"a","parameters":{"properties":{"X":{},"x":{}}}}}]}"#,
    ] {
        Request::decode(Dialect::OpenaiChat, fine.into()).unwrap();
    }
    let model = "m".repeat(513);
    assert!(matches!(
        decode(&format!(r#"{{"messages":[],"model":"{model}"}}"#)),
        DialectError::WrongType { field: "model", .. }
    ));
    assert_eq!(decode("{}"), DialectError::Missing("messages"));
    assert!(matches!(decode("[]"), DialectError::NotJson(_)));
}

#[test]
fn deep_nesting_is_passed_through_unparsed() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body =
        format!(r#"{{"model":"a","messages":[{{"role":"user","content":"x"}}],"z":{deep}}}"#);
    let request = Request::decode(Dialect::OpenaiChat, body.clone().into_bytes()).unwrap();
    assert_eq!(request.encode(&Edits::new("a")).unwrap(), body.into_bytes());
}

#[test]
fn errors_have_the_dialects_shape() {
    let error = ErrorShape {
        status: 403,
        code: "model_not_allowed",
        message: "allowed: \"house/otter\"",
    };
    let body = |dialect| String::from_utf8(error_body(dialect, error)).unwrap();
    assert_eq!(
        body(Dialect::OpenaiChat),
        r#"{"error":{"message":"allowed: \"house/otter\"","type":"permission_error","param":null,"code":"model_not_allowed"}}"#
    );
    assert_eq!(
        body(Dialect::AnthropicMessages),
        r#"{"type":"error","error":{"type":"permission_error","message":"allowed: \"house/otter\"","code":"model_not_allowed"}}"#
    );
    let chat = String::from_utf8(error_events(Dialect::OpenaiChat, error)).unwrap();
    assert!(chat.ends_with("\n\ndata: [DONE]\n\n"));
    for dialect in Dialect::ALL {
        let mut reassembly = Reassembly::new(dialect, MAX_REPLY);
        for event in SseParser::new(1 << 10)
            .push(&error_events(dialect, error))
            .unwrap()
        {
            reassembly.push(event).unwrap();
        }
        assert_eq!(
            reassembly.finish(),
            Err(DialectError::StreamError(error.message.into())),
            "{dialect:?}"
        );
    }
}

/// With managed tools, this body is refused for the field; without them, it passes.
fn needs_the_whole_conversation(field: &str, value: &str, refusal: DialectError) {
    let body = format!(r#"{{"model":"m","input":"hi","{field}":{value}}}"#);
    let request = Request::decode(Dialect::OpenaiResponses, body.clone().into_bytes()).unwrap();
    let mut edits = Edits::new("m");
    assert_eq!(request.encode(&edits).unwrap(), body.into_bytes());
    edits.tools = declared(Dialect::OpenaiResponses);
    assert_eq!(request.encode(&edits), Err(refusal));
}

fn declared(dialect: Dialect) -> DeclaredTools {
    let depth = ToolDeclaration {
        name: "pond__depth".into(),
        description: String::new(),
        schema: "{}".into(),
    };
    DeclaredTools::new(dialect, &[depth])
}

#[test]
fn state_at_the_provider_and_managed_tools_exclude_each_other() {
    for (field, value) in [
        ("conversation", "{\"id\":\"conv_1\"}"),
        ("prompt", "{\"id\":\"pmpt_1\"}"),
    ] {
        needs_the_whole_conversation(field, value, DialectError::HeldElsewhere(field));
    }
    let body = r#"{"model":"m","messages":[],"thread":{"type":"create"}}"#;
    let request = Request::decode(Dialect::AnthropicMessages, body.into()).unwrap();
    let mut edits = Edits::new("m");
    assert_eq!(request.encode(&edits).unwrap(), body.as_bytes());
    edits.tools = declared(Dialect::AnthropicMessages);
    let held = Err(DialectError::HeldElsewhere("thread"));
    assert_eq!(request.encode(&edits), held);
    let later = DialectError::FieldRefused("background".into());
    needs_the_whole_conversation("background", "true", later);
}

/// A reply may repeat instructions to the provider; they are not part of the model's output.
#[test]
fn provider_instructions_are_not_read_as_model_output() {
    for item in [
        r#"{"type":"configuration_update","reasoning":{"effort":"low"}}"#,
        r#"{"type":"compaction_trigger"}"#,
    ] {
        let read = history_item(Dialect::OpenaiResponses, item).unwrap();
        assert_ne!(read.role, "assistant", "{item}");
    }
}

/// A runner may define tools in a message, not only in `tools`.
#[test]
fn tools_defined_in_a_message_belong_to_the_runner() {
    let check = |dialect, body: &str, expected: &[&str]| {
        let request = Request::decode(dialect, body.into()).unwrap();
        assert_eq!(request.tools(), expected);
    };
    let messages = r#"{"messages":[{"role":"user","content":"a tool_definition"},
        {"role":"system","content":[{"type":"text","text":"from now on"},
            {"type":"tool_addition","tool":{"type":"tool_reference","name":"old"}},
            {"type":"tool_addition","tool":{"type":"tool_definition","definition":
                {"name":"shell","input_schema":{"type":"object"}}}}]}],
        "tools":[{"name":"old","input_schema":{}}]}"#;
    check(Dialect::AnthropicMessages, messages, &["old", "shell"]);
    let input = r#"{"input":[{"type":"additional_tools","role":"developer","tools":[
        {"type":"function","name":"shell","parameters":{}}]}],
        "tools":[{"type":"function","name":"old","parameters":{}}]}"#;
    check(Dialect::OpenaiResponses, input, &["old", "shell"]);
}

/// With `store` off, a provider knows no item by its id.
#[test]
fn unstored_reasoning_is_not_sent_back() {
    let check = |request: &str, content: &str, sent: bool| {
        let body = format!(r#"{{"model":"m","input":"hi"{request}}}"#);
        let request = Request::decode(Dialect::OpenaiResponses, body.into_bytes()).unwrap();
        let reasoning = format!(
            r#"{{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":{content}}}"#
        );
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        let mut edits = Edits::new("m");
        let items = vec![reasoning.clone(), call.to_string()];
        edits.appended.clone_from(&items);
        edits.inserted = vec![Insertion {
            before: 0,
            items,
            replaced: 0,
        }];
        let encoded = String::from_utf8(request.encode(&edits).unwrap()).unwrap();
        assert_eq!(
            encoded.matches(&reasoning).count(),
            if sent { 2 } else { 0 }
        );
        assert_eq!(encoded.matches(call).count(), 2);
    };
    check(r#","store":false"#, "null", false);
    check(r#","store":false"#, r#""opaque""#, true);
    check(r#","store":true"#, "null", true);
    check("", "null", true);
}

/// All of these items have the same content.
fn says_the_same(dialect: Dialect, items: &[&str]) {
    let first = history_item(dialect, items[0]).unwrap();
    for item in items {
        assert_eq!(history_item(dialect, item).unwrap(), first, "{item}");
    }
}

#[test]
fn an_item_is_recognized_in_every_stored_form() {
    says_the_same(
        Dialect::OpenaiResponses,
        &[
            r#""hi""#,
            r#"{"role":"user","content":"hi"}"#,
            r#"{"type":"message","role":"user","id":null,"content":[{"type":"input_text","text":"hi"}]}"#,
        ],
    );
    says_the_same(
        Dialect::OpenaiResponses,
        &[
            r#"{"type":"function_call","call_id":"c","name":"n","arguments":"{\"b\": 1.0,\"a\":2}"}"#,
            r#"{"id":"fc","status":"completed","type":"function_call","call_id":"c","name":"n","arguments":"{\"a\":2,\"b\":1}"}"#,
        ],
    );
    says_the_same(
        Dialect::AnthropicMessages,
        &[
            r#"{"role":"assistant","content":"hi"}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"h"},{"type":"text","text":"i","citations":null,"cache_control":{"type":"ephemeral"}}]}"#,
        ],
    );
}

/// The value with each number as the nearest float; `serde_json` reads long numbers differently.
fn exact(raw: &str) -> serde_json::Value {
    let raw = raw.trim();
    if let Ok(object) = Object::scan(raw) {
        let member = |key: &str| exact(object.get(raw, key).unwrap());
        return object
            .members
            .iter()
            .map(|found| (found.key.to_string(), member(&found.key)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    if let Ok(array) = Array::scan(raw) {
        return array.texts(raw).map(exact).collect();
    }
    match raw.parse::<f64>() {
        Ok(number) => (number + 0.0).into(), // `-0` is `0`.
        Err(_) => serde_json::from_str(raw).unwrap(),
    }
}

/// Both scanners stop at the bound, so that no list is longer.
#[test]
fn lists_of_parts_are_bounded() {
    for (count, fits) in [(100_000, true), (100_001, false)] {
        let items = vec!["0"; count].join(",");
        let members: Vec<_> = (0..count).map(|at| format!("\"{at}\":0")).collect();
        let members = members.join(",");
        for (before, after) in [("", ""), ("  ", "\n")] {
            let array = format!("{before}[{items}]{after}");
            assert_eq!(Array::scan(&array).is_ok(), fits);
            let object = format!("{before}{{{members}}}{after}");
            assert_eq!(Object::scan(&object).is_ok(), fits);
        }
        // The scanner gives up on deep nesting, so `serde_json` reads this text.
        let deep = format!("[{}1{},{items}]", "[".repeat(70), "]".repeat(70));
        assert!(Array::scan(&deep).is_err());
    }
}
