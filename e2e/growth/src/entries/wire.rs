//! Messages between programs: watched objects, the link, and the answers of services.

use std::hint::black_box;
use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::value::RawValue;
use toolcrib_manifest::LinkDown;
use toolcrib_mcp_stdio::listed::ListedTools;
use toolcrib_mediation::Scrubber;
use toolcrib_operator::foreign as operator;
use toolcrib_sidecar::foreign as mediator;

use super::{Entry, KIB, entry, prepared};
use crate::shapes::{Shape, broken_json, json_values, list, shape, within};

pub fn entries() -> Vec<Entry> {
    vec![
        entry("watched object", "3 MiB", KIB, watched(), |text| {
            black_box(operator::watched(text));
        }),
        entry("link report", "64 KiB", KIB / 2, reports(), |text| {
            black_box(operator::report(text.as_bytes()));
        }),
        entry("link answer", "2 MiB", KIB, answers(), |text| {
            drop(black_box(serde_json::from_str::<LinkDown>(text)));
        }),
        prepared(
            "answer of a service",
            "8 MiB unpacked",
            KIB,
            packed(),
            || {
                let scrubber = Scrubber::new(["correct-horse-battery-staple"]);
                Box::new(move |text| {
                    let (encoding, body) = text.split_once('\n').expect("an encoding");
                    let body = unescaped(body);
                    drop(black_box(mediator::answer(encoding, &body, &scrubber)));
                })
            },
        ),
        entry(
            "answer of a token endpoint",
            "64 KiB",
            KIB / 2,
            tokens(),
            |text| {
                black_box(mediator::token(text.as_bytes()));
            },
        ),
        entry("result of an MCP call", "4 MiB", KIB, results(), |text| {
            drop(black_box(mediator::mcp_message(text)));
        }),
        entry(
            "list of a wrapped server",
            "a line, 8 MiB",
            KIB,
            lists(),
            |text| {
                if let Ok(page) = serde_json::from_str::<Box<RawValue>>(text) {
                    ListedTools::default().learn(&page);
                }
            },
        ),
    ]
}

/// JSON values in a member that no parser knows, before the known members; and broken JSON.
fn with_unknown(before: &'static str, after: &'static str) -> Vec<Shape> {
    let mut shapes = within(json_values(), before, after);
    shapes.extend(broken_json());
    shapes
}

fn watched() -> Vec<Shape> {
    let mut shapes = with_unknown(
        r#"{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{"name":"reef","namespace":"pond"},"spec":{"url":"https://reef.test","descriptor":"#,
        "}}",
    );
    let metadata = |members: String| {
        format!(
            r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"ToolGrant","metadata":{{"name":"g","namespace":"pond",{members}}},"spec":{{"agents":["a"]}}}}"#
        )
    };
    shapes.extend([
        shape("annotations", move |bytes| {
            metadata(format!(
                r#""annotations":{{{}}}"#,
                list(bytes, r#""a#":"b""#, ",")
            ))
        }),
        shape("a long annotation", move |bytes| {
            let text = r"\u0007".repeat(bytes / 6);
            metadata(format!(r#""annotations":{{"a":"{text}"}}"#))
        }),
        shape("owners", move |bytes| {
            let owner = r#"{"apiVersion":"v1","kind":"K","name":"n#","uid":"u"}"#;
            metadata(format!(r#""ownerReferences":[{}]"#, list(bytes, owner, ",")))
        }),
        shape("managed fields", move |bytes| {
            let fields = list(bytes, r#""f:key#":{}"#, ",");
            metadata(format!(
                r#""managedFields":[{{"manager":"m","fieldsV1":{{{fields}}}}}]"#
            ))
        }),
        shape("agents of another shape", |bytes| {
            let agents = list(bytes, r#"{"name":"a#"}"#, ",");
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"ToolGrant","metadata":{{"name":"g","namespace":"pond"}},"spec":{{"agents":[{agents}]}}}}"#
            )
        }),
        shape("conditions", |bytes| {
            let condition = r#"{"type":"T#","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-11-24T00:00:00Z"}"#;
            format!(
                r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"ToolGrant","metadata":{{"name":"g","namespace":"pond"}},"spec":{{"agents":["a"]}},"status":{{"conditions":[{}]}}}}"#,
                list(bytes, condition, ",")
            )
        }),
    ]);
    shapes
}

fn reports() -> Vec<Shape> {
    const BEFORE: &str = r#"{"epoch":"e","version":"9","usage":{"requests":7},"x":"#;
    let mut shapes = with_unknown(BEFORE, "}");
    let report = |members: String| format!(r#"{{"epoch":"e","version":"9",{members}}}"#);
    shapes.extend([
        shape("withheld tools", move |bytes| {
            let tool = r#"{"tool":"reef.t#","reason":"r"}"#;
            report(format!(r#""withheld":[{}]"#, list(bytes, tool, ",")))
        }),
        shape("names that it understands", move |bytes| {
            report(format!(
                r#""understands":[{}]"#,
                list(bytes, r#""n#""#, ",")
            ))
        }),
        shape("a long error", move |bytes| {
            report(format!(r#""error":"{}""#, r"\u0007".repeat(bytes / 6)))
        }),
        shape("calls of rules", move |bytes| {
            let used = r##"{"tool":"reef.t#","rule":"r1:a","counts":[{"calls":{"#":1},"per_ms":60000}]}"##;
            report(format!(r#""rates":[{}]"#, list(bytes, used, ",")))
        }),
        shape("slots of a rate", move |bytes| {
            let slots = list(bytes, r##""#":1"##, ",");
            report(format!(
                r#""rates":[{{"tool":"reef.t","rule":"r1:a","counts":[{{"calls":{{{slots}}},"per_ms":60000}}]}}]"#
            ))
        }),
        shape("a long epoch", |bytes| {
            format!(r#"{{"epoch":"{}","version":"9"}}"#, "\\n".repeat(bytes / 2))
        }),
    ]);
    shapes
}

fn answers() -> Vec<Shape> {
    let mut shapes = with_unknown(r#"{"seq":7,"agent":"Present","x":"#, "}");
    let allowlist =
        |members: String| format!(r#"{{"seq":7,"agent":"Present","floor":{{{members}}}}}"#);
    shapes.extend([
        shape("calls of rules", |bytes| {
            let used =
                r##"{"tool":"reef.t#","rule":"r1:a","counts":[{"calls":{"#":1},"per_ms":60000}]}"##;
            let rates = list(bytes, used, ",");
            format!(r#"{{"seq":7,"agent":"Present","rates":[{rates}]}}"#)
        }),
        shape("tools", move |bytes| {
            let tools = list(bytes, r#""reef.t#":"v1:#""#, ",");
            allowlist(format!(r#""tools":{{{tools}}},"feeds":[],"providers":[]"#))
        }),
        shape("providers", move |bytes| {
            let providers = list(bytes, r#""p#""#, ",");
            allowlist(format!(
                r#""tools":{{}},"feeds":[],"providers":[{providers}]"#
            ))
        }),
    ]);
    shapes
}

/// Encodes compressed bytes as text, because inputs are texts: one character per byte. The first
/// line is the content encoding.
fn escaped(encoding: &str, body: &[u8]) -> String {
    let body: String = body.iter().map(|byte| char::from(*byte)).collect();
    format!("{encoding}\n{body}")
}

fn unescaped(body: &str) -> Vec<u8> {
    body.chars()
        .map(|c| u8::try_from(c).expect("a byte"))
        .collect()
}

fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn packed() -> Vec<Shape> {
    vec![
        shape("plain", |bytes| escaped("identity", &b"\\".repeat(bytes))),
        shape("stored", |bytes| {
            escaped("gzip", &gzip(&b"\\".repeat(bytes), Compression::none()))
        }),
        // Decompresses to at least fifty times its size, within the bound.
        shape("zeros", |bytes| {
            escaped("gzip", &gzip(&vec![0; 50 * bytes], Compression::best()))
        }),
        shape("zeros in zlib", |bytes| {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&vec![0; 50 * bytes]).expect("memory");
            escaped("deflate", &encoder.finish().expect("memory"))
        }),
        shape("empty members", |bytes| {
            let member = gzip(b"", Compression::best());
            escaped("gzip", &member.repeat(bytes / member.len()))
        }),
        shape("members of a letter", |bytes| {
            let member = gzip(b"a", Compression::best());
            escaped("gzip", &member.repeat(bytes / member.len()))
        }),
        shape("a name without end", |bytes| {
            let mut header = b"\x1f\x8b\x08\x08\0\0\0\0\0\0".to_vec();
            header.resize(bytes, b'n');
            escaped("gzip", &header)
        }),
        shape("no gzip", |bytes| escaped("gzip", &b"\x1f".repeat(bytes))),
    ]
}

fn tokens() -> Vec<Shape> {
    let mut shapes = with_unknown(r#"{"token_type":"bearer","access_token":"a","x":"#, "}");
    shapes.extend([
        shape("a long token", |bytes| {
            format!(
                r#"{{"token_type":"bearer","access_token":"{}"}}"#,
                "a".repeat(bytes)
            )
        }),
        shape("a long lifetime", |bytes| {
            format!(
                r#"{{"token_type":"bearer","access_token":"a","expires_in":"{}"}}"#,
                "9".repeat(bytes)
            )
        }),
        shape("a lifetime of another kind", |bytes| {
            let members = list(bytes, r#""k#":[]"#, ",");
            format!(r#"{{"token_type":"bearer","access_token":"a","expires_in":{{{members}}}}}"#)
        }),
    ]);
    shapes
}

fn results() -> Vec<Shape> {
    let mut shapes = with_unknown(
        r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":"#,
        "}}",
    );
    let content = |piece: &'static str| {
        move |bytes| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{}]}}}}"#,
                list(bytes, piece, ",")
            )
        }
    };
    shapes.extend([
        shape("blocks", content(r#"{"type":"text","text":"\\#"}"#)),
        shape("links", content(r#"{"type":"resource_link","uri":"a:#"}"#)),
        shape("no blocks", content("#")),
        shape("a long label", |bytes| {
            let name = "é".repeat(bytes / 2);
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"resource_link","uri":"a:b","name":"{name}"}}]}}}}"#
            )
        }),
        shape("padding", |bytes| {
            let data = "=".repeat(bytes);
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"image","data":"{data}"}}]}}}}"#
            )
        }),
        shape("revisions", |bytes| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"supportedVersions":[{}]}}}}"#,
                list(bytes, r#""v#""#, ",")
            )
        }),
        shape("a long method", |bytes| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"{}"}}"#,
                "\\n".repeat(bytes / 2)
            )
        }),
    ]);
    shapes
}

fn lists() -> Vec<Shape> {
    let mut shapes = with_unknown(
        r#"{"tools":[{"name":"t","inputSchema":{"x-mcp-header":"#,
        "}}]}",
    );
    let tools =
        |piece: &'static str| move |bytes| format!(r#"{{"tools":[{}]}}"#, list(bytes, piece, ","));
    shapes.extend([
        shape(
            "tools",
            tools(r#"{"name":"t#","inputSchema":{"properties":{"a":{"x-mcp-header":"A"}}}}"#),
        ),
        shape(
            "tools of one name",
            tools(r#"{"name":"t","inputSchema":{"properties":{"a#":{"x-mcp-header":"A"}}}}"#),
        ),
        shape("no tools", tools("#")),
    ]);
    shapes
}
