//! The third-party files from which `kubectl toolcrib` makes objects.

use std::hint::black_box;

use kubectl_toolcrib::foreign;

use super::{Entry, KIB, dialects, entry, objects};
use crate::shapes::{Shape, broken_json, json_values, list, numbered, repeated, shape, within};

pub fn entries() -> Vec<Entry> {
    vec![
        entry(
            "OpenAPI document",
            "64 MiB of files",
            2 * KIB,
            documents(),
            |text| {
                black_box(foreign::openapi(text));
            },
        ),
        entry("pod file", "1 MiB", KIB / 8, pod_files(), |text| {
            black_box(foreign::pod_file(text));
        }),
        entry(
            "descriptor of a pod file's service",
            "1 MiB",
            KIB / 2,
            descriptors(),
            |text| {
                black_box(foreign::service_descriptor(text));
            },
        ),
        entry(
            "variables of a pod file",
            "1 MiB",
            KIB,
            variables(),
            |text| {
                black_box(foreign::variables(text));
            },
        ),
        entry(
            "answer of an MCP server",
            "16 MiB",
            KIB,
            answers(),
            |text| {
                black_box(foreign::mcp_stream(text));
            },
        ),
        entry(
            "tools of an MCP server",
            "4096 tools, 64 pages of 16 MiB",
            2 * KIB,
            tool_lists(),
            |text| {
                black_box(foreign::tool_list(text));
            },
        ),
        entry(
            "descriptor in an image",
            "1 MiB",
            2 * KIB,
            descriptors(),
            |text| {
                black_box(foreign::image_descriptor(text));
            },
        ),
        entry(
            "layer of an image",
            "8 GiB, a million entries",
            16 * KIB,
            layers(),
            |text| {
                black_box(foreign::layer(text.as_bytes()));
            },
        ),
        entry("manifest of an image", "4 MiB", KIB, manifests(), |text| {
            black_box(foreign::image_manifest(text));
        }),
        entry("config of an image", "4 MiB", KIB, configs(), |text| {
            black_box(foreign::image_config(text));
        }),
    ]
}

const DOCUMENT: &str = r#"{"openapi":"3.0.3","info":{"title":"reef","version":"1"},"servers":[{"url":"https://reef.test"}],"#;

fn documents() -> Vec<Shape> {
    let mut shapes = within(operations(), DOCUMENT, "}");
    shapes.extend(within(references(), DOCUMENT, "}"));
    shapes.extend(json_values().into_iter().map(|value| {
        shape(value.name, move |bytes| {
            let schema = format!(
                r#"{{"properties":{{"a":{{"default":{}}}}}}}"#,
                (value.make)(bytes)
            );
            format!("{DOCUMENT}{}}}", posted(&schema))
        })
    }));
    shapes.extend(broken_json());
    shapes
}

fn operations() -> Vec<Shape> {
    vec![
        shape("operations", |bytes| {
            let paths = list(bytes, r#""/p#":{"get":{"responses":{}}}"#, ",");
            format!(r#""paths":{{{paths}}}"#)
        }),
        shape("operations of one name", |bytes| {
            let paths = list(bytes, r#""/p#":{"get":{"operationId":"o"}}"#, ",");
            format!(r#""paths":{{{paths}}}"#)
        }),
        shape("operations that are left out", |bytes| {
            let paths = list(bytes, r#""/{p#":{"get":{}}"#, ",");
            format!(r#""paths":{{"/a":{{"get":{{}}}},{paths}}}"#)
        }),
        shape("parameters", |bytes| {
            let parameters = list(
                bytes,
                r#"{"name":"p#","in":"query","schema":{"type":"string"}}"#,
                ",",
            );
            format!(r#""paths":{{"/a":{{"get":{{"parameters":[{parameters}]}}}}}}"#)
        }),
        shape("properties of a body", |bytes| {
            body(&list(
                bytes,
                r#""p#":{"type":"string","nullable":true}"#,
                ",",
            ))
        }),
        shape("refused patterns", |bytes| {
            body(&list(bytes, r#""p#":{"pattern":"(?!#)"}"#, ","))
        }),
        shape("hidden names", |bytes| {
            body(&list(bytes, "\"p#\u{202e}\":{}", ","))
        }),
        shape("required names", |bytes| {
            let names = list(bytes, r#""p#""#, ",");
            format!(r#"{},"required":[{names}]"#, body(r#""a":{}"#))
        }),
        shape("remarks on a long path", |bytes| {
            let path = "p".repeat(bytes / 2);
            let parameters = list(
                bytes / 2,
                r#"{"name":"p#","in":"query","schema":{"type":"string","description":"you must \\u202e#"}}"#,
                ",",
            );
            format!(r#""paths":{{"/{path}":{{"get":{{"parameters":[{parameters}]}}}}}}"#)
        }),
        shape("security schemes", |bytes| {
            let schemes = list(bytes, r#""s#":{"type":"http","scheme":"bearer"}"#, ",");
            format!(
                r#""paths":{{"/a":{{"get":{{}}}}}},"components":{{"securitySchemes":{{{schemes}}}}}"#
            )
        }),
        shape("a long description", |bytes| {
            format!(
                r#""paths":{{"/a":{{"get":{{"description":"{}"}}}}}}"#,
                r"\u202e".repeat(bytes / 6)
            )
        }),
    ]
}

/// One operation whose body has this schema.
fn posted(schema: &str) -> String {
    format!(
        r#""paths":{{"/a":{{"post":{{"requestBody":{{"content":{{"application/json":{{"schema":{schema}}}}}}}}}}}}}"#
    )
}

/// One operation whose body has these properties.
fn body(properties: &str) -> String {
    posted(&format!(
        r#"{{"type":"object","properties":{{{properties}}}}}"#
    ))
}

/// A property for each number; `reference` makes its schema.
fn references_of(count: usize, reference: impl Fn(usize) -> String) -> String {
    let properties: Vec<String> = (0..count.max(1))
        .map(|at| format!(r#""p{at:05}":{{"$ref":"{}"}}"#, reference(at)))
        .collect();
    body(&properties.join(","))
}

fn references() -> Vec<Shape> {
    vec![
        shape("references to one schema", |bytes| {
            let properties = references_of(bytes / 40, |_| "#/components/schemas/s".to_owned());
            format!(r#"{properties},"components":{{"schemas":{{"s":{{"type":"string"}}}}}}"#)
        }),
        shape("references to many schemas", |bytes| {
            let count = bytes / 70;
            let properties = references_of(count, |at| format!("#/components/schemas/s{at:05}"));
            let schemas: Vec<String> = (0..count.max(1))
                .map(|at| format!(r#""s{at:05}":{{"type":"string"}}"#))
                .collect();
            format!(
                r#"{properties},"components":{{"schemas":{{{}}}}}"#,
                schemas.join(",")
            )
        }),
        shape("schemas of one last name", |bytes| {
            let count = bytes / 60;
            let properties = references_of(count, |at| format!("#/x/g{at:05}/s"));
            let schemas: Vec<String> = (0..count.max(1))
                .map(|at| format!(r#""g{at:05}":{{"s":{{}}}}"#))
                .collect();
            format!(r#"{properties},"x":{{{}}}"#, schemas.join(","))
        }),
        shape("schemas that each double the next", |bytes| {
            let count = (bytes / 128).min(40);
            let schemas: Vec<String> = (0..count)
                .map(|at| {
                    let next = at + 1;
                    format!(
                        r##""s{at}":{{"allOf":[{{"$ref":"#/components/schemas/s{next}"}},{{"$ref":"#/components/schemas/s{next}"}}]}}"##
                    )
                })
                .collect();
            format!(
                r#"{},"components":{{"schemas":{{{},"s{count}":{{"type":"object","properties":{{"a":{{}}}}}}}}}}"#,
                posted(r##"{"$ref":"#/components/schemas/s0"}"##),
                schemas.join(",")
            )
        }),
    ]
}

fn pod_files() -> Vec<Shape> {
    let pod = |name, rest: fn(usize) -> String| {
        shape(name, move |bytes| {
            format!("x-claw:\n  pod: reef\n{}", rest(bytes))
        })
    };
    let services = |name, pieces: fn(usize) -> String| {
        shape(name, move |bytes| format!("services:\n{}", pieces(bytes)))
    };
    // Inputs with a list as the value of a key of one agent.
    let wishes = |name, key: &'static str, piece: &'static str| {
        shape(name, move |bytes| {
            let items = list(bytes, piece, ",");
            format!("services:\n  a:\n    image: i\n    x-claw: {{agent: a, {key}: [{items}]}}\n")
        })
    };
    let mut shapes = vec![
        services("services", |bytes| list(bytes, "  s#:\n    image: i\n", "")),
        services("services of one name", |bytes| {
            list(bytes, "  s.#: {image: i}\n", "")
        }),
        services("agents", |bytes| {
            list(
                bytes,
                "  s#: {image: i, x-claw: {agent: ./a.md, surfaces: [s10000]}}\n",
                "",
            )
        }),
        services("agents with surfaces of their own", |bytes| {
            list(
                bytes,
                "  s#: {image: i, x-claw: {surfaces: [t#], tools: [s10000]}}\n",
                "",
            )
        }),
        services("programs that speak MCP", |bytes| {
            list(
                bytes,
                "  s#: {image: i, x-claw: {mcp-stdio: {command: c, args: [a]}}}\n",
                "",
            )
        }),
        services("services that describe themselves", |bytes| {
            list(
                bytes,
                "  s#: {image: i, x-claw: {describe-file: d#.json}}\n",
                "",
            )
        }),
        services("variables", |bytes| {
            let variables = list(bytes, "      V#: \"${W#:-x}$$\"\n", "");
            format!("  s:\n    image: i\n    environment:\n{variables}")
        }),
        services("ports", |bytes| {
            let ports = list(bytes / 2, "#", ",");
            format!("  s: {{image: i, expose: [{ports}], ports: [{ports}]}}\n")
        }),
        services("words of a command", |bytes| {
            format!(
                "  s: {{image: i, command: \"{}\"}}\n",
                "a ' ' ".repeat(bytes / 6)
            )
        }),
        services("unknown keys of a service", |bytes| {
            format!("  s: {{{}}}\n", list(bytes, "k#: 1", ","))
        }),
        // A name of the maximum length, which each message repeats.
        services("unknown keys of a long name", |bytes| {
            let name = "s".repeat(KIB);
            format!("  ? {name}\n  : {{{}}}\n", list(bytes, "k#: 1", ","))
        }),
        services("a variable without end", |bytes| {
            format!(
                "  s:\n    environment:\n      A: \"{}\"\n",
                "${A:-".repeat(bytes / 5)
            )
        }),
        services("merges", |bytes| list(bytes, "  s#: {<<: &a {b: 1}}\n", "")),
        services("one map with many merges", |bytes| {
            let maps = list(bytes, "{k#: 1}", ",");
            format!("  s: {{<<: [{maps}]}}\n")
        }),
        wishes("surfaces of an agent", "surfaces", "s#"),
        wishes("tools of an agent", "tools", "{service: s#, allow: [t]}"),
        wishes("tools of one surface", "tools", "{service: s, allow: [t#]}"),
        wishes("feeds of an agent", "feeds", "f#"),
        wishes("skills of an agent", "skills", "k#.md"),
        wishes("defaults again and again", "surfaces", "..."),
        services("models of an agent", |bytes| {
            let models = list(bytes, "m#: a/b#", ",");
            format!("  a: {{x-claw: {{agent: a, models: {{{models}}}}}}}\n")
        }),
        pod("unknown keys", |bytes| list(bytes, "k#: {}\n", "")),
        pod("default tools", |bytes| {
            let tools = list(bytes, "{service: s#, allow: all}", ",");
            format!("  tools-defaults: [{tools}]\nservices: {{a: {{x-claw: {{agent: a}}}}}}\n")
        }),
        shape("one key again and again", |bytes| {
            "a: 1\n".repeat(bytes / 5)
        }),
        // The text is over the bound on a single text.
        shape("aliases of a long text", |bytes| {
            let bytes = 4 * KIB + bytes;
            let text = "x".repeat(bytes);
            format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(bytes / 3))
        }),
        shape("anchors within anchors", |bytes| {
            let open: String = (0..60).map(|at| format!("&a{at} [")).collect();
            let items = list(bytes, "#", ",");
            format!("a: {open}{items}{}", "]".repeat(60))
        }),
    ];
    shapes.extend(objects::yaml_shapes());
    shapes
}

/// Descriptors of a service, each with feeds that the agent of a pod file requests.
fn descriptors() -> Vec<Shape> {
    let members = vec![
        shape("tools", |bytes| {
            let tools = list(
                bytes,
                r#"{"name":"t#","inputSchema":{},"http":{"method":"GET","path":"/a"}}"#,
                ",",
            );
            format!(r#""tools":[{tools}]"#)
        }),
        shape("tools of one name", |bytes| {
            format!(
                r#""tools":[{}]"#,
                list(bytes, r#"{"name":"t","description":"d#"}"#, ",")
            )
        }),
        shape("tools without a plain name", |bytes| {
            format!(r#""tools":[{}]"#, list(bytes, r#"{"name":"é#"}"#, ","))
        }),
        shape("unknown members", |bytes| {
            list(bytes, r#""x-#":"you must\u200b #""#, ",")
        }),
        shape("hidden characters in a member of a long name", |bytes| {
            let texts = list(bytes / 2, r#""you must #""#, ",");
            format!(r#""{}":[{texts}]"#, "x".repeat(bytes / 2))
        }),
    ];
    let mut shapes = within(
        members,
        r#"{"version":2,"feeds":[{"name":"tides","path":"/tides","ttl":"5m"}],"#,
        "}",
    );
    shapes.push(shape("feeds", |bytes| {
        let feeds = list(bytes, r#"{"name":"f#","path":"/f#","ttl":"x#"}"#, ",");
        format!(r#"{{"version":2,"tools":[],"feeds":[{feeds}]}}"#)
    }));
    shapes.extend(within(json_values(), r#"{"version":2,"x":"#, "}"));
    shapes.extend(broken_json());
    shapes
}

fn variables() -> Vec<Shape> {
    vec![
        numbered("variables", "export V#='a # b'", "\n"),
        numbered("one variable again and again", "V=#", "\n"),
        numbered("comments", "# #", "\n"),
        shape("an open quote", |bytes| {
            format!("V='{}", "\" #".repeat(bytes / 3))
        }),
    ]
}

fn answers() -> Vec<Shape> {
    let mut shapes = vec![
        numbered(
            "other answers",
            "data: {\"jsonrpc\":\"2.0\",\"id\":#,\"result\":{}}",
            "\n\n",
        ),
        repeated("events that are no JSON", "data: {\n\n"),
    ];
    let answer = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":";
    shapes.extend(within(json_values(), answer, "}\n\n"));
    shapes.extend(dialects::sse_shapes());
    shapes
}

fn tool_lists() -> Vec<Shape> {
    let one = |name, schema: fn(usize) -> String| {
        shape(name, move |bytes| {
            format!(r#"[{{"name":"swim","inputSchema":{}}}]"#, schema(bytes))
        })
    };
    let mut shapes = within(
        vec![
            numbered(
                "tools",
                r#"{"name":"t#","inputSchema":{"type":"object"}}"#,
                ",",
            ),
            numbered("tools that take anything", r#"{"name":"t#"}"#, ","),
            numbered("tools without a plain name", r#"{"name":"\u202e#"}"#, ","),
            numbered(
                "instructions",
                r#"{"name":"t#","description":"you must\u200b #"}"#,
                ",",
            ),
            numbered(
                "hints",
                r#"{"name":"t#","annotations":{"readOnlyHint":true}}"#,
                ",",
            ),
        ],
        "[",
        "]",
    );
    shapes.extend([
        shape("tools of one name", |bytes| {
            format!(
                "[{}]",
                list(bytes, r#"{"name":"t","description":"d#"}"#, ",")
            )
        }),
        one("properties that take anything", |bytes| {
            let properties = list(bytes, r#""p#":{}"#, ",");
            format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
        }),
        one("hidden names of properties", |bytes| {
            let properties = list(bytes, r#""you must \u202e#":{}"#, ",");
            format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
        }),
        one("instructions in a schema", |bytes| {
            format!(r#"{{"enum":[{}]}}"#, list(bytes, r#""you must #""#, ","))
        }),
    ]);
    let tool = r#"[{"name":"swim","inputSchema":{"default":"#;
    shapes.extend(within(json_values(), tool, "}}]"));
    shapes.extend(broken_json());
    shapes
}

fn manifests() -> Vec<Shape> {
    let list_of = |name, platform: &'static str| {
        shape(name, move |bytes| {
            let entry = format!(
                r#"{{"mediaType":"m","digest":"sha256:#","size":1,"platform":{{"os":"{platform}","architecture":"a#"}}}}"#
            );
            format!(
                r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
                list(bytes, &entry, ",")
            )
        })
    };
    let image = r#"{"schemaVersion":2,"config":{"mediaType":"m","digest":"sha256:1","size":1},"#;
    let members = vec![
        shape("layers", |bytes| {
            let layers = list(
                bytes,
                r#"{"mediaType":"m","digest":"sha256:#","size":1}"#,
                ",",
            );
            format!(r#""layers":[{layers}]"#)
        }),
        shape("annotations", |bytes| {
            let annotations = list(bytes, r#""a#":"b""#, ",");
            format!(r#""layers":[],"annotations":{{{annotations}}}"#)
        }),
    ];
    let mut shapes = within(members, image, "}");
    shapes.push(list_of("platforms", "plan9"));
    shapes.push(list_of("hidden platforms", r"\u202e"));
    shapes.extend(within(
        json_values(),
        r#"{"schemaVersion":2,"layers":"#,
        "}",
    ));
    shapes.extend(broken_json());
    shapes
}

fn configs() -> Vec<Shape> {
    let labels = r#"{"config":{"Labels":{"a":"b"},"x":"#;
    let mut shapes = within(json_values(), labels, "}}");
    shapes.push(shape("labels", |bytes| {
        let labels = list(bytes, r#""l#":"v""#, ",");
        format!(r#"{{"config":{{"Labels":{{{labels}}}}}}}"#)
    }));
    shapes.extend(broken_json());
    shapes
}

/// Layers: archives of 512-byte blocks.
fn layers() -> Vec<Shape> {
    let archive = |name, entry: fn(usize) -> String| {
        shape(name, move |bytes| {
            let count = bytes / entry(0).len();
            let entries: String = (0..count).map(entry).collect();
            entries + &"\0".repeat(1024)
        })
    };
    vec![
        archive("files", |at| tar_entry(&format!("f{at:07}"), '0', "a")),
        archive("the file again and again", |_| {
            tar_entry("pond/fish.json", '0', "{}")
        }),
        archive("whiteouts", |at| {
            tar_entry(&format!("pond/.wh.f{at:07}"), '0', "")
        }),
        archive("opaque folders", |_| {
            tar_entry("pond/.wh..wh..opq", '0', "")
        }),
        archive("names without end", |at| {
            let name = format!("{}{at:07}", "reed/".repeat(100));
            tar_entry("long", 'L', &name) + &tar_entry("short", '0', "")
        }),
        archive("names of other entries", |at| {
            let name = format!("30 path=reed/{at:07}/fish.json \n");
            tar_entry("pax", 'x', &name) + &tar_entry("short", '0', "")
        }),
        archive("names without a file", |at| {
            tar_entry("long", 'L', &format!("reed/{at:07}"))
        }),
        shape("a large file", |bytes| {
            tar_entry("pond/fish.json", '0', &"x".repeat(bytes)) + &"\0".repeat(1024)
        }),
        shape("slashes", |bytes| {
            let name = "/".repeat(bytes.min(60 * KIB));
            tar_entry("long", 'L', &name) + &tar_entry("short", '0', "") + &"\0".repeat(1024)
        }),
        shape("no archive", |bytes| "x".repeat(bytes)),
        shape("zeros", |bytes| "\0".repeat(bytes)),
    ]
}

/// An entry of an archive: a header with this type, and the bytes in whole blocks.
fn tar_entry(name: &str, kind: char, bytes: &str) -> String {
    let header = |checksum: &str| {
        let times = format!("{:0>11}\0{:0>11}\0", format!("{:o}", bytes.len()), 0);
        let ids = "0000644\0".to_owned() + "0000000\0" + "0000000\0";
        let rest = format!("{kind}{}ustar\x0000", "\0".repeat(100));
        let text = format!("{name:\0<100}{ids}{times}{checksum}{rest}");
        format!("{text:\0<512}")
    };
    let sum: u64 = header("        ").bytes().map(u64::from).sum();
    let padding = bytes.len().next_multiple_of(512) - bytes.len();
    [
        &*header(&format!("{sum:06o}\0 ")),
        bytes,
        &"\0".repeat(padding),
    ]
    .concat()
}
