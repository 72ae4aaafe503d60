//! Measures the bytes that the library allocates for schemas, on the thread of each test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use allocation_counter::measure;
use serde_json::{Map, Value, json};
use toolcrib_bounds::schema::{MAX_BYTES, Rejection, Schema, Validator};

const MIB: u64 = 1024 * 1024;

/// Limits the memory for reading and building any schema. A webhook has 256 MiB.
const MAX_BUILD: u64 = 24 * MIB;

/// Runs the tests one at a time. A thread that waits for the lock around a schema's build allocates
/// the lock's queue, and [`measure`] would count that.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn check(what: &str, schema: &Value) {
    let text = schema.to_string();
    assert!(text.len() < 4 * MAX_BYTES, "{what}: {} bytes", text.len());
    let mut validator = None;
    let used = measure(|| validator = Validator::read(&text).ok());
    assert!(used.bytes_max < MAX_BUILD, "{what}: {used:?}");
    if let Some(validator) = &validator {
        let kept = used.bytes_current;
        let weight = validator.weight() as i64;
        assert!(kept < weight, "{what}: keeps {kept}, weighs {weight}");
    }
}

fn patterns(count: usize, pattern: impl Fn(usize) -> String) -> Value {
    let properties: Map<String, Value> = (0..count)
        .map(|at| {
            (
                format!("p{at}"),
                json!({"type": "string", "pattern": pattern(at)}),
            )
        })
        .collect();
    json!({"type": "object", "properties": properties})
}

#[test]
fn four_hundred_patterns_that_expand_take_no_memory() {
    let _turn = one_at_a_time();
    let bomb = patterns(400, |at| format!(r"\p{{L}}{{60}}k{at}")).to_string();
    let used = measure(|| assert!(Schema::read(&bomb).is_err()));
    assert!(used.bytes_max < 2 * MIB, "{used:?}");
}

#[test]
fn memory_is_bounded_for_every_kind_of_schema() {
    let _turn = one_at_a_time();
    check("nothing", &json!({}));
    check(
        "large classes",
        &patterns(19, |at| format!(r"\p{{L}}k{at}")),
    );
    check("case", &patterns(16, |at| format!(r"(?i)\p{{L}}k{at}")));
    check(
        "one class after another",
        &patterns(64, |at| format!("{}k{at}", r"\p{L}".repeat(200))),
    );
    check("repetition", &patterns(1, |_| ".{1400}".to_owned()));
    check("options", &patterns(1, |_| "(?:a?){5000}".to_owned()));
    check(
        "many patterns",
        &patterns(64, |at| format!("[a-z]{{100}}k{at}")),
    );
    check(
        "long patterns",
        &patterns(60, |at| format!("{}{at}", "(a|b)".repeat(180))),
    );
    check(
        "nested groups",
        &patterns(64, |at| {
            format!("{}a{}{at}", "(".repeat(40), ")*".repeat(40))
        }),
    );

    let leaves: Map<String, Value> = (0..2000)
        .map(|at| (format!("p{at}"), json!({"type": "string", "minLength": 1})))
        .collect();
    check("leaves", &json!({"properties": leaves}));
    check("branches", &json!({"anyOf": vec![json!({}); 8000]}));
    check(
        "negations",
        &json!({"allOf": vec![json!({"not": {}}); 4000]}),
    );
    let names: Vec<String> = (0..6000).map(|at| format!("n{at}")).collect();
    check("names", &json!({"required": names, "enum": names}));
    let name = "x".repeat(700);
    let wide = json!({"allOf": vec![json!({}); 260]});
    let paths = (0..20).fold(
        wide,
        |inner, _| json!({"properties": {name.as_str(): inner}}),
    );
    check("paths", &paths);
    let one: Map<String, Value> = (0..50)
        .map(|at| (format!("p{at}"), json!({"type": "string"})))
        .collect();
    let references = vec![json!({"$ref": "#/$defs/one"}); 1500];
    check(
        "references",
        &json!({"allOf": references, "$defs": {"one": {"properties": one}}}),
    );
    let properties: Map<String, Value> =
        (0..2000).map(|at| (format!("p{at}"), json!({}))).collect();
    let by_pattern: Map<String, Value> = (0..64)
        .map(|at| (format!("[a-z]{{50}}.*k{at}"), json!({})))
        .collect();
    check(
        "patterns for properties",
        &json!({"properties": properties, "patternProperties": by_pattern,
            "additionalProperties": false, "unevaluatedProperties": false}),
    );
}

/// The library collects an error for each branch at each value before it formats one.
#[test]
fn a_rejected_value_allocates_no_unread_errors() {
    let _turn = one_at_a_time();
    let branches = vec![json!({"items": {"type": "integer"}}); 1000];
    let schema = json!({"properties": {"a": {"anyOf": branches}}}).to_string();
    let validator = Validator::read(&schema).expect("is taken");
    let value = json!({"a": vec!["x"; 2000]});
    let used = measure(|| {
        assert_eq!(words(&validator, &value), TOO_LARGE);
    });
    assert!(used.bytes_max < MIB, "{used:?}");

    let value = json!({"a": ["x"]});
    let used = measure(|| assert!(validator.check(&value).is_err()));
    assert!(used.bytes_max < 16 * MIB, "{used:?}");
}

const TOO_LARGE: &str = "does not fit the schema; it is too large to say where";

fn words(validator: &Validator, value: &Value) -> String {
    let Err(Rejection::Invalid(violations)) = validator.check(value) else {
        panic!("is rejected");
    };
    violations.words(1000)
}

/// The library collects an error for each violation, with a copy of its path.
#[test]
fn many_violations_are_counted_in_bounded_memory() {
    let _turn = one_at_a_time();
    let refused = json!({"type": "string", "maximum": 0, "exclusiveMaximum": 0, "multipleOf": 2,
        "enum": [], "const": 0, "not": {}, "exclusiveMinimum": 9, "minimum": 9});
    let check = |schema: &Value, value: &Value, expected: &str| {
        let validator = Validator::read(&schema.to_string()).expect("is taken");
        let used = measure(|| assert_eq!(words(&validator, value), expected));
        assert!(used.bytes_max < 48 * MIB, "{used:?}");
    };
    let items = json!({"properties": {"a": {"items": refused}}});
    let text = "`a[0]`: 0 was expected; `a[0]`: value is not one of ; `a[0]`: value is greater than or \
                equal to the maximum of 0; `a[0]`: value is less than or equal to the minimum of 9; \
                `a[0]`: value is greater than the maximum of 0; and 17995 more";
    check(&items, &json!({"a": vec![1; 2000]}), text);
    let names: Vec<String> = (0..6000).map(|at| format!("n{at}")).collect();
    check(
        &json!({"required": names}),
        &json!({}),
        "\"n0\" is a required property; \"n1\" is a required property; \"n2\" is a required property; \
         \"n3\" is a required property; \"n4\" is a required property; and 5995 more",
    );
    // Each error would have a copy of the long name.
    let name = "x".repeat(50_000);
    let below = json!({"additionalProperties": {"anyOf": [{"items": {"type": "integer"}}]}});
    check(&below, &json!({name.as_str(): vec!["x"; 5000]}), TOO_LARGE);
}

/// Allocations of a match are part of a validator's weight, since the engines keep them.
#[test]
fn engines_stay_within_the_weight_after_matching() {
    let _turn = one_at_a_time();
    let text = "éabbabaabbaabababbbaab ".repeat(20);
    for pattern in [
        r"\b(?:a|b|é|ab|ba|éa)*[abé]{200}[xy]\b",
        "[ab]*a[ab]{100}[xz]",
        "^.{1,1400}$",
        r"\p{L}{5}x",
    ] {
        let schema = patterns(1, |_| pattern.to_owned()).to_string();
        let mut validator = None;
        let used = measure(|| {
            let built = Validator::read(&schema).expect("is taken");
            let matches = built.check(&json!({"p0": text})).is_ok();
            assert_eq!(matches, pattern.starts_with('^'), "{pattern}");
            validator = Some(built);
        });
        let weight = validator.map(|built| built.weight()).unwrap_or_default() as i64;
        assert!(
            used.bytes_current < weight,
            "{pattern}: {used:?}, weighs {weight}"
        );
    }
}
