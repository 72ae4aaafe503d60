//! Words for the conditions of rules: one line for status, plans and tables.
//!
//! People compare the words; the digest of a rule shows whether two rules are equal. Values of pins
//! and expressions are left out, since more users may read a status than a grant.

use serde_json::{Map, Value};
use toolcrib_bounds::cut;
use toolcrib_manifest::{Rate, Rule, Tool};

/// Limits the bytes of the words, and so the characters of the status field.
pub const MAX_LIMITS: usize = 256;
/// Limits the bytes of one value in the words.
const MAX_VALUE: usize = 60;

/// Words for the limits within which a tool may be called: `account fixed; amount at most 100`. The
/// limits of several rules are joined by "or". `None`: one rule has no conditions.
pub fn limits(tool: &Tool) -> Option<String> {
    let rules = &tool.extension.rules;
    if rules.is_empty() || rules.iter().any(Rule::is_unconditional) {
        return None;
    }
    let rules: Vec<String> = rules.iter().map(words).collect();
    Some(cut(&rules.join(", or "), MAX_LIMITS).into_owned())
}

/// Words for the limits of one rule, at most [`MAX_LIMITS`] bytes; "any call" if it has none.
pub fn limits_of(rule: &Rule) -> String {
    cut(&words(rule), MAX_LIMITS).into_owned()
}

fn words(rule: &Rule) -> String {
    let Rule {
        approval,
        arguments,
        audit,
        digest: _,
        grant: _,
        not_after,
        not_before,
        pin,
        rate,
        when,
    } = rule;
    let mut parts: Vec<String> = Vec::new();
    if *audit {
        parts.push("tried out".to_owned());
    }
    parts.extend(pin.keys().map(|name| format!("{name} fixed")));
    let schema = arguments.as_ref().map(|text| text.get());
    if let Some(Ok(Value::Object(schema))) = schema.map(serde_json::from_str) {
        parts.extend(of_schema(&schema));
    }
    parts.extend(rate.iter().map(frequency));
    parts.extend(when.iter().map(|it| format!("when \"{}\"", it.message)));
    parts.extend(not_before.as_ref().map(|time| format!("from {time}")));
    parts.extend(not_after.as_ref().map(|time| format!("until {time}")));
    if *approval {
        parts.push("with an approval".to_owned());
    }
    if parts.is_empty() {
        return "any call".to_owned();
    }
    parts.join("; ")
}

fn frequency(rate: &Rate) -> String {
    let Rate { calls, per_ms } = *rate;
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let unit = units.into_iter().find(|(_, ms)| per_ms.is_multiple_of(*ms));
    let (unit, ms) = unit.unwrap_or(("ms", 1));
    let noun = if calls == 1 { "call" } else { "calls" };
    format!("at most {calls} {noun} in {}{unit}", per_ms / ms)
}

fn of_schema(schema: &Map<String, Value>) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let narrowed = properties.filter_map(|(name, narrow)| {
        let words = match narrow {
            Value::Bool(false) => "forbidden".to_owned(),
            Value::Object(members) if !members.is_empty() => {
                let words: Vec<String> = members.iter().map(keyword).collect();
                words.join(" and ")
            }
            Value::Null
            | Value::Bool(true)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => return None,
        };
        Some(format!("{name} {words}"))
    });
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<&str> = required.collect();
    let required = (!required.is_empty()).then(|| format!("{} required", required.join(", ")));
    narrowed.chain(required).collect()
}

fn keyword((keyword, value): (&String, &Value)) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => cut(text, MAX_VALUE).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            cut(&value.to_string(), MAX_VALUE).into_owned()
        }
    };
    let listed = |value: &Value| match value.as_array() {
        Some(values) => values.iter().map(shown).collect::<Vec<_>>().join(" or "),
        None => shown(value),
    };
    let it = shown(value);
    match keyword.as_str() {
        "const" | "enum" => listed(value),
        "maximum" => format!("at most {it}"),
        "minimum" => format!("at least {it}"),
        "exclusiveMaximum" => format!("below {it}"),
        "exclusiveMinimum" => format!("above {it}"),
        "maxLength" => format!("at most {it} characters"),
        "minLength" => format!("at least {it} characters"),
        "maxItems" => format!("at most {it} items"),
        "minItems" => format!("at least {it} items"),
        "pattern" => format!("like {it}"),
        other => format!("with {other} {it}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(conditions: Value) -> Rule {
        let mut rule = json!({"digest": "r1:a", "grant": {"namespace": "pond", "name": "a"}});
        let members = conditions.as_object().cloned().expect("an object");
        rule.as_object_mut().expect("an object").extend(members);
        serde_json::from_str(&rule.to_string()).expect("a rule")
    }

    #[test]
    fn conditions_are_worded() {
        let check = |conditions: Value, expected: &str| {
            assert_eq!(limits_of(&rule(conditions)), expected);
        };
        check(json!({}), "any call");
        check(
            json!({"pin": {"account": "A-17"}, "not_after": "2026-12-31T00:00:00Z",
                "arguments": {"properties": {"amount": {"maximum": 100}}}}),
            "account fixed; amount at most 100; until 2026-12-31T00:00:00Z",
        );
        check(
            json!({"when": [{"expression": "args.a > 1", "message": "more than one"}]}),
            "when \"more than one\"",
        );
        check(
            json!({"rate": [{"calls": 1, "per_ms": 1500}, {"calls": 20, "per_ms": 5_400_000}, {"calls": 100, "per_ms": 86_400_000}]}),
            "at most 1 call in 1500ms; at most 20 calls in 90m; at most 100 calls in 24h",
        );
        check(
            json!({"arguments": {"required": ["side", "note"], "properties": {
                "amount": {"minimum": 1, "maximum": 100, "multipleOf": 5},
                "note": false, "side": {"enum": ["buy", "sell"]}, "symbol": {"pattern": "^[A-Z]+$"}, "other": {}}}}),
            "amount at most 100 and at least 1 and with multipleOf 5; note forbidden; side buy or sell; symbol like ^[A-Z]+$; side, note required",
        );
    }

    #[test]
    fn words_are_cut() {
        let names: Map<String, Value> = (0..64)
            .map(|at| (format!("name-{at}-{}", "x".repeat(80)), json!(1)))
            .collect();
        let words = limits_of(&rule(json!({"pin": names})));
        assert!(words.len() <= MAX_LIMITS, "{words}");
    }
}
