//! The mediator's work on a call: its arguments, the scrubber, and the lines of the record.

use std::hint::black_box;
use std::sync::Arc;

use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::{Tier, ToolsFile};
use toolcrib_mediation::{Authority, Catalog, ClawId, DirectCall, PresentedTools, Scrubber};
use toolcrib_sidecar::history::line;

use super::{Entry, KIB, entry, prepared};
use crate::shapes::{Shape, broken_json, json_texts, json_values, list, repeated, shape, within};

pub(super) fn entries() -> Vec<Entry> {
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
        entry(
            "scrubber of a long secret",
            "what holds it",
            KIB / 2,
            scrub_shapes(),
            |text| {
                let half = text.floor_char_boundary(text.len() / 2);
                let secret = format!("{}b", &text[..half]);
                black_box(Scrubber::new([&*secret]).scrub_text(text));
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
