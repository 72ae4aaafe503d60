//! Conditions of grants (`when`): reading one, and deciding a call with it.

use std::hint::black_box;

use toolcrib_rules::expression::{Expression, Facts};

use super::{Entry, KIB, entry, prepared};
use crate::shapes::{json_values, repeated, shape, within};

pub(super) fn expression() -> Entry {
    let joined = |part: &'static str, by: &'static str| {
        move |bytes: usize| vec![part; bytes / (part.len() + by.len())].join(by)
    };
    entry(
        "expression",
        "4 KiB",
        KIB / 2,
        vec![
            repeated("brackets", "("),
            repeated("nots", "!"),
            repeated("space", " "),
            repeated("names", "a"),
            repeated("digits", "1"),
            repeated("fields", ".a"),
            repeated("quotes", "'"),
            repeated("escapes", r"'\u0041'"),
            shape("one text", |bytes| format!("'{}'", "a".repeat(bytes))),
            shape("conditions", joined("args.a==1", "&&")),
            shape("sums", joined("1", "+")),
            shape("choices", joined("true?true", ":")),
            shape("lists", joined("1 in[1,2,3]", "||")),
            shape("walks", joined("args.a.all(x,true)", "||")),
            shape("patterns", joined("args.a.matches('[a-z]{20}')", "||")),
        ],
        |text| drop(black_box(Expression::read(text))),
    )
}

/// Arguments against conditions of a grant that walk, search and compare them.
pub(super) fn condition() -> Entry {
    let texts = [
        "args.b.all(x, x == x) || args.b.exists(y, y == 1)",
        "args.b.all(x, args.b.all(y, x == y || x != y))",
        "args.b == args.b && size(args.b) > 0",
        "args.b.lowerAscii().contains('zzz') || args.b.size() > 1",
    ];
    prepared(
        "arguments against a condition",
        "256 KiB, 50,000 steps",
        KIB / 2,
        within(json_values(), r#"{"b":"#, "}"),
        move || {
            let read = texts.map(|text| Expression::read(text).expect("an expression"));
            Box::new(move |text| {
                let arguments: serde_json::Value = serde_json::from_str(text).expect("arguments");
                let facts = Facts {
                    agent_name: "otter",
                    agent_namespace: "pond",
                    tool_name: "take",
                    tool_surface: "fish",
                    tool_tier: "System",
                    now: jiff::Timestamp::UNIX_EPOCH,
                };
                for expression in &read {
                    black_box(expression.holds(&facts, &arguments, |_, _| Some(true)));
                }
            })
        },
    )
}
