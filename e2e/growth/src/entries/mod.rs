//! The entry points that read untrusted bytes, each with its hostile inputs.

mod command;
mod conditions;
mod namespace;
mod record;
mod webhook;
mod wire;

use std::hint::black_box;
use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_bounds::json::{nests_within, number, pointer};
use toolcrib_bounds::schema::Validator;
use toolcrib_bounds::{ca, pattern, schema};
use toolcrib_compile::normalize::normalize;
use toolcrib_compile::{ObjectRef, Settings, check_surface, load, yaml};
use toolcrib_dialect::{Dialect, Reassembly, Reply, Request, SseParser, json as scan};
use toolcrib_manifest::{Tier, ToolsFile};
use toolcrib_mcp::{Message, header};
use toolcrib_mediation::{Authority, Catalog, ClawId, DirectCall, PresentedTools, Scrubber};
use toolcrib_sidecar::history::line;

use crate::shapes::{
    Shape, broken_json, json_texts, json_values, list, numbered, repeated, shape, within,
};

/// A function that reads untrusted bytes.
pub struct Entry {
    pub name: &'static str,
    /// The bound on the bytes that it reads.
    pub bound: &'static str,
    /// Bytes of the smallest input; the largest has eight times as many.
    pub unit: usize,
    pub shapes: Vec<Shape>,
    /// Prepares the other arguments, and returns the function that reads an input.
    pub prepare: Box<dyn Fn() -> Reader>,
}

pub type Reader = Box<dyn Fn(&str)>;

fn entry(
    name: &'static str,
    bound: &'static str,
    unit: usize,
    shapes: Vec<Shape>,
    run: impl Fn(&str) + Clone + 'static,
) -> Entry {
    prepared(name, bound, unit, shapes, move || Box::new(run.clone()))
}

fn prepared(
    name: &'static str,
    bound: &'static str,
    unit: usize,
    shapes: Vec<Shape>,
    prepare: impl Fn() -> Reader + 'static,
) -> Entry {
    Entry {
        name,
        bound,
        unit,
        shapes,
        prepare: Box::new(prepare),
    }
}

const MAX: usize = 32 * 1024 * 1024;
const KIB: usize = 1024;

pub fn all() -> Vec<Entry> {
    let mut entries = schemas();
    entries.extend(compile());
    entries.extend(mediator());
    entries.extend(dialects());
    entries.extend(messages());
    entries.extend(webhook::entries());
    entries.extend(wire::entries());
    entries.extend(command::entries());
    entries
}

/// Entry points of which only the allocated bytes are counted. They allocate at each comparison of
/// two names, and callgrind would need minutes for their inputs.
pub fn by_bytes() -> Vec<Entry> {
    namespace::entries()
}

fn schemas() -> Vec<Entry> {
    vec![
        entry("pattern", "1 KiB", 128, patterns(), |text| {
            drop(black_box(pattern::cost(text)));
        }),
        entry("schema", "64 KiB", KIB / 2, schema_shapes(), |text| {
            drop(black_box(schema::check(text)));
        }),
        value_check(),
        conditions::expression(),
        conditions::condition(),
        record::line(),
        record::verified(),
        record::joined(),
        record::proposed(),
        entry("number", "arguments, 256 KiB", KIB, json_texts(), |text| {
            black_box(number::first_rounded(text));
        }),
        entry(
            "pointer",
            "a schema, 64 KiB",
            KIB / 2,
            vec![
                repeated("percent", "%41"),
                repeated("broken percent", "%"),
                repeated("tildes", "~1~0"),
            ],
            |text| drop(black_box(pointer::decoded(text))),
        ),
    ]
}

fn patterns() -> Vec<Shape> {
    vec![
        repeated("letters", "a"),
        repeated("choices", "(a|b)"),
        repeated("classes", "[a-z]"),
        repeated("digits", r"\d"),
        repeated("words", r"[\w\s]"),
        repeated("open groups", "("),
        repeated("repetitions", "a{9}"),
        repeated("options", "(?:a?)?"),
        repeated("alternation", "a|"),
        repeated("controls", r"\cA"),
        repeated("hyphens", "[a--]"),
    ]
}

fn schema_shapes() -> Vec<Shape> {
    let object = |name, members: fn(usize) -> String| {
        shape(name, move |bytes| format!("{{{}}}", members(bytes)))
    };
    vec![
        object("properties", |bytes| {
            format!(
                r#""properties":{{{}}}"#,
                list(bytes, r#""p#":{"type":"string"}"#, ",")
            )
        }),
        object("required names", |bytes| {
            format!(r#""required":[{}]"#, list(bytes, r#""p#""#, ","))
        }),
        object("listed values", |bytes| {
            format!(r#""enum":[{}]"#, list(bytes, r#"{"a":#}"#, ","))
        }),
        object("branches", |bytes| {
            format!(r#""anyOf":[{}]"#, list(bytes, r#"{"minimum":#}"#, ","))
        }),
        object("references to one", |bytes| {
            let reference = r##"{"$ref":"#/$defs/d"}"##;
            let references = vec![reference; bytes / reference.len()].join(",");
            format!(r#""$defs":{{"d":{{"type":"object"}}}},"allOf":[{references}]"#)
        }),
        object("a cycle of references", |bytes| {
            let count = bytes / 40;
            let links: Vec<String> = (0..count)
                .map(|at| {
                    format!(
                        r##""l{at:05}":{{"items":{{"$ref":"#/$defs/l{:05}"}}}}"##,
                        (at + 1) % count
                    )
                })
                .collect();
            format!(
                r##""$ref":"#/$defs/l00000","$defs":{{{}}}"##,
                links.join(",")
            )
        }),
        object("unused definitions", |bytes| {
            format!(r#""$defs":{{{}}}"#, list(bytes, r#""d#":{"not":{}}"#, ","))
        }),
        object("properties by pattern", |bytes| {
            format!(
                r#""patternProperties":{{{}}}"#,
                // Within the bound on the number of patterns.
                list(bytes / 8, r#""^p#[a-z]":{}"#, ",")
            )
        }),
        object("a long description", |bytes| {
            format!(r#""description":"{}""#, "\\\\".repeat(bytes / 2))
        }),
        object("unknown words", |bytes| {
            list(bytes, r#""x-#":{"a":[]}"#, ",")
        }),
    ]
}

fn value_check() -> Entry {
    let schema = json!({"properties": {"a": {
        "type": ["array", "object", "string", "number", "null"],
        "items": {"anyOf": [{"type": "string"}, {"pattern": "^x"}, {"type": "object"}]},
        "maxLength": 1_000_000,
        "pattern": r"^[^\u0000]*\b",
        "additionalProperties": {"not": {"enum": ["a", "b"]}},
        "patternProperties": {"^[a-z]+[0-9]{5}$": {"minimum": 0}},
        "uniqueItems": true,
    }}});
    prepared(
        "value against a schema",
        "5 million evaluations",
        KIB,
        within(json_values(), r#"{"a":"#, "}"),
        move || {
            let validator = Validator::read(&schema.to_string()).expect("a schema");
            Box::new(move |text| {
                let value: Value = serde_json::from_str(text).expect("JSON");
                drop(black_box(validator.check(&value)));
            })
        },
    )
}

fn compile() -> Vec<Entry> {
    let tools = |piece: &'static str| {
        move |bytes| {
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"reef","namespace":"pond"}},"spec":{{"url":"https://reef.test","descriptor":{{"version":2,"tools":[{}]}}}}}}"#,
                list(bytes, piece, ",")
            )
        }
    };
    let surfaces = vec![
        shape(
            "tools",
            tools(r#"{"name":"t#","inputSchema":{},"http":{"method":"GET","path":"/a"}}"#),
        ),
        shape(
            "tools of one name",
            tools(r#"{"name":"t","inputSchema":{},"http":{"method":"GET","path":"/#"}}"#),
        ),
        shape(
            "templates",
            tools(
                r#"{"name":"t#","inputSchema":{"properties":{"a":{}}},"http":{"method":"GET","path":"/{a}/{a}/{a}/{a}/{a}/{a}/{a}/{a}"}}"#,
            ),
        ),
        shape("malformed tools", tools(r#"{"name":#}"#)),
        shape(
            "refused patterns",
            tools(
                r#"{"name":"t#","inputSchema":{"patternProperties":{"^(?!x)":{}}},"http":{"method":"GET","path":"/a"}}"#,
            ),
        ),
    ];
    vec![
        entry(
            "normalize",
            "an object, 1.5 MiB",
            KIB,
            json_texts(),
            |text| {
                drop(black_box(normalize(text)));
            },
        ),
        entry("surface", "an object, 1.5 MiB", KIB / 2, surfaces, |text| {
            let loaded = load(
                [("surface.json".to_owned(), text.to_owned())],
                Settings::default(),
            );
            drop(black_box(check_surface(
                &loaded.inputs,
                &ObjectRef::new("pond", "reef"),
            )));
        }),
        entry(
            "YAML",
            "a file of the user",
            KIB / 2,
            yaml_shapes(),
            |text| {
                drop(black_box(yaml::documents(text)));
            },
        ),
        entry(
            "CA bundle",
            "an object, 1.5 MiB; a file, 4 MiB",
            2 * KIB,
            bundles(),
            |text| {
                drop(black_box(ca::certificates(text)));
            },
        ),
    ]
}

const CERTIFICATE: &str = include_str!("../../../../crds/bounds/tests/pond.pem");
const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
const END: &str = "-----END CERTIFICATE-----\n";

fn bundles() -> Vec<Shape> {
    // Inputs that have a certificate beside the hostile text are read to their end.
    let mut shapes = within(
        vec![
            repeated(
                "other sections",
                "-----BEGIN A-----\nAAAA\n-----END A-----\n",
            ),
            repeated("empty lines", "\n"),
            repeated("lines of text", "text\n"),
            repeated("dashes", "-----\n"),
            shape("a line without end", |bytes| "x".repeat(bytes) + "\n"),
            shape("a long label", |bytes| {
                format!("-----BEGIN {}-----\n", "A".repeat(bytes))
            }),
            repeated("beginnings of sections", "-----BEGIN A-----\n"),
            repeated("ends of sections", "-----END A-----\n"),
        ],
        "",
        CERTIFICATE,
    );
    shapes.extend(within(
        vec![
            repeated("lines of base64", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\n"),
            shape("a line of base64", |bytes| "QUFB".repeat(bytes / 4) + "\n"),
            shape("no base64", |bytes| "!".repeat(bytes) + "\n"),
        ],
        BEGIN,
        END,
    ));
    shapes.extend([
        repeated("certificates", CERTIFICATE),
        shape("text between certificates", |bytes| {
            let text = "text ".repeat(20) + "\n";
            format!("{text}{CERTIFICATE}").repeat(bytes / CERTIFICATE.len())
        }),
        repeated(
            "empty certificates",
            "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        ),
        repeated("beginnings of certificates", BEGIN),
        shape("a certificate without end", |bytes| {
            format!("{BEGIN}{}", "QUFB\n".repeat(bytes / 5))
        }),
    ]);
    shapes
}

fn yaml_shapes() -> Vec<Shape> {
    vec![
        numbered("keys", "key#: #", "\n"),
        numbered("items", "- #", "\n"),
        numbered("documents", "a: #", "\n---\n"),
        repeated("open brackets", "["),
        repeated("open braces", "{a: "),
        repeated("dashes", "- "),
        repeated("questions", "? "),
        numbered("unknown aliases", "- *a", "\n"),
        shape("aliases", |bytes| {
            format!("a: &a [1]\nb:\n{}", "- *a\n".repeat(bytes / 5))
        }),
        shape("a long text", |bytes| {
            format!("a: \"{}\"", "\\\\".repeat(bytes / 2))
        }),
        shape("a folded text", |bytes| {
            format!("a: >\n{}", "  a\n\n".repeat(bytes / 5))
        }),
        shape("comments", |bytes| "#\n".repeat(bytes / 2)),
    ]
}

fn mediator() -> Vec<Entry> {
    let manifest = |bytes| {
        format!(
            r#"{{"version":1,"policy":{{"max_rounds":8,"max_tool_result_bytes":16384,"timeout_per_tool_ms":30000,"total_timeout_ms":120000}},"tools":[{}]}}"#,
            list(
                bytes,
                r#"{"name":"reef.t#","description":"","inputSchema":{"properties":{"a":{"pattern":"^a"}}},"execution":{"base_url":"http://reef.test","method":"GET","path":"/a","service":"reef","transport":"http"},"x-toolcrib":{"tier":"ReadOnly"}}"#,
                ","
            )
        )
    };
    let secrets = [
        "correct-horse-battery-staple",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaab",
        "\\\\\\\\\"\"\"\"",
    ];
    vec![
        entry(
            "tools.json",
            "a file, 4 MiB",
            2 * KIB,
            vec![shape("tools", manifest)],
            |text| {
                let file: ToolsFile = serde_json::from_str(text).expect("a manifest");
                black_box(Catalog::load(&file, Tier::Elevated));
            },
        ),
        arguments(manifest(1)),
        prepared(
            "scrubber",
            "what holds it",
            KIB / 2,
            scrub_shapes(),
            move || {
                let scrubber = Scrubber::new(secrets);
                Box::new(move |text| {
                    black_box(scrubber.scrub_text(text));
                })
            },
        ),
        prepared(
            "record line",
            "a body, 1 MiB",
            KIB,
            json_texts(),
            move || {
                let scrubber = Scrubber::new(secrets);
                Box::new(move |text| {
                    let body = line::Body::Bytes(text.as_bytes());
                    drop(black_box(line::body(body, &scrubber)));
                })
            },
        ),
        entry(
            "record line's escapes",
            "a body, 1 MiB",
            2 * KIB,
            vec![
                repeated("controls", "\u{7f}"),
                repeated("line separators", "\u{2028}"),
                repeated("line breaks", "\n"),
                repeated("text", "aé"),
            ],
            |text| drop(black_box(line::escaped(text.as_bytes().into()))),
        ),
    ]
}

fn arguments(manifest: String) -> Entry {
    let mut shapes = within(json_values(), r#"{"b\u0061":"#, "}");
    shapes.extend(broken_json());
    prepared(
        "arguments of a call",
        "256 KiB",
        KIB / 2,
        shapes,
        move || {
            let file: ToolsFile = serde_json::from_str(&manifest).expect("a manifest");
            let authority = Authority::new(Arc::new(Catalog::load(&file, Tier::Elevated)), None);
            let request = br#"{"model":"m","messages":[]}"#.to_vec();
            let request = Request::decode(Dialect::OpenaiChat, request).expect("a request");
            let presented = PresentedTools::new(&authority, &request, jiff::Timestamp::UNIX_EPOCH);
            let claw_id = ClawId {
                name: "otter".to_owned(),
                namespace: "pond".to_owned(),
            };
            Box::new(move |text| {
                black_box(DirectCall::new(&presented, &claw_id, "reef.t10000", text));
            })
        },
    )
}

fn scrub_shapes() -> Vec<Shape> {
    vec![
        repeated("backslashes", "\\"),
        repeated("quotes", "\""),
        repeated("escaped quotes", "\\\""),
        repeated("code units", r"\u0061"),
        repeated("escaped code units", r"\\\\u0061"),
        repeated("percent", "%61"),
        repeated("escaped percent", "%2561"),
        repeated("beginnings of a secret", "aaaaaaaaaaaaaaaaaaaaaaaaaa"),
        repeated("beginnings of another", "correct-horse-battery-stapl"),
        repeated("base64", "YWFhYWFh"),
        repeated("hexadecimal", "6161"),
        repeated("not ASCII", "é"),
        repeated("entities", "&#97;"),
    ]
}

fn dialects() -> Vec<Entry> {
    let mut entries = vec![
        entry("SSE", "a reply, 32 MiB", KIB / 2, sse_shapes(), |text| {
            let mut parser = SseParser::new(MAX);
            drop(black_box(parser.push(text.as_bytes())));
        }),
        entry(
            "SSE, a byte at a time",
            "a reply, 32 MiB",
            KIB / 4,
            sse_shapes(),
            |text| {
                let mut parser = SseParser::new(MAX);
                for byte in text.as_bytes() {
                    drop(black_box(parser.push(&[*byte])));
                }
            },
        ),
    ];
    for (dialect, names) in [
        (
            Dialect::OpenaiChat,
            [
                "request of Chat Completions",
                "reply of Chat Completions",
                "stream of Chat Completions",
            ],
        ),
        (
            Dialect::AnthropicMessages,
            [
                "request of Messages",
                "reply of Messages",
                "stream of Messages",
            ],
        ),
        (
            Dialect::OpenaiResponses,
            [
                "request of Responses",
                "reply of Responses",
                "stream of Responses",
            ],
        ),
    ] {
        let [request, reply, stream] = names;
        let of = move |pieces: [fn(usize) -> String; 3]| match dialect {
            Dialect::OpenaiChat => pieces[0],
            Dialect::AnthropicMessages => pieces[1],
            Dialect::OpenaiResponses => pieces[2],
        };
        let mut requests = within(
            json_values(),
            r#"{"model":"m","max_tokens":5,"messages":[],"input":"","x":"#,
            "}",
        );
        requests.extend(broken_json());
        requests.push(shape(
            "items",
            of([
                |bytes| {
                    format!(
                        r#"{{"model":"m","messages":[{}]}}"#,
                        list(bytes, r#"{"role":"user","content":"é\\#"}"#, ",")
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","max_tokens":5,"messages":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"role":"user","content":[{"type":"text","text":"é\\#"}]}"#,
                            ","
                        )
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","input":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"role":"user","content":[{"type":"input_text","text":"é\\#"}]}"#,
                            ","
                        )
                    )
                },
            ]),
        ));
        requests.push(shape(
            "tools",
            of([
                |bytes| {
                    format!(
                        r#"{{"model":"m","messages":[],"tools":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"type":"function","function":{"name":"t#"}}"#,
                            ","
                        )
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","max_tokens":5,"messages":[],"tools":[{}]}}"#,
                        list(bytes, r#"{"name":"t#","input_schema":{}}"#, ",")
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","input":[],"tools":[{}]}}"#,
                        list(bytes, r#"{"type":"function","name":"t#"}"#, ",")
                    )
                },
            ]),
        ));
        entries.push(entry(request, "32 MiB", KIB, requests, move |text| {
            drop(black_box(Request::decode(
                dialect,
                text.as_bytes().to_vec(),
            )));
        }));
        let mut replies = json_texts();
        replies.push(shape("calls", of([
            |bytes| format!(r#"{{"choices":[{{"finish_reason":"tool_calls","message":{{"role":"assistant","content":null,"tool_calls":[{}]}}}}]}}"#, list(bytes, r#"{"id":"c#","type":"function","function":{"name":"t","arguments":"{}"}}"#, ",")),
            |bytes| format!(r#"{{"type":"message","role":"assistant","stop_reason":"tool_use","content":[{}]}}"#, list(bytes, r#"{"type":"tool_use","id":"c#","name":"t","input":{}}"#, ",")),
            |bytes| format!(r#"{{"object":"response","status":"completed","output":[{}]}}"#, list(bytes, r#"{"type":"function_call","call_id":"c#","name":"t","arguments":"{}"}"#, ",")),
        ])));
        entries.push(entry(reply, "32 MiB", KIB, replies, move |text| {
            drop(black_box(Reply::decode(dialect, text.as_bytes().to_vec())));
        }));
        entries.push(entry(
            stream,
            "32 MiB",
            KIB,
            streams(dialect),
            move |text| {
                let mut parser = SseParser::new(MAX);
                let mut whole = Reassembly::new(dialect, MAX);
                for event in parser.push(text.as_bytes()).unwrap_or_default() {
                    drop(whole.push(event));
                }
                drop(black_box(whole.finish()));
            },
        ));
    }
    entries
}

fn streams(dialect: Dialect) -> Vec<Shape> {
    match dialect {
        Dialect::OpenaiChat => within(
            vec![
                repeated(
                    "text",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\\\"}}]}\n\n",
                ),
                numbered(
                    "calls",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":#,\"id\":\"c#\",\"function\":{\"name\":\"t\",\"arguments\":\"{}\"}}]}}]}\n\n",
                    "",
                ),
                repeated(
                    "parts of one call",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" \"}}]}}]}\n\n",
                ),
                numbered(
                    "choices",
                    "data: {\"choices\":[{\"index\":#,\"delta\":{\"content\":\"a\"}}]}\n\n",
                    "",
                ),
            ],
            "",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        Dialect::AnthropicMessages => within(
            vec![
                repeated(
                    "text",
                    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\\\\"}}\n\n",
                ),
                numbered(
                    "blocks",
                    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":#,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c#\",\"name\":\"t\",\"input\":{}}}\n\n",
                    "",
                ),
                repeated("pings", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            ],
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        Dialect::OpenaiResponses => within(
            vec![
                repeated(
                    "text",
                    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"\\\\\"}\n\n",
                ),
                numbered(
                    "items",
                    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":#,\"item\":{\"type\":\"function_call\",\"call_id\":\"c#\",\"name\":\"t\",\"arguments\":\"{}\"}}\n\n",
                    "",
                ),
            ],
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"status\":\"in_progress\",\"output\":[]}}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"status\":\"completed\",\"output\":[]}}\n\n",
        ),
    }
}

fn sse_shapes() -> Vec<Shape> {
    vec![
        repeated("empty lines", "\n"),
        repeated("carriage returns", "\r"),
        repeated("comments", ":\n"),
        repeated("lines of one event", "data: x\n"),
        repeated("events", "data: x\n\n"),
        repeated("a line without end", "data: x"),
        repeated("names", "event: x\r\n"),
        repeated("marks of byte order", "\u{feff}"),
    ]
}

fn messages() -> Vec<Entry> {
    let within_a_call = || {
        within(
            json_values(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"#,
            "}",
        )
    };
    let mut whole = within_a_call();
    whole.extend(broken_json());
    vec![
        entry("JSON scan", "what holds it", KIB, json_texts(), |text| {
            drop(black_box(scan::Object::scan(text)));
            drop(black_box(scan::Array::scan(text)));
        }),
        entry(
            "JSON in one form",
            "what holds it",
            KIB,
            json_texts(),
            |text| {
                drop(black_box(scan::canonical(text)));
            },
        ),
        entry("MCP message", "4 MiB", KIB, whole, |text| {
            drop(black_box(Message::parse(text.as_bytes())));
            black_box(nests_within(text, 128));
        }),
        entry(
            "MCP headers",
            "64 KiB of schema, 256 KiB of arguments",
            KIB / 2,
            vec![
                shape("properties", |bytes| {
                    format!(
                        r#"{{"properties":{{{}}}}}"#,
                        list(bytes, r#""p#":{"type":"string"}"#, ",")
                    )
                }),
                shape("marks", |bytes| {
                    format!(
                        r#"{{"properties":{{{}}}}}"#,
                        list(bytes, r#""p#":{"type":"string","x-mcp-header":"h#"}"#, ",")
                    )
                }),
            ],
            |text| {
                black_box(header::is_marked_well(text));
                black_box(header::mirrored(text, text));
            },
        ),
    ]
}
