//! Arguments of calls: what is read, checked, filled in and sent.

use super::*;

#[test]
fn arguments_are_read_strictly_and_checked_against_the_whole_schema() {
    check(&[&[("pond__feed", "")]], &["ok"]);
    check(&[&[("pond__feed", "null")]], &["invalid_arguments"]);
    check(&[&[("pond__feed", "[1]")]], &["invalid_arguments"]);
    check(
        &[&[("pond__feed", r#"{"at":1,"at":2}"#)]],
        &["invalid_arguments"],
    );
    check(
        &[&[("pond__feed", r#"{"at":1e999}"#)]],
        &["invalid_arguments"],
    );
    check(&[&[("pond__feed", r#"{"at":10}"#)]], &["schema_validation"]);
    check(
        &[&[("pond__feed", r#"{"other":1}"#)]],
        &["schema_validation"],
    );
    let deep = format!(r#"{{"at":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    check(&[&[("pond__feed", &deep)]], &["invalid_arguments"]);
    let long = format!(r#"{{"at":"{}"}}"#, "x".repeat(70_000));
    check(&[&[("pond__feed", &long)]], &["invalid_arguments"]);
}

#[test]
fn the_third_failure_comes_without_the_schema() {
    let bad: &[(&str, &str)] = &[("pond__feed", r#"{"at":10}"#)];
    let run = check(
        &[bad, bad, bad, bad, &[FEED]],
        &[
            "schema_validation",
            "schema_validation",
            "retries_exhausted",
            "retries_exhausted",
            "ok",
        ],
    );
    let result = |at: usize| {
        run.bodies[at]["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    let first: Value = serde_json::from_str(result(1)["content"].as_str().unwrap()).unwrap();
    let details = &first["error"]["details"];
    assert_eq!(details["path"], "/at");
    assert_eq!(details["rule"], "/properties/at/maximum");
    assert_eq!(details["schema"]["properties"]["at"]["maximum"], 9);
    assert!(!result(3)["content"].as_str().unwrap().contains("schema\":"));
}

#[test]
fn claw_id_is_authenticated_whatever_the_model_writes() {
    for said in [
        "{}",
        r#"{"claw_id":"heron"}"#,
        r#"{"claw\u005fid":"heron"}"#,
        r#"{"claw_id":null}"#,
    ] {
        let run = check(&[&[("pond__whose", said)]], &["ok"]);
        let got: Value = serde_json::from_str(&run.groups[0][0].1).unwrap();
        assert_eq!(got, json!({"claw_id": "otter"}), "{said}");
        let traced = &run.answer.record.tool_trace[0].tool_calls[0].arguments;
        assert_eq!(traced.get(), run.groups[0][0].1);
    }
    // Absent if neither schema nor path names it.
    let run = check(
        &[&[("pond__feed", r#"{"claw_id":"heron","at":1}"#)]],
        &["ok"],
    );
    assert_eq!(run.groups[0][0].1, r#"{"at":1}"#);
    // The model does not see the argument.
    let shown = run.bodies[0]["tools"].as_array().unwrap().last().unwrap();
    let schema = json!({"type": "object", "properties": {"at": {"type": "integer"}},
        "additionalProperties": false});
    assert_eq!(shown["function"]["parameters"], schema);
}

/// The path needs the identity, and a closed schema does not declare it.
#[test]
fn claw_id_fills_the_path_even_if_the_schema_omits_it() {
    let at = |additional: bool| {
        json!({"type": "object", "properties": {"at": {"type": "integer"}},
            "additionalProperties": additional})
    };
    for schema in [at(false), at(true)] {
        for said in [r#"{"at":1}"#, r#"{"at":1,"claw_id":"heron"}"#] {
            let mut file = tools();
            file.tools.truncate(1);
            file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
            file.tools[0].execution.path = Some("/of/{claw_id}".into());
            let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
            let authority = Authority::new(std::sync::Arc::new(catalog), None);
            let mut config = config(request(json!({})), policy());
            config.presented = PresentedTools::new(&authority, &config.request, NOW);
            let replies = vec![reply(&[("pond__depth", said)], ""), reply(&[], "end")];
            let run = run(config, replies, |call| {
                let call = http_call(&file.tools[0], call.arguments(), call.claw_id(), None);
                assert_eq!(call.unwrap().path_and_query, "/of/otter?at=1");
                responded(200, "1")
            });
            assert_eq!(run.results(), ["ok"]);
            let traced = &run.answer.record.tool_trace[0].tool_calls[0].arguments;
            let traced: Value = serde_json::from_str(traced.get()).unwrap();
            assert_eq!(traced, json!({"at": 1, "claw_id": "otter"}));
        }
    }
}

#[test]
fn numbers_keep_their_digits_to_the_service_and_back() {
    let raw = r#"{"at": 900719925474099312}"#;
    let run = run(
        config(request(json!({})), policy()),
        vec![reply(&[("pond__whose", raw)], ""), reply(&[], "end")],
        |call| {
            responded(
                200,
                &format!(r#"{{"echo":{},"n":1.10}}"#, call.arguments().get()),
            )
        },
    );
    let content = run.bodies[1]["messages"][2]["content"].as_str().unwrap();
    assert!(
        content.contains("900719925474099312") && content.contains("1.10"),
        "{content}"
    );
}

/// Arguments that are refused for their depth, and a result that has it.
#[test]
fn json_that_collectors_reject_is_recorded_as_a_string() {
    let deep = |levels: usize| format!("{}\"]\"{}", "[".repeat(levels), "]".repeat(levels));
    for (value, is_text) in [
        (deep(50), false),
        (deep(100), true),
        (deep(7000), true),
        (
            r#"["\"[[[\\",1.5e300,-12,123456789012345678901234567890]"#.to_string(),
            false,
        ),
        ("[1e999]".to_string(), true),
        ("9".repeat(400), true),
    ] {
        let arguments = format!(r#"{{"at":{value}}}"#);
        let run = run(
            config(request(json!({})), policy()),
            vec![
                reply(&[("pond__feed", &arguments), ("pond__look", "{}")], ""),
                reply(&[], "end"),
            ],
            |_| responded(200, &value),
        );
        let record = serde_json::to_string(&run.answer.record).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        let calls = &record["tool_trace"][0]["tool_calls"];
        assert_eq!(calls[0]["arguments"].is_string(), is_text, "{value}");
        assert_eq!(calls[1]["result"].is_string(), is_text, "{value}");
    }
}

/// The service would get 100.00000000000000001 although the schema's check saw 100.
#[test]
fn a_bound_on_numbers_is_not_evaded_by_digits_that_a_float_drops() {
    let result = |schema: Value, arguments: &str| {
        let mut file = tools();
        file.tools.truncate(1);
        file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
        let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
        let authority = Authority::new(std::sync::Arc::new(catalog), None);
        let mut config = config(request(json!({})), policy());
        config.presented = PresentedTools::new(&authority, &config.request, NOW);
        let replies = vec![reply(&[("pond__depth", arguments)], ""), reply(&[], "end")];
        run(config, replies, |_| responded(200, "1"))
            .results()
            .remove(0)
    };
    let most = || json!({"properties": {"n": {"type": "number", "maximum": 100}}});
    assert_eq!(result(most(), r#"{"n":100}"#), "ok");
    assert_eq!(result(most(), r#"{"n":99.999999999999}"#), "ok");
    assert_eq!(result(most(), r#"{"n":1e2}"#), "ok");
    for number in [
        "100.00000000000000001",
        "100.0000000000000000000000001e0",
        "10000000000000000000001e-20",
    ] {
        let arguments = format!(r#"{{"n":{number}}}"#);
        assert_eq!(result(most(), &arguments), "invalid_arguments", "{number}");
    }
    let integer = json!({"properties": {"n": {"type": "integer"}}});
    assert_eq!(
        result(integer, r#"{"n":1.00000000000000000001}"#),
        "invalid_arguments"
    );
    // Without a bound there is nothing to evade, and the service gets all digits.
    let any = json!({"properties": {"n": {"type": "number"}}});
    assert_eq!(result(any, r#"{"n":100.00000000000000001}"#), "ok");
}

#[test]
fn schemas_that_explode_are_not_evaluated() {
    let result = |schema: Value, arguments: &str| {
        let mut file = tools();
        file.tools.truncate(1);
        file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
        let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
        let authority = Authority::new(std::sync::Arc::new(catalog), None);
        let mut config = config(request(json!({})), policy());
        config.presented = PresentedTools::new(&authority, &config.request, NOW);
        let replies = vec![reply(&[("pond__depth", arguments)], ""), reply(&[], "end")];
        run(config, replies, |_| responded(200, "1"))
            .results()
            .remove(0)
    };
    let mut doubling = json!({"d0": {"type": "object"}});
    for level in 1..=40 {
        let below = format!("#/$defs/d{}", level - 1);
        doubling[format!("d{level}")] = json!({"allOf": [{"$ref": below}, {"$ref": below}]});
    }
    let schema = |more: Value| {
        let mut schema = json!({"type": "object", "$defs": doubling});
        for (key, value) in more.as_object().unwrap() {
            schema[key] = value.clone();
        }
        schema
    };
    assert_eq!(
        result(schema(json!({"$ref": "#/$defs/d40"})), "{}"),
        "unsupported_tool"
    );
    assert_eq!(result(schema(json!({"$ref": "#/$defs/d4"})), "{}"), "ok");
    assert_eq!(
        result(json!({"allOf": [{"$ref": "#"}]}), "{}"),
        "unsupported_tool"
    );
    // Below an `$id`, "#" is that subschema and not the whole.
    let itself = json!({"$id": "urn:at", "$defs": {"b": {"allOf": [{"$ref": "#/$defs/b"}]}}});
    let hidden = json!({"$ref": "#/$defs/a/$defs/b", "$defs": {"a": itself}});
    assert_eq!(result(hidden, "{}"), "unsupported_tool");
    assert_eq!(
        result(json!({"$ref": "file:///etc/passwd"}), "{}"),
        "unsupported_tool"
    );
    assert_eq!(
        result(json!({"$ref": "http://pond.test/s"}), "{}"),
        "unsupported_tool"
    );
    // A listed value costs every evaluation in proportion to its length.
    let list = |length: usize| (0..length).map(|at| json!({"n": at})).collect::<Vec<_>>();
    let listing = |length: usize| json!({"properties": {"at": {"enum": list(length)}}});
    assert_eq!(result(listing(1_000), r#"{"at":{"n":7}}"#), "ok");
    assert_eq!(result(listing(20_000), "{}"), "unsupported_tool");
    let many = format!(r#"{{"at":[{}]}}"#, vec!["1"; 2_000].join(","));
    let each = json!({"properties": {"at": {"items": {"not": {"enum": list(3_000)}}}}});
    assert_eq!(result(each.clone(), r#"{"at":[1,2]}"#), "ok");
    assert_eq!(result(each, &many), "invalid_arguments");
    let names: Vec<_> = (0..20_000).map(|at| format!("n{at}")).collect();
    assert_eq!(result(json!({"required": names}), "{}"), "unsupported_tool");
    let nodes = vec![json!({"type": "object"}); 20_000];
    assert_eq!(result(json!({"allOf": nodes}), "{}"), "unsupported_tool");
    // Compilers of earlier releases accepted patterns that need backtracking.
    let pattern = |pattern: &str| json!({"properties": {"at": {"pattern": pattern}}});
    assert_eq!(result(pattern("^((?=b)b+)+$"), "{}"), "unsupported_tool");
    assert_eq!(result(pattern(r"^\p{L}{1,60}$"), "{}"), "unsupported_tool");
    assert_eq!(result(pattern("^b+$"), r#"{"at":"bbb"}"#), "ok");
    // A recursion that descends with the value is accepted.
    let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    assert_eq!(result(tree, r#"{"next":{"next":{}}}"#), "ok");
}
