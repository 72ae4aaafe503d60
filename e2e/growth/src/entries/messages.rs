//! JSON as both sides scan it, and the messages and headers of MCP.

use std::hint::black_box;

use toolcrib_bounds::json::nests_within;
use toolcrib_dialect::json as scan;
use toolcrib_mcp::{Message, header};

use super::{Entry, KIB, entry};
use crate::shapes::{broken_json, json_texts, json_values, list, shape, within};

pub(super) fn entries() -> Vec<Entry> {
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
