//! The record as `kubectl toolcrib audit` and `propose` read it: one line, and the verification of many.

use std::hint::black_box;

use kubectl_toolcrib::foreign;
use toolcrib_record::{Line, Verifier, short_form};

use super::{Entry, KIB, entry};
use crate::shapes::{json_values, list, shape, within};

/// A line that anybody who may write the store may have written.
pub(super) fn line() -> Entry {
    const END: &str = concat!(
        r#","chain":"c","seq":1,"prev":"#,
        r#""0000000000000000000000000000000000000000000000000000000000000000"}"#
    );
    entry(
        "line of a record",
        "16 MiB",
        KIB,
        within(json_values(), r#"{"kind":"gap","lines":1,"x":"#, END),
        |text| {
            let text = text.as_bytes();
            drop(black_box(Line::parse(text)));
            black_box(short_form(text).expect("it has a place in a chain"));
        },
    )
}

/// Many lines that name each other: chains of one line, and lines of one chain.
pub(super) fn verified() -> Entry {
    const HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
    let start = |previous: &str, place: &str| {
        format!(
            r#"{{"kind":"start","version":1,"pod":"p","timestamp":"t","previous":{{{previous},"hash":"{HASH}"}},{place},"prev":"{HASH}"}}"#
        )
    };
    let lines = |piece: String| move |bytes: usize| list(bytes, &piece, "\n");
    entry(
        "lines of a record, verified",
        "4,000,000 lines",
        16 * KIB,
        vec![
            shape(
                "chains that name one another",
                lines(start(r#""chain":"c#","seq":1"#, r#""chain":"d#","seq":0"#)),
            ),
            shape(
                "chains that name one line",
                lines(start(
                    r#""chain":"c10000","seq":0"#,
                    r#""chain":"c#","seq":0"#,
                )),
            ),
            shape(
                "chains that name lines of one",
                lines(start(
                    r#""chain":"c10000","seq":#"#,
                    r#""chain":"c#","seq":0"#,
                )),
            ),
            shape(
                "one chain",
                lines(format!(
                    r#"{{"kind":"gap","lines":1,"chain":"c","seq":#,"prev":"{HASH}"}}"#
                )),
            ),
            shape(
                "one place",
                lines(format!(
                    r#"{{"kind":"gap","lines":#,"chain":"c","seq":1,"prev":"{HASH}"}}"#
                )),
            ),
            shape(
                "lines aside",
                lines(format!(
                    r#"{{"kind":"gap","lines":#,"chain":"c","after":1,"prev":"{HASH}"}}"#
                )),
            ),
        ],
        |text| {
            let mut verifier = Verifier::default();
            verifier.source("record");
            for line in text.lines() {
                verifier.push(line.as_bytes()).expect("few lines");
            }
            black_box(verifier.finish(&[]));
        },
    )
}

/// Intents and turns of many requests, and of one.
pub(super) fn joined() -> Entry {
    const INTENT: &str = r#"{"kind":"intent","request_id":"R","call_id":"c#","agent_id":"a","pod":"p","timestamp":"t","round":1,"name":"n","arguments":{},"service":"s","tier":"System","read_only":false}"#;
    const CALL: &str =
        r#"{"call_id":"c#","name":"n","arguments":{},"result":{},"latency_ms":1,"executed":true}"#;
    let turn = |request: &str, calls: &str| {
        format!(
            r#"{{"kind":"turn","request_id":"{request}","agent_id":"a","pod":"p","timestamp":"t","dialect":"openai","token":"t","http_status":200,"duration_ms":1,"status":"ok","usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_trace":[{{"round":1,"round_usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_calls":[{calls}]}}]}}"#
        )
    };
    let many = move |bytes: usize| {
        let intents = list(bytes / 3, &INTENT.replace('R', "r#"), "\n");
        let turns = list(bytes * 2 / 3, &turn("r#", CALL), "\n");
        let mut last_first: Vec<&str> = turns.lines().collect();
        last_first.reverse();
        format!("{intents}\n{}", last_first.join("\n"))
    };
    let one = move |bytes: usize| {
        let intents = list(bytes * 2 / 3, &INTENT.replace('R', "r"), "\n");
        format!("{intents}\n{}", turn("r", &list(bytes / 3, CALL, ",")))
    };
    entry(
        "calls of a record",
        "64 MiB of intents that wait",
        16 * KIB,
        vec![shape("many requests", many), shape("one request", one)],
        |text| {
            let calls = foreign::calls_of_record(text).expect("a number");
            assert!(black_box(calls) > 0);
        },
    )
}

/// Calls of one tool: with distinct values, with one long value, and of many tools.
pub(super) fn proposed() -> Entry {
    let call = |name: &str, arguments: &str| {
        format!(
            r#"{{"kind":"turn","request_id":"r#","agent_id":"a","pod":"p","timestamp":"t","dialect":"openai","token":"t","http_status":200,"duration_ms":1,"status":"ok","usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_trace":[{{"round":1,"round_usage":{{"prompt_tokens":1,"completion_tokens":1}},"tool_calls":[{{"call_id":"c#","name":"{name}","arguments":{arguments},"result":{{}},"latency_ms":1,"executed":true}}]}}]}}"#
        )
    };
    let used = call("pond.n", r#"{"a":"once"}"#).replace('#', "0");
    let lines = move |piece: String| {
        let used = used.clone();
        move |bytes: usize| format!("{used}\n{}", list(bytes, &piece, "\n"))
    };
    let long = call("pond.n", r#"{"a":"LONG"}"#).replace('#', "1");
    entry(
        "grant from a record",
        "9 values of an argument",
        16 * KIB,
        vec![
            shape(
                "distinct values",
                lines(call("pond.n", r##"{"a":"v#","b":#}"##)),
            ),
            shape("distinct tools", lines(call("pond.x#", "{}"))),
            shape("distinct arguments", lines(call("pond.n", r##"{"x#":1}"##))),
            shape("one long value", move |bytes: usize| {
                long.replace("LONG", &"x".repeat(bytes))
            }),
        ],
        |text| {
            let bytes = foreign::proposed_grants(text).expect("a grant");
            assert!(black_box(bytes) > 0);
        },
    )
}
