//! Patterns, schemas, conditions of grants, and the numbers and pointers in JSON.

use std::hint::black_box;

use serde_json::{Value, json};
use toolcrib_bounds::json::{number, pointer};
use toolcrib_bounds::schema::Validator;
use toolcrib_bounds::{pattern, schema};

use super::{Entry, KIB, conditions, entry, prepared, record};
use crate::shapes::{Shape, json_texts, json_values, list, repeated, shape, within};

pub(super) fn entries() -> Vec<Entry> {
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
