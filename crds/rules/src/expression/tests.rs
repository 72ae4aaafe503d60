//! Expressions that hold, that do not, and that are refused.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcrib_bounds::schema::Validator;

use super::{Expression, ExpressionFaultKind, Facts, MAX_BYTES};

const NOW: &str = "2026-11-24T15:30:00Z";

fn holds(text: &str, arguments: &Value) -> Result<bool, String> {
    let expression = Expression::read(text).map_err(|fault| fault.to_string())?;
    let facts = Facts {
        agent_name: "otter",
        agent_namespace: "pond",
        tool_name: "take",
        tool_surface: "fish",
        tool_tier: "System",
        now: NOW.parse().expect("a time"),
    };
    let patterns = expression.patterns().to_vec();
    Ok(expression.holds(&facts, arguments, |number, text| {
        let schema = json!({ "pattern": patterns[number] }).to_string();
        let validator = Validator::read(&schema).expect("a pattern that was counted");
        Some(validator.accepts(&Value::from(text)))
    }))
}

fn arguments() -> Value {
    json!({
        "amount": 100, "price": 1.5, "whole": 2.0, "large": 18_446_744_073_709_551_615_u64,
        "note": "Ship To Dock 7", "empty": "", "nothing": null, "urgent": true, "at": "2026-11-24T12:00:00Z",
        "tags": ["red", "blue"], "counts": [1, 2, 3], "mixed": [1, "a"],
        "to": {"city": "Kiel", "lines": [{"sku": "A-1", "count": 2}, {"sku": "B-2", "count": 5}]},
    })
}

#[test]
fn expressions_that_hold() {
    for text in [
        "args.amount <= 100",
        "args.amount == 100.0 && args.whole == 2",
        "args.amount < 100.5 && 99.5 < args.amount",
        "args.large > 9223372036854775807",
        "args.amount * args.price == 150",
        "args.amount % 7 == 2 && args.amount / 3 == 33 && -args.amount == -100",
        "-9223372036854775808 < 0 && - 1 - -1 == 0",
        "args['amount'] == 100 && args.to[\"city\"] == 'Kiel'",
        "args.to.lines[1].count == 5",
        "has(args.note) && !has(args.other) && has(args.to.city)",
        "\"note\" in args && !('other' in args)",
        "args.tags == ['red', 'blue'] && 'red' in args.tags && args.amount in [1, 100.0]",
        "args.to.lines.all(line, line.count > 1 && line.sku.matches('^[AB]-[0-9]$'))",
        "args.counts.exists(n, n == 3) && args.counts.exists_one(n, n > 2)",
        "args.counts.filter(n, n > 1).size() == 2 && size(args.tags) == 2",
        "args.to.all(name, name in ['city', 'lines'])",
        "args.counts.all(n, args.counts.exists(m, m == n))",
        "args.note.lowerAscii().startsWith('ship') && args.note.endsWith('7') && args.note.contains('Dock')",
        "args.note.matches(r'\\d$') && size('héllo') == 5",
        "args.nothing == null && args.urgent && !args.empty.contains('x')",
        "args.urgent ? args.amount == 100 : args.other == 1",
        "agent.name == 'otter' && agent.namespace == 'pond'",
        "tool.name == 'take' && tool.surface == 'fish' && tool.tier == 'System'",
        "now > timestamp('2026-11-24T15:29:59Z') && now - timestamp(args.at) < duration('4h')",
        "now.getHours() == 15 && now.getHours('+01:00') == 16 && now.getMinutes('-00:30') == 0",
        "now.getDayOfWeek() == 2 && now.getDate() == 24 && now.getMonth() == 10 && now.getFullYear() == 2026",
        "timestamp(args.at) + duration('1.5h') == timestamp('2026-11-24T13:30:00Z')",
        "double(args.amount) == 100.0 && int(args.price) == 1 && int('7') == 7",
        // An error on the other side does not count where one side decides.
        "args.other == 1 || args.urgent",
        "!(args.other == 1 && args.amount == 1)",
        "args.mixed.exists(it, it.size() == 1)",
        "args.amount == 100 // the rest is a comment",
        "'\\u0041\\'' == \"A'\"",
    ] {
        assert_eq!(holds(text, &arguments()), Ok(true), "{text}");
    }
}

#[test]
fn negating_an_error_does_not_make_it_true() {
    for part in [
        "args.other == 1",
        "args.amount.field",
        "has(args.amount.field)",
        "args.note.field.contains('a')",
        "args.amount.contains('a')",
        "args.amount.matches('a')",
        "args.tags.contains('red')",
        "args.tags[7] == 'red'",
        "args.tags[-1] == 'red'",
        "args.note < 7",
        "args.amount + args.note == 'a'",
        "args.tags + args.tags == args.tags",
        "args.amount / 0 == 0",
        "args.price / 0 == 0.0",
        "9223372036854775807 + args.amount > 0",
        "-args.large < 0",
        "args.note && true",
        "args.amount ? true : true",
        "args.amount.all(x, true)",
        "args.mixed.all(it, it > 0)",
        "args.mixed.exists_one(it, it > 0)",
        "args.mixed.filter(it, it > 0).size() == 1",
        "timestamp(args.note) < now",
        "args.amount.getHours() == 1",
        "int(args.note) == 1",
        "int(args.large) == 1",
        "double('nan') == 1.0",
        "size(args.amount) == 1",
        "1 in args.note",
    ] {
        for text in [
            part.to_owned(),
            format!("!({part})"),
            format!("({part}) || false"),
        ] {
            assert_eq!(holds(&text, &arguments()), Ok(false), "{text}");
        }
    }
    // No value but true holds.
    assert_eq!(
        holds("args.amount == 1 || args.note", &arguments()),
        Ok(false)
    );
    assert_eq!(holds("args.note", &arguments()), Ok(false));
}

#[test]
fn faults_are_refused_with_their_place() {
    let long = "a".repeat(MAX_BYTES + 1);
    let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    let nots = format!("{}true", "!".repeat(40));
    let chain = format!("args{} == 1", ".a".repeat(300));
    let sum = format!("1{} == 1", "+1".repeat(300));
    for (text, expected) in [
        (long.as_str(), "has 4097 bytes"),
        (&deep, "stand in each other"),
        (&nots, "stand in each other"),
        (&chain, "more than 256 parts"),
        (&sum, "more than 256 parts"),
        ("", "ends where a value is missing"),
        ("args.amount <", "ends where a value is missing"),
        (
            "args.amount 1",
            "ends before this: remove the rest, or write an operator, at character 13",
        ),
        ("args.amount = 1", "has no meaning here"),
        ("amount == 1", "is not a variable"),
        ("agent == 1", "is not a variable"),
        ("agent.labels == 1", "is not a variable"),
        ("args == null", "reads args as a whole"),
        ("args[args.name] == 1", "reads args as a whole"),
        ("args.all(x, true)", "reads args as a whole"),
        ("args.claw_id == 'otter'", "compare agent.name"),
        ("args.claw_id.size() == 1", "compare agent.name"),
        ("{'a': 1}.a == 1", "maps cannot be written"),
        ("args.a.map() == 1", "is not a function"),
        ("args.a.split(',') == 1", "is not a function"),
        ("args.a.matches(args.b)", "write it in quotes"),
        ("args.a.matches('(?=a)')", "lookahead"),
        ("args.a.matches('(a{1000}){1000}')", "the pattern has"),
        ("args.a + 'x' == 'yx'", "cannot be joined"),
        ("[1] + args.a == [1]", "cannot be joined"),
        (
            "args.a.all(x, x.all(y, y.all(z, true)))",
            "more than 2 times",
        ),
        ("args.a.all(now, true)", "has a meaning already"),
        ("args.a.all(1, true)", "a name for the element is missing"),
        ("args.a", ""),
        ("1 + 1", "never true or false"),
        ("'text'", "never true or false"),
        ("0x10 == 16", "write it in decimal"),
        ("1u == 1", "without letters"),
        ("9223372036854775808 == 1", "64 bits"),
        ("1e999 > 1.0", "64 bits"),
        ("'open", "has no end"),
        ("'''a''' == 'a'", "triple quotes"),
        ("'\\x41' == 'A'", "escape is not known"),
        ("now.getHours('Europe/Berlin') > 8", "zone is not known"),
        ("now < timestamp('soon')", "is not a valid time"),
        ("now - now < duration('1 day')", "not a span of time"),
        ("has(args)", "has takes a field"),
        ("a?b:c", "is not a variable"),
    ] {
        let found = Expression::read(text)
            .map(drop)
            .map_err(|fault| fault.to_string());
        match expected {
            "" => assert_eq!(found, Ok(()), "{text}"),
            expected => {
                let found = found.expect_err(text);
                assert!(found.contains(expected), "{text}: {found}");
            }
        }
    }
}

#[test]
fn an_expression_that_could_take_too_many_steps_is_refused() {
    let body = ["x == y"; 12].join(" || ");
    let text = format!("args.a.all(x, args.b.exists(y, {body}))");
    let fault = Expression::read(&text).expect_err("too expensive");
    assert_eq!(fault.kind, ExpressionFaultKind::TooExpensive, "{fault}");
}

/// The last element decides, so every other one is walked.
#[test]
fn evaluation_ends_at_the_bound_on_steps() {
    let numbers: Vec<usize> = (0..400).collect();
    let pairs = "args.a.all(x, args.a.exists(y, x == y))";
    assert_eq!(holds(pairs, &json!({"a": numbers[..100]})), Ok(true));
    assert_eq!(holds(pairs, &json!({"a": numbers})), Ok(false));
    let text = "a".repeat(100_000);
    assert_eq!(
        holds("args.a.matches('^a*$')", &json!({"a": text})),
        Ok(false)
    );
    assert_eq!(
        holds("args.a.size() == 100000", &json!({"a": text})),
        Ok(true)
    );
    let nested = (0..100_000).map(|_| json!("a")).collect::<Vec<_>>();
    assert_eq!(
        holds("args.a == args.b", &json!({"a": nested, "b": nested})),
        Ok(false)
    );
}

#[test]
fn the_arguments_of_an_expression_are_listed() {
    let text = "args.a.all(x, x.b in args['c']) && has(args.d) && 'e' in args && args.f.g.h == 1";
    let expression = Expression::read(text).expect("an expression");
    assert_eq!(expression.arguments(), ["a", "c", "d", "e", "f"]);
}

#[test]
fn an_expression_reads_the_time_wherever_it_stands_in_it() {
    for (text, reads_now) in [
        ("args.a == 'now'", false),
        ("args.now < 3 && agent.name == 'otter'", false),
        ("now < timestamp('2027-01-01T00:00:00Z')", true),
        ("args.a == 1 || now.getHours('+01:00') < 17", true),
        (
            "args.a.all(x, x != 1 && timestamp(x) > now - duration('1h'))",
            true,
        ),
    ] {
        let expression = Expression::read(text).expect("an expression");
        assert_eq!(expression.reads_now(), reads_now, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z().\\[\\]!?:&|<>=+*/%'\"\\\\ ,0-9-]{0,80}") {
        if let Ok(expression) = Expression::read(&text) {
            let _ = expression.arguments();
            prop_assert!(holds(&text, &arguments()).is_ok());
        }
    }

    /// Comparisons of numbers agree with exact ones.
    #[test]
    fn numbers_are_compared_by_value(one in any::<i32>(), other in any::<i32>(), half in any::<bool>()) {
        let other = f64::from(other) + if half { 0.5 } else { 0.0 };
        let arguments = json!({"a": one, "b": other});
        prop_assert_eq!(holds("args.a < args.b", &arguments), Ok(f64::from(one) < other));
        prop_assert_eq!(holds("args.a == args.b", &arguments), Ok(f64::from(one) == other));
        prop_assert_eq!(holds("args.b <= args.a", &arguments), Ok(other <= f64::from(one)));
    }
}
