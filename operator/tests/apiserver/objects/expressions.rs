//! Conditions of grants (`when`) beside the CEL of a real API server: the same expressions on the same
//! arguments, as validation rules of a CustomResourceDefinition that is made for the test.
//!
//! Not here: what only grants have (`now`, `agent`, `tool`), and what only CEL has, which our reader
//! refuses.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Map, Value, json};
use toolcrib_bounds::schema::Validator;
use toolcrib_rules::expression::{Expression, Facts};

use crate::support::harness::Harness;

/// Expressions that CEL accepts. It has types, so they are those of [`types`].
const EXPRESSIONS: [&str; 85] = [
    // Numbers.
    "args.amount <= 100",
    "args.amount < args.price",
    "args.price >= 1.5 && 99.5 > args.price",
    "args.amount == 100",
    "args.amount != 100",
    "args.price == 1.5",
    "args.amount + args.other == 107",
    "args.amount - 7 * args.other > 0",
    "args.amount / 3 == 33",
    "args.amount / args.other == 14",
    "args.amount % 7 == 2",
    "args.amount % args.other == 0",
    "-args.amount == -100",
    "args.price * 2.0 == 3.0",
    "args.price - args.price == 0.0",
    "args.large + args.amount > 0",
    "args.large * args.amount > 0",
    "-args.large < 0",
    "args.large == 9223372036854775807",
    "int(args.price) == 1",
    "double(args.amount) == 100.0",
    "int(args.note) == 7",
    "int('7') == 7",
    "double('1.5') == args.price",
    "args.amount in [1, 100]",
    "!(args.amount / args.other == 14)",
    // Texts.
    "args.note == 'Ship To Dock 7'",
    "args.note != ''",
    "args.note < 'a'",
    "args.note.startsWith('Ship')",
    "args.note.endsWith('7')",
    "args.note.contains('Dock')",
    "!args.note.contains('Dock')",
    "args.note.lowerAscii() == 'ship to dock 7'",
    "args.note.size() == 14",
    "size(args.note) > 14",
    "args.note.matches('^Ship')",
    "args.note.matches('[0-9]$')",
    "args.note.matches('D(o|a)ck')",
    "args.note.matches('^[a-z ]+$')",
    "args.note in ['', 'x']",
    "size('h\\u00e9llo') == 5 && args.note.size() < 20",
    "'\\u0041\\'' == \"A'\" && args.urgent",
    // Truth, and a side that has no value.
    "args.urgent",
    "!args.urgent",
    "args.urgent && args.amount > 1",
    "args.urgent || args.amount / args.other == 1",
    "args.amount / args.other == 1 || args.urgent",
    "args.amount / args.other == 1 && args.urgent",
    "args.urgent ? args.amount == 100 : args.other == 1",
    "args.urgent == true",
    "has(args.note)",
    "!has(args.note)",
    "has(args.to.city) && args.to.city == 'Kiel'",
    "!has(args.to) || args.to.lines.size() > 1",
    "has(args.to) ? has(args.to.city) : true",
    // Times.
    "timestamp(args.at) > timestamp('2026-11-24T11:59:59Z')",
    "timestamp(args.at) - timestamp('2026-11-24T10:00:00Z') == duration('2h')",
    "timestamp(args.at) + duration('90m') <= timestamp('2026-11-24T13:30:00Z')",
    "duration('1h30m') > duration('89m') && args.urgent",
    "timestamp(args.at).getFullYear() == 2026 && timestamp(args.at).getMonth() == 10",
    "timestamp(args.at).getDate() == 24 && timestamp(args.at).getDayOfWeek() == 2",
    "timestamp(args.at).getHours() == 12 && timestamp(args.at).getMinutes() == 0",
    "timestamp(args.at).getHours('+01:00') == 13",
    "timestamp(args.at).getMinutes('-00:30') == 30",
    "timestamp(args.note) < timestamp('2026-01-01T00:00:00Z')",
    // Lists.
    "args.tags.size() == 2",
    "size(args.tags) > 2",
    "args.tags == ['red', 'blue']",
    "'red' in args.tags",
    "!('red' in args.tags)",
    "args.tags[0] == 'red'",
    "args.tags[1] == 'blue'",
    "args.tags[-1] == 'blue'",
    "args.tags.all(t, t.size() > 2)",
    "args.tags.exists(t, t == 'blue')",
    "args.tags.exists_one(t, t.startsWith('r'))",
    "args.tags.filter(t, t != 'red').size() == 1",
    "args.counts.all(n, n / args.other >= 0)",
    "args.counts.exists(n, n % args.other == 1)",
    "args.counts.exists_one(n, 6 / n == 3)",
    "args.counts.all(n, args.counts.exists(m, m == n))",
    "args.to.lines.all(line, line.count > 1 && line.sku.matches('^[AB]-[0-9]$'))",
    "args.to.lines.exists(line, line.count == 5)",
    "args.to.lines[1].count == 5",
];

/// Expressions that CEL refuses for their types, before it sees arguments. Each is decided here by the
/// values of a call; the number says of how many argument sets it holds.
const UNTYPED: [(&str, usize); 5] = [
    ("args.amount * args.price == 150.0", 8),
    ("args.amount == 100.0", 9),
    ("args.price == 2", 1),
    ("args.tags == [1]", 0),
    ("args.note > 1", 0),
];

/// An expression of which CEL says that it holds, and we do not: a division by zero has no value here,
/// and is infinite there.
const STRICTER: &str = "args.price / 0.0 > 1.0";

/// The types of the arguments. The bounds keep the estimated cost within the server's limit.
fn types() -> Value {
    let text = json!({"type": "string", "maxLength": 40});
    json!({"type": "object", "properties": {
        "amount": {"type": "integer"}, "other": {"type": "integer"}, "large": {"type": "integer", "format": "int64"},
        "price": {"type": "number"}, "urgent": {"type": "boolean"}, "note": text, "at": text,
        "tags": {"type": "array", "maxItems": 4, "items": text},
        "counts": {"type": "array", "maxItems": 4, "items": {"type": "integer"}},
        "to": {"type": "object", "properties": {
            "city": text,
            "lines": {"type": "array", "maxItems": 4, "items": {"type": "object",
                "properties": {"sku": text, "count": {"type": "integer"}}}},
        }},
    }})
}

fn all() -> impl Iterator<Item = &'static str> {
    EXPRESSIONS.into_iter().chain([STRICTER])
}

fn arguments() -> Vec<Value> {
    let whole = json!({
        "amount": 100, "other": 7, "large": i64::MAX, "price": 1.5, "urgent": true,
        "note": "Ship To Dock 7", "at": "2026-11-24T12:00:00Z", "tags": ["red", "blue"], "counts": [1, 2, 3],
        "to": {"city": "Kiel", "lines": [{"sku": "A-1", "count": 2}, {"sku": "B-2", "count": 5}]},
    });
    let with = |changes: &[(&str, Value)]| {
        let mut arguments = whole.clone();
        for (name, value) in changes {
            arguments[*name] = value.clone();
        }
        arguments
    };
    let mut without: Vec<Value> = ["amount", "at", "note", "tags", "to", "urgent"]
        .iter()
        .map(|name| {
            let mut arguments = whole.clone();
            arguments.as_object_mut().expect("an object").remove(*name);
            arguments
        })
        .collect();
    let mut all = vec![
        whole.clone(),
        with(&[
            ("other", json!(0)),
            ("price", json!(2.5)),
            ("large", json!(i64::MIN)),
        ]),
        with(&[
            ("amount", json!(-100)),
            ("urgent", json!(false)),
            ("price", json!(2.0)),
        ]),
        with(&[
            ("note", json!("")),
            ("tags", json!([])),
            ("counts", json!([])),
            ("to", json!({})),
        ]),
        with(&[
            ("note", json!("7")),
            ("counts", json!([0, 2, 6])),
            ("tags", json!(["red", "red"])),
        ]),
        json!({}),
    ];
    all.append(&mut without);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_agree_with_the_api_servers_cel() {
    let harness = Harness::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(harness.client.clone());
    let group = format!("{}.test", harness.pond);
    let name = format!("probes.{group}");

    // The whole definition is refused for the expressions that have no types, and for no other.
    let with_all = definition(&group, all().chain(UNTYPED.map(|it| it.0)));
    let refused = definitions.create(&PostParams::default(), &with_all).await;
    let untyped: BTreeSet<usize> = (all().count()..all().count() + UNTYPED.len()).collect();
    assert_eq!(refused_rules(refused), untyped);

    let accepted = definition(&group, all());
    let created = definitions.create(&PostParams::default(), &accepted).await;
    created.expect("the definition");
    let kind = GroupVersionKind::gvk(&group, "v1", "Probe");
    let resource = ApiResource::from_gvk_with_plural(&kind, "probes");
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client.clone(), &harness.pond, &resource);
    harness
        .eventually("the kind is served", || async {
            api.list(&Default::default()).await.ok()
        })
        .await;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut differences = Vec::new();
    for arguments in arguments() {
        let copies: Map<String, Value> = (0..all().count())
            .map(|at| (format!("e{at}"), arguments.clone()))
            .collect();
        let probe = json!({"apiVersion": format!("{group}/v1"), "kind": "Probe",
            "metadata": {"name": "probe", "namespace": harness.pond}, "spec": copies});
        let probe: DynamicObject = serde_json::from_value(probe).expect("an object");
        let refused = refused_rules(api.create(&dry_run, &probe).await);
        for (at, text) in all().enumerate() {
            let there = !refused.contains(&at);
            let here = holds(text, &arguments);
            let is_stricter = text == STRICTER && !here;
            if here != there && !is_stricter {
                differences.push(format!("{text}: here {here}, there {there}: {arguments}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for (text, expected) in UNTYPED {
        let held = arguments().iter().filter(|it| holds(text, it)).count();
        assert_eq!(held, expected, "{text}");
    }
    let deleted = definitions.delete(&name, &DeleteParams::default()).await;
    deleted.expect("deleted");
    harness.end().await;
}

/// A kind whose property `eN` has the arguments' types, and the expression of this number as its rule.
fn definition<'e>(
    group: &str,
    expressions: impl Iterator<Item = &'e str>,
) -> CustomResourceDefinition {
    let properties: Map<String, Value> = expressions
        .enumerate()
        .map(|(at, text)| {
            let mut property = types();
            let rule = text.replace("args.", "self.");
            property["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
            (format!("e{at}"), property)
        })
        .collect();
    let definition = json!({
        "metadata": {"name": format!("probes.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Probe", "plural": "probes", "singular": "probe"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": properties}},
            }}}],
        },
    });
    serde_json::from_value(definition).expect("a definition")
}

/// The numbers of the expressions that an answer's causes name.
fn refused_rules<T>(answer: Result<T, kube::Error>) -> BTreeSet<usize> {
    let status = match answer {
        Ok(_) => return BTreeSet::new(),
        Err(kube::Error::Api(status)) => status,
        Err(error) => panic!("{error}"),
    };
    let causes = status.details.into_iter().flat_map(|it| it.causes);
    causes
        .map(|cause| {
            let number = |begin: &str| {
                let rest = cause.field.split_once(begin)?.1;
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                rest[..digits].parse().ok()
            };
            let number = number("properties[e").or_else(|| number("spec.e"));
            number.unwrap_or_else(|| panic!("{}: {}", cause.field, cause.message))
        })
        .collect()
}

fn holds(text: &str, arguments: &Value) -> bool {
    let expression = Expression::read(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    let facts = Facts {
        agent_name: "",
        agent_namespace: "",
        tool_name: "",
        tool_surface: "",
        tool_tier: "",
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let patterns = expression.patterns().iter();
    let patterns: Vec<Validator> = patterns
        .map(|pattern| {
            let schema = json!({ "pattern": pattern }).to_string();
            Validator::read(&schema).expect("a pattern that was counted")
        })
        .collect();
    expression.holds(&facts, arguments, |number, text| {
        Some(patterns[number].accepts(&Value::from(text)))
    })
}
