//! Names of tools, and the choice among them.

use super::*;

#[test]
fn undeclared_names_are_answered_not_executed() {
    check(
        &[&[("pond.dive", "{}"), ("dive", "{}")]],
        &["unsupported_tool", "unsupported_tool"],
    );
    check(
        &[&[("shell", "{}"), ("dive", "{}")]],
        &["mixed_tool_order"; 2],
    );
    check(&[&[("dive", "{}"), ("shell", "{}")]], &["unsupported_tool"]);
}

#[test]
fn tool_choice_is_kept_renamed_and_relaxed() {
    let choices = |choice: Value, first: (&str, &str)| {
        let run = run(
            config(request(json!({"tool_choice": choice})), policy()),
            vec![reply(&[first], ""), reply(&[], "end")],
            |_| responded(200, "1"),
        );
        run.bodies
            .iter()
            .map(|body| body["tool_choice"].clone())
            .collect::<Vec<_>>()
    };
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let feed = named("pond__feed");
    assert_eq!(
        choices(json!("required"), FEED),
        [json!("required"), json!("auto")]
    );
    assert_eq!(choices(json!("auto"), FEED), [json!("auto"), json!("auto")]);
    assert_eq!(
        choices(named("pond.feed"), FEED),
        [feed.clone(), json!("auto")]
    );
    let bad = ("pond__feed", r#"{"at":10}"#);
    assert_eq!(choices(named("pond.feed"), bad), [feed.clone(), feed]);
    assert_eq!(
        choices(named("shell"), FEED),
        [named("shell"), named("shell")]
    );
    let refused = |extra: Value| {
        Turn::start(config(request(extra), policy()))
            .unwrap_err()
            .code
    };
    assert_eq!(
        refused(json!({"tool_choice": named("nobodys")})),
        RunnerCode::UnknownToolChoice
    );
    assert_eq!(refused(json!({"n": 2})), RunnerCode::NNotSupported);
}

#[test]
fn legacy_functions_get_legacy_function_calls() {
    let legacy = || {
        Request::decode(
            Dialect::OpenaiChat,
            json!({"model": "m", "messages": [], "functions": [{"name": "shell"}]})
                .to_string()
                .into_bytes(),
        )
        .unwrap()
    };
    let one = run(
        config(legacy(), policy()),
        vec![reply(&[("shell", "{}")], "")],
        |_| unreachable!(),
    );
    let choice = &one.body()["choices"][0];
    assert_eq!(
        choice["message"]["function_call"],
        json!({"name": "shell", "arguments": "{}"})
    );
    assert_eq!(choice["finish_reason"], "function_call");
    // The legacy form has room for one call, so the model has to plan two again.
    let two = run(
        config(legacy(), policy()),
        vec![
            reply(&[("shell", "{}"), ("shell", "1")], ""),
            reply(&[], "end"),
        ],
        |_| unreachable!(),
    );
    assert_eq!(two.results(), ["mixed_tool_order"; 2]);
}

#[test]
fn aliases_are_short_distinct_and_yield_to_the_runners_tools() {
    assert_eq!(alias("pond.depth"), "pond__depth");
    let names = [
        "pond.depth",
        "pond._depth",
        "pond_.depth",
        "pond.de__pth",
        "pond__de.pth",
        "pond.dépth",
        "pond.de.pth",
        "pond.de_pth",
        "depth",
        "pond.",
        &format!("pond.{}", "x".repeat(60)),
        &format!("pond.{}y", "x".repeat(59)),
    ];
    let aliases: Vec<String> = names.iter().map(|name| alias(name)).collect();
    assert!(
        counts(&aliases).values().all(|count| *count == 1),
        "{aliases:?}"
    );
    assert!(aliases.iter().all(|a| {
        a.len() <= 64
            && a.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    }));

    let taken =
        request(json!({"tools": [{"type": "function", "function": {"name": "pond__depth"}}]}));
    let presented = PresentedTools::new(&authority(), &taken, NOW);
    assert!(matches!(
        presented.resolve("pond__depth"),
        NameOwner::Runner
    ));
    let renamed = presented.new_name("pond.depth").unwrap();
    assert_ne!(renamed, "pond__depth");
    assert!(
        matches!(presented.resolve(&renamed), NameOwner::Managed(tool) if tool.name() == "pond.depth")
    );
}
