//! Decisions over few and over random rules, with the validators that mediator and command line use.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcrib_bounds::schema::Validator;
use toolcrib_manifest as manifest;

use super::{Coverage, Decision, Mismatch, Refusal, decide};
use crate::Rule;

/// A rule with these conditions; its grant is named like its digest.
fn rule(name: &str, pin: &Value, arguments: Option<&Value>) -> Rule {
    read(name, pin, arguments, false)
}

/// The same, tried out.
fn audit(name: &str, pin: &Value, arguments: Option<&Value>) -> Rule {
    read(name, pin, arguments, true)
}

fn read(name: &str, pin: &Value, arguments: Option<&Value>, is_audit: bool) -> Rule {
    let mut text = json!({
        "digest": name, "grant": {"namespace": "pond", "name": name}, "pin": pin,
        "audit": is_audit,
    });
    if let Some(arguments) = arguments {
        text["arguments"] = arguments.clone();
    }
    // By text, since a raw value cannot be read from a value.
    let read: manifest::Rule = serde_json::from_str(&text.to_string()).expect("a rule");
    Rule::read(&read).expect("a readable rule")
}

fn meets(rule: &Rule, coverage: Coverage, arguments: &Value) -> Result<(), Mismatch> {
    let schema = match coverage {
        Coverage::All => rule.schema(),
        Coverage::Pins => rule.pins_schema(),
    };
    let Some(schema) = schema else {
        return Ok(());
    };
    let validator = Validator::read(schema).map_err(|_| Mismatch::Unchecked)?;
    Ok(validator.check(arguments)?)
}

fn decided<'r>(
    rules: &[&'r Rule],
    arguments: &Value,
    required: &[&str],
) -> Result<Decision<'r, String>, Refusal<String>> {
    decide(rules, arguments, meets, |arguments| {
        let missing = required.iter().find(|name| arguments.get(name).is_none());
        missing.map_or(Ok(()), |name| Err(format!("{name} is missing")))
    })
}

#[track_caller]
fn check(rules: &[Rule], arguments: Value, required: &[&str], expected: &str) {
    let rules: Vec<&Rule> = rules.iter().collect();
    let found = match decided(&rules, &arguments, required) {
        Ok(Decision {
            met,
            filled,
            would_deny,
        }) => {
            let met: Vec<&str> = met.iter().map(|rule| rule.digest()).collect();
            let filled: Vec<String> = filled
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let denied = would_deny.map(|refusal| format!(", would be {}", words(&refusal)));
            let (met, filled) = (met.join(" "), filled.join(" "));
            format!("{met} filled [{filled}]{}", denied.unwrap_or_default())
        }
        Err(refusal) => words(&refusal),
    };
    assert_eq!(found, expected, "{arguments}");
}

/// The refusal in short: of rules, what each refuses.
fn words(refusal: &Refusal<String>) -> String {
    let Refusal::Unmet(mismatches) = refusal else {
        return format!("{refusal:?}");
    };
    let words = mismatches.iter().map(|mismatch| match mismatch {
        Mismatch::Arguments { violations, .. } => violations.words(1000),
        Mismatch::Condition { .. } | Mismatch::Rounded { .. } | Mismatch::Unchecked => {
            format!("{mismatch:?}")
        }
    });
    format!("Unmet: {}", words.collect::<Vec<_>>().join(" or "))
}

#[test]
fn a_rule_without_conditions_is_met_by_every_call() {
    let rules = [rule("any", &json!({}), None)];
    check(&rules, json!({"a": 1}), &[], "any filled []");
    check(&[], json!({}), &[], "NoRule");
    check(&rules, json!({}), &["a"], r#"Arguments("a is missing")"#);
}

#[test]
fn a_pinned_argument_is_filled_in_or_compared() {
    let rules = [rule("a", &json!({"account": "A1"}), None)];
    check(
        &rules,
        json!({"amount": 1}),
        &["account"],
        "a filled [account=\"A1\"]",
    );
    check(&rules, json!({"account": "A1"}), &[], "a filled []");
    check(
        &rules,
        json!({"account": "B"}),
        &[],
        "Unmet: `account` is fixed: leave it out",
    );
    check(
        &rules,
        json!({}),
        &["amount"],
        r#"Arguments("amount is missing")"#,
    );
}

#[test]
fn two_values_of_a_pinned_argument_are_ambiguous() {
    let rules = [
        rule("a", &json!({"account": "A1"}), None),
        rule("b", &json!({"account": "B1"}), None),
    ];
    check(
        &rules,
        json!({}),
        &[],
        r#"Ambiguous { names: ["account"] }"#,
    );
    check(&rules, json!({"account": "B1"}), &[], "b filled []");
    // Only one of the two is met by the other arguments.
    let rules = [
        rule("a", &json!({"account": "A1"}), None),
        rule(
            "b",
            &json!({"account": "B1"}),
            Some(&json!({"properties": {"amount": {"maximum": 10}}})),
        ),
    ];
    check(
        &rules,
        json!({"amount": 100}),
        &[],
        "a filled [account=\"A1\"]",
    );
}

#[test]
fn the_fewest_arguments_are_filled_in() {
    let rules = [
        rule("both", &json!({"account": "A1", "desk": 7}), None),
        rule("one", &json!({"account": "A1"}), None),
    ];
    check(&rules, json!({}), &[], "one filled [account=\"A1\"]");
    check(
        &rules,
        json!({"desk": 7}),
        &[],
        "both one filled [account=\"A1\"]",
    );
    let rules = [
        rule("pinned", &json!({"account": "A1"}), None),
        rule("any", &json!({}), None),
    ];
    check(&rules, json!({}), &[], "any filled []");
    check(
        &rules,
        json!({}),
        &["account"],
        "pinned any filled [account=\"A1\"]",
    );
}

#[test]
fn a_rule_that_is_tried_out_allows_what_the_others_refuse() {
    let small = json!({"properties": {"amount": {"maximum": 10}}});
    let rules = [
        rule("small", &json!({}), Some(&small)),
        audit("trial", &json!({"account": "A1"}), Some(&small)),
    ];
    // A call that is within the limits is decided as if nothing were tried out.
    check(&rules, json!({"amount": 1}), &[], "small filled []");
    check(
        &rules,
        json!({"amount": 11}),
        &[],
        "trial filled [account=\"A1\"], would be Unmet: `amount`: value is greater than the maximum of 10",
    );
    // Its pinned argument and the tool's own schema hold.
    check(
        &rules[1..],
        json!({"amount": 11, "account": "B1"}),
        &[],
        "Unmet: `account` is fixed: leave it out",
    );
    let refused = decided(
        &[&rules[1]],
        &json!({"amount": 11, "account": "A1"}),
        &["note"],
    );
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn an_unmet_schema_is_nearer_than_a_foreign_pin() {
    let rules = [
        rule("pin", &json!({"account": "A1"}), None),
        rule(
            "schema",
            &json!({}),
            Some(&json!({"properties": {"amount": {"maximum": 10}}})),
        ),
    ];
    check(
        &rules,
        json!({"account": "B", "amount": 11}),
        &[],
        "Unmet: `amount`: value is greater than the maximum of 10 or `account` is fixed: leave it out",
    );
}

#[test]
fn a_refusal_names_every_mismatch_and_no_pinned_value() {
    let schema = json!({"properties": {"amount": {"maximum": 10}, "note": {"type": "string"}}});
    let both = rule("both", &json!({"account": "A1"}), Some(&schema));
    check(
        &[both],
        json!({"account": "B", "amount": 11, "note": 7}),
        &[],
        "Unmet: `account` is fixed: leave it out; `amount`: value is greater than the maximum of 10; \
         `note`: value is not of type \"string\"",
    );
}

/// Values of few arguments, so that random rules and calls meet often.
fn arguments() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[abc]", 0..4_i64, 0..3).prop_map(|members| json!(members))
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let bound = proptest::option::of(("[abc]", 0..4_i64));
    let one = (arguments(), bound, any::<bool>()).prop_map(|(pin, bound, is_audit)| {
        let schema =
            bound.map(|(name, maximum)| json!({"properties": {name: {"maximum": maximum}}}));
        (pin, schema, is_audit)
    });
    proptest::collection::vec(one, 0..5).prop_map(|rules| {
        let rules = rules.into_iter().enumerate();
        rules
            .map(|(at, (pin, schema, is_audit))| {
                read(&format!("r{at}"), &pin, schema.as_ref(), is_audit)
            })
            .collect()
    })
}

fn sent(arguments: &Value, decision: &Decision<'_, String>) -> Value {
    let mut sent = arguments.clone();
    for (name, text) in &decision.filled {
        sent[*name] = serde_json::from_str(text).expect("JSON");
    }
    sent
}

proptest! {
    /// A rule is met exactly if its pins and bounds hold of what is sent. Of a call that would be
    /// denied, the rules that are tried out are met if their pins hold.
    #[test]
    fn an_allowed_call_meets_the_rules_that_are_named(rules in rules(), arguments in arguments()) {
        let all: Vec<&Rule> = rules.iter().collect();
        if let Ok(decision) = decided(&all, &arguments, &[]) {
            let sent = sent(&arguments, &decision);
            prop_assert!(!decision.met.is_empty());
            let (candidates, coverage): (Vec<&Rule>, Coverage) = match decision.would_deny {
                Some(_) => (all.iter().copied().filter(|it| it.is_audit()).collect(), Coverage::Pins),
                None => (all.clone(), Coverage::All),
            };
            for rule in candidates {
                let named = decision.met.iter().any(|met| std::ptr::eq(*met, rule));
                prop_assert_eq!(named, meets(rule, coverage, &sent).is_ok());
            }
        }
    }

    /// For the arguments as they are sent, removing a rule never allows a call.
    #[test]
    fn removing_a_rule_never_allows_a_call(rules in rules(), arguments in arguments(), at in 0..5_usize) {
        let all: Vec<&Rule> = rules.iter().collect();
        let mut fewer = all.clone();
        if at < fewer.len() {
            fewer.remove(at);
        }
        if let Ok(decision) = decided(&fewer, &arguments, &[]) {
            let sent = sent(&arguments, &decision);
            prop_assert!(decided(&all, &sent, &[]).is_ok());
        }
    }

    /// A call that would be denied is the one that is denied if all rules are enforced.
    #[test]
    fn trying_out_changes_no_other_call(rules in rules(), arguments in arguments()) {
        let enforced: Vec<Rule> = rules
            .iter()
            .map(|rule| {
                let pins = rule.pins.iter().map(|pin| (pin.name.clone(), pin.value.clone()));
                read(rule.digest(), &Value::Object(pins.collect()), rule.arguments(), false)
            })
            .collect();
        let enforced: Vec<&Rule> = enforced.iter().collect();
        let all: Vec<&Rule> = rules.iter().collect();
        let digests = |decision: &Decision<'_, String>| -> Vec<String> {
            decision.met.iter().map(|rule| rule.digest().to_owned()).collect()
        };
        match (decided(&all, &arguments, &[]), decided(&enforced, &arguments, &[])) {
            (Ok(one), Ok(other)) => {
                prop_assert_eq!(one.would_deny.as_ref(), None);
                prop_assert_eq!(digests(&one), digests(&other));
            }
            (Ok(one), Err(refusal)) => prop_assert_eq!(one.would_deny, Some(refusal)),
            (Err(_), Err(_)) => {}
            (Err(one), Ok(_)) => prop_assert!(false, "{:?}", one),
        }
    }

    #[test]
    fn the_order_of_the_rules_changes_nothing(rules in rules(), arguments in arguments()) {
        let all: Vec<&Rule> = rules.iter().collect();
        let reversed: Vec<&Rule> = rules.iter().rev().collect();
        match (decided(&all, &arguments, &[]), decided(&reversed, &arguments, &[])) {
            (Ok(one), Ok(other)) => prop_assert_eq!(sent(&arguments, &one), sent(&arguments, &other)),
            (Err(one), Err(other)) => {
                prop_assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(&other));
            }
            (one, other) => prop_assert!(false, "{:?} {:?}", one, other),
        }
    }
}
