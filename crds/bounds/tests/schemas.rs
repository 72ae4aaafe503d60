//! Accepted schemas, and the cost of checking values.

use serde_json::{Map, Value, json};
use toolcrib_bounds::schema::{DefectKind, Rejection, Schema, Validator};

#[track_caller]
fn taken(schema: &Value) -> Validator {
    Validator::read(&schema.to_string()).expect("is taken")
}

#[track_caller]
fn refused(schema: &Value, kind: DefectKind, pointer: &str) {
    let text = schema.to_string();
    let defect = Validator::read(&text).expect_err("is refused");
    assert_eq!((defect.kind, &*defect.pointer), (kind, pointer), "{defect}");
}

fn doubling(levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), json!({"allOf": [next.clone(), next]}));
    }
    defs.insert(format!("l{levels}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/l0", "$defs": defs})
}

#[test]
fn common_schemas_are_accepted() {
    for schema in [
        json!({}),
        json!({"type": "object", "properties": {"fish": {"type": "string", "enum": ["trout"]}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
               "properties": {"tree": {"$ref": "#/$defs/node"}},
               "$defs": {"node": {"type": "object", "properties": {
                   "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}),
        // An argument may have this name, and a document may have an id.
        json!({"$id": "urn:fish", "type": "object", "properties": {"id": {"type": "string"}}}),
        json!({"properties": {"pattern": {"type": "string", "pattern": "^[a-z]{1,64}$"}}}),
    ] {
        taken(&schema);
    }
}

#[test]
fn schemas_that_do_not_describe_an_object_are_refused() {
    refused(&json!([]), DefectKind::Invalid, "");
    refused(&json!(true), DefectKind::Invalid, "");
    refused(&json!({"type": "string"}), DefectKind::Invalid, "/type");
    refused(
        &json!({"type": "object", "properties": {"fish": {"type": "strnig"}}}),
        DefectKind::Invalid,
        "/properties/fish/type",
    );
    refused(
        &json!({"type": "object", "required": "fish"}),
        DefectKind::Invalid,
        "/required",
    );
}

#[test]
fn references_stay_in_the_document() {
    for target in [
        "https://pond.test/fish.json",
        "file:///etc/passwd",
        "fish.json",
    ] {
        refused(
            &json!({"properties": {"fish": {"$ref": target}}}),
            DefectKind::RemoteReference,
            "/properties/fish/$ref",
        );
    }
    refused(
        &json!({"properties": {"fish": {"$ref": "#/$defs/missing"}}}),
        DefectKind::Invalid,
        "",
    );
}

#[test]
fn references_count_from_the_root() {
    // For the validator, each of these refers to itself.
    refused(
        &json!({"properties": {"fish": {"$id": "urn:fish", "allOf": [{"$ref": "#"}]}}}),
        DefectKind::Invalid,
        "/properties/fish/$id",
    );
    refused(
        &json!({"$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"fish": {"id": "urn:fish", "allOf": [{"$ref": "#"}]}}}),
        DefectKind::Invalid,
        "/properties/fish/id",
    );
    refused(
        &json!({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}),
        DefectKind::Invalid,
        "/$ref",
    );
}

#[test]
fn infinite_self_references_are_refused() {
    for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
        refused(
            &json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{keyword: "#/$defs/a"}]}}}),
            DefectKind::Invalid,
            "",
        );
        refused(
            &json!({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"if": {keyword: "#/%24defs/a"}}}}}),
            DefectKind::Invalid,
            "",
        );
    }
}

#[test]
fn bombs_of_references_nodes_depth_and_bytes_are_refused() {
    refused(&doubling(24), DefectKind::TooLarge, "");
    taken(&doubling(4));
    let deep = (0..60).fold(json!({}), |inner, _| json!({"not": inner}));
    refused(&deep, DefectKind::TooLarge, "");
    let wide: Vec<_> = (0..9000).map(|n| json!(n)).collect();
    refused(&json!({"enum": wide}), DefectKind::TooLarge, "");
    let long = "x".repeat(70_000);
    refused(&json!({"description": long}), DefectKind::TooLarge, "");
}

#[test]
fn long_names_above_many_nodes_are_refused() {
    let leaves = json!({"allOf": vec![json!({}); 4000]});
    let name = "x".repeat(2000);
    let schema = (0..20).fold(
        leaves,
        |inner, _| json!({"properties": {name.as_str(): inner}}),
    );
    refused(&schema, DefectKind::TooLarge, "");
}

#[test]
fn long_chains_of_references_are_refused() {
    let chain = |length: usize| {
        let mut defs = Map::new();
        for link in 0..length {
            defs.insert(
                format!("l{link}"),
                json!({"$ref": format!("#/$defs/l{}", link + 1)}),
            );
        }
        defs.insert(
            format!("l{length}"),
            json!({"items": {"$ref": "#/$defs/l0"}}),
        );
        json!({"$ref": "#/$defs/l0", "$defs": defs})
    };
    refused(&chain(1500), DefectKind::TooLarge, "");
    // At each level of a value, the whole chain is on the stack once more: the stack of the
    // mediator's main thread, which checks values.
    let check = std::thread::Builder::new().stack_size(8 * 1024 * 1024);
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
    let checked = check
        .spawn(move || taken(&chain(30)).check(&deep))
        .expect("a thread starts");
    assert_eq!(checked.join().expect("does not overflow"), Ok(()));
}

#[test]
fn patterns_over_a_bound_are_refused() {
    let patterns = |pattern: &dyn Fn(usize) -> String, count: usize| {
        let properties: Map<String, Value> = (0..count)
            .map(|at| (format!("p{at}"), json!({"pattern": pattern(at)})))
            .collect();
        json!({"properties": properties})
    };
    refused(
        &patterns(&|at| format!(r"\p{{L}}{{60}}k{at}"), 400),
        DefectKind::Pattern,
        "",
    );
    refused(
        &patterns(&|at| format!("[a-z]k{at}"), 65),
        DefectKind::Pattern,
        "",
    );
    refused(
        &patterns(&|at| format!(r"\p{{L}}{{4}}k{at}"), 10),
        DefectKind::Pattern,
        "",
    );
    taken(&patterns(&|at| format!("[a-z]k{at}"), 64));
    taken(&patterns(&|_| "[a-z]{100}".to_owned(), 1000));
    refused(
        &json!({"patternProperties": {"^(?!x)": {}}}),
        DefectKind::Pattern,
        "",
    );
    refused(
        &json!({"propertyNames": {"pattern": r"(a)\1"}}),
        DefectKind::Pattern,
        "",
    );
    // Where no validator looks for a pattern, it is plain text.
    taken(&json!({"properties": {"p": {"default": {"pattern": "(?=x)"}}}}));
}

/// Every pattern that passes the count can be built: none within the bounds is too large for the
/// engine.
#[test]
fn every_counted_pattern_can_be_built() {
    for pattern in [
        ".{1,1400}",
        "^.{1,1400}$",
        "(?:a?){5000}",
        "(a{0,60}){0,60}",
        r"\p{L}{1,18}",
        "(?:a|b|c|d){2000}",
        "[^/]{1400}",
        r"(?:\b|\B){1000}",
    ] {
        taken(&json!({"properties": {"p": {"pattern": pattern}}}));
    }
}

#[test]
fn a_check_that_would_take_too_long_is_skipped() {
    let number = |count: usize| json!((0..count).collect::<Vec<_>>());
    let each = taken(&json!({"properties": {"a": {"items": {"not": {"enum": number(3000)}}}}}));
    assert_eq!(each.check(&json!({"a": [-1, -2]})), Ok(()));
    assert_eq!(
        each.check(&json!({"a": number(2000)})),
        Err(Rejection::TooLarge)
    );
    // A text costs its length, times the states that are alive at each byte.
    let text = taken(&json!({"properties": {"a": {"pattern": "^[ab]*a[ab]{900}$"}}}));
    assert_eq!(
        text.check(&json!({"a": format!("a{}", "b".repeat(900))})),
        Ok(())
    );
    assert_eq!(
        text.check(&json!({"a": "ab".repeat(30_000)})),
        Err(Rejection::TooLarge)
    );
    let short = taken(&json!({"properties": {"a": {"pattern": "^.{1,1400}$"}}}));
    assert_eq!(short.check(&json!({"a": "é".repeat(1300)})), Ok(()));
    // A property costs only if the value has it.
    let properties: Map<String, Value> = (0..60)
        .map(|at| (format!("p{at}"), json!({"pattern": "^[a-z0-9 ]{1,100}$"})))
        .collect();
    let records = taken(&json!({"properties": {"a": {"items": {"properties": properties}}}}));
    let record = json!({"p1": "a".repeat(90), "p2": "b".repeat(90)});
    assert_eq!(records.check(&json!({"a": vec![record; 4000]})), Ok(()));
}

#[test]
fn a_pattern_that_once_backtracked_is_checked_in_linear_time() {
    let schema = json!({"properties": {"a": {"items": {"not": {"pattern": "^(b+)+$"}}}}});
    let values: Vec<String> = (0..5000)
        .map(|at| format!("bbbbbbbbbbbbbbbbbbbbc{at}"))
        .collect();
    assert_eq!(taken(&schema).check(&json!({"a": values})), Ok(()));
}

/// The words, and the place and rule of the first violation.
fn violated(schema: &Value, value: &Value) -> (String, String, String) {
    let Err(Rejection::Invalid(violations)) = taken(schema).check(value) else {
        panic!("is rejected");
    };
    let first = violations.first();
    (
        violations.words(1000),
        first.path.clone(),
        first.rule.clone(),
    )
}

#[test]
fn an_error_names_the_place_and_never_quotes_the_value() {
    let schema = json!({"properties": {"a": {"maxLength": 3}}});
    let (words, path, rule) = violated(&schema, &json!({"a": "hunter2"}));
    assert_eq!((&*path, &*rule), ("/a", "/properties/a/maxLength"));
    assert_eq!(words, "`a`: value is longer than 3 characters");
}

#[test]
fn all_violations_are_named_in_the_order_of_their_places() {
    let schema = json!({
        "required": ["zone", "owner"],
        "properties": {
            "amount": {"type": "integer", "maximum": 9, "multipleOf": 5},
            "orders": {"items": {"properties": {"side": {"enum": ["buy", "sell"]}}}},
        },
        "additionalProperties": false,
    });
    let value = json!({"amount": 12, "orders": [{"side": "buy"}, {"side": "hunter2"}], "x": 1});
    let (words, path, rule) = violated(&schema, &value);
    assert_eq!((&*path, &*rule), ("", "/additionalProperties"));
    assert_eq!(
        words,
        "Additional properties are not allowed ('x' was unexpected); \"zone\" is a required property; \
         \"owner\" is a required property; `amount`: value is greater than the maximum of 9; \
         `amount`: value is not a multiple of 5; and 1 more"
    );
}

#[test]
fn schemas_that_compare_numbers_are_known() {
    for (schema, compares) in [
        (json!({"properties": {"a": {"maximum": 100}}}), true),
        (json!({"properties": {"a": {"type": "integer"}}}), true),
        (json!({"properties": {"a": {"enum": [1]}}}), true),
        (
            json!({"properties": {"a": {"type": ["number", "string"]}}}),
            false,
        ),
        (
            json!({"properties": {"maximum": {"type": "number"}}}),
            false,
        ),
    ] {
        assert_eq!(taken(&schema).compares_numbers(), compares, "{schema}");
    }
}

#[test]
fn format_regex_is_bounded_by_the_length_of_the_text() {
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"format": "regex"}}});
    let validator = taken(&schema);
    assert_eq!(validator.check(&json!({"a": "^(?=a)b$"})), Ok(()));
    for text in ["(".to_owned(), "(?<a>x)".repeat(2000)] {
        assert!(validator.check(&json!({"a": text})).is_err());
    }
    let schema = Schema::read(&schema.to_string()).expect("is taken");
    assert!(schema.weight() < 1024 * 1024);
}
