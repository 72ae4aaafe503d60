//! Services with lax readers get the arguments that were checked.
//!
//! Two readers represent many: Go's `encoding/json` (names without case, the last one wins) and
//! PHP's query parser (separators become `_`, `[` begins an element, NUL ends a name).
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::{Tier, ToolsFile};
use toolcrib_mediation::{
    Authority, Catalog, ClawId, DirectCall, HttpCall, ManagedCall, PresentedTools, http_call,
};

const GO_FOLDS: &str = include_str!("../../../crds/bounds/tests/go-folds.txt");

fn tools(method: &str, transport: &str, schema: &Value) -> ToolsFile {
    serde_json::from_value(json!({"version": 1, "tools": [{
        "name": "pond.feed", "description": "", "inputSchema": schema,
        "execution": {"transport": transport, "service": "pond",
            "base_url": "http://pond.test:80", "method": method, "path": "/feed"},
        "x-toolcrib": {"tier": "System"}}]}))
    .unwrap()
}

/// The call as it is sent, or the error's code and message.
fn sent(tools: &ToolsFile, arguments: &str) -> Result<ManagedCall, (String, String)> {
    let catalog = Arc::new(Catalog::load(tools, Tier::Elevated));
    let body = json!({"model": "m", "messages": []}).to_string();
    let request = Request::decode(Dialect::OpenaiChat, body.into_bytes()).unwrap();
    let presented = PresentedTools::new(
        &Authority::new(catalog, None),
        &request,
        jiff::Timestamp::UNIX_EPOCH,
    );
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let mut call = DirectCall::new(&presented, &claw_id, "pond.feed", arguments);
    call.start(Duration::ZERO).ok_or_else(|| {
        let result: Value = serde_json::from_str(&call.end(None).result).unwrap();
        let text = |field: &str| result["error"][field].as_str().unwrap().to_string();
        (text("code"), text("message"))
    })
}

fn over_http(tools: &ToolsFile, arguments: &str) -> Result<HttpCall, (String, String)> {
    let call = sent(tools, arguments)?;
    Ok(http_call(&tools.tools[0], call.arguments(), call.claw_id(), None).unwrap())
}

/// Folds a name like Go's `foldName`.
fn go_folded(name: &str) -> String {
    let fold = |c: char| {
        let from = format!(" {:X}", u32::from(c));
        let line = GO_FOLDS.lines().find(|line| line.ends_with(&from));
        let to = line.and_then(|line| u32::from_str_radix(line.split(' ').next()?, 16).ok());
        to.and_then(char::from_u32).unwrap_or(c)
    };
    name.chars().map(fold).collect()
}

/// Reads a field as a Go service does; `body` is an object with its members in the order of
/// sending.
fn as_go_reads(body: &str, field: &str) -> Option<Value> {
    let members: Members = serde_json::from_str(body).unwrap();
    let same = |name: &String| go_folded(name) == go_folded(field);
    let found = members.0.into_iter().rev().find(|(name, _)| same(name));
    found.map(|(_, value)| value)
}

/// The members of an object in their order.
struct Members(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// Reads PHP's `$_GET[field]`: the last value of all names that PHP maps to it.
fn as_php_reads(query: &str, field: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let named = |name: &str| {
        let name = name.split('\0').next().unwrap_or_default();
        let name = name.trim_start_matches(' ');
        let (start, element) = match name.split_once('[') {
            Some((start, rest)) if rest.contains(']') => (start.to_string(), true),
            _ => (name.replace('[', "_"), false),
        };
        (start.replace([' ', '.'], "_"), element)
    };
    pairs
        .map(|(name, value)| (named(&name), value.into_owned()))
        .filter(|((name, _), _)| name == field)
        .last()
        .map(|((_, element), value)| if element { "an array".into() } else { value })
}

/// A name that some reader could take for `claw_id`, `stock` or `_method`.
fn lookalike() -> impl Strategy<Value = String> {
    let letter = |c: char| {
        let others = match c {
            's' => vec!["S", "ſ"],
            'k' => vec!["K", "\u{212a}"],
            '_' => vec!["-", ".", " ", "[", ""],
            _ => vec![],
        };
        let mut forms = vec![c.to_string(), c.to_string(), c.to_uppercase().to_string()];
        forms.extend(others.into_iter().map(String::from));
        proptest::sample::select(forms)
    };
    let name = proptest::sample::select(vec!["claw_id", "stock", "_method"]);
    let begins = proptest::sample::select(vec!["", "", "", " "]);
    let ends = proptest::sample::select(vec!["", "", "", "[]", "[0]", "\0", "\0x", "_"]);
    (name, begins, ends).prop_flat_map(move |(name, begins, ends)| {
        let letters: Vec<_> = name.chars().map(letter).collect();
        letters.prop_map(move |letters| format!("{begins}{}{ends}", letters.concat()))
    })
}

fn object(members: &[(String, u8)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}:\"v{value}\"", Value::from(name.as_str())))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn stock(additional: Value) -> Value {
    let mut schema = json!({"type": "object",
        "properties": {"claw_id": {"type": "string"}, "stock": {"enum": ["v0", "v1"]}}});
    if !additional.is_null() {
        schema["additionalProperties"] = additional;
    }
    schema
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any arguments, a Go service reads the authenticated identity and the checked value.
    #[test]
    fn go_services_read_the_checked_value(
        members in proptest::collection::vec((lookalike(), any::<u8>()), 0..4),
        open: bool,
    ) {
        let schema = stock(if open { json!(true) } else { Value::Null });
        let tools = tools("POST", "http", &schema);
        if let Ok(call) = over_http(&tools, &object(&members)) {
            let body = String::from_utf8(call.body.unwrap()).unwrap();
            prop_assert_eq!(as_go_reads(&body, "claw_id"), Some(json!("otter")), "{}", body);
            let exact: Map<String, Value> = serde_json::from_str(&body).unwrap();
            let stock = as_go_reads(&body, "stock");
            prop_assert_eq!(stock.as_ref(), exact.get("stock"), "{}", body);
            prop_assert!(body.ends_with(r#""claw_id":"otter"}"#), "{}", body);
        }
    }

    /// For any arguments, PHP reads the authenticated identity and, with a closed schema, the
    /// checked value.
    #[test]
    fn php_services_read_the_checked_value(
        members in proptest::collection::vec((lookalike(), any::<u8>()), 0..4),
        open: bool,
    ) {
        let schema = stock(if open { json!(true) } else { Value::Null });
        let tools = tools("GET", "http", &schema);
        if let Ok(call) = over_http(&tools, &object(&members)) {
            let (_, query) = call.path_and_query.split_once('?').unwrap();
            let identity = as_php_reads(query, "claw_id");
            prop_assert_eq!(identity.as_deref(), Some("otter"), "{}", query);
            let read = as_php_reads(query, "stock");
            // An open schema leaves undeclared names to the service.
            let checked = matches!(read.as_deref(), None | Some("v0" | "v1"));
            prop_assert!(open || checked, "{}", query);
        }
    }
}

#[test]
fn ambiguous_keys_are_refused_at_any_depth() {
    for transport in ["http", "mcp"] {
        let tools = tools(
            "POST",
            transport,
            &json!({"additionalProperties": true,
            "properties": {"fish": {"properties": {"kind": {}}}}}),
        );
        for (arguments, named) in [
            (r#"{"amount":1,"AMOUNT":2}"#, "`amount` and `AMOUNT`"),
            (
                r#"{"a":[{"b":{"\u017fide":1,"side":2}}]}"#,
                "`ſide` and `side`",
            ),
            (r#"{"K":1,"\u212a":2}"#, "`K` and `\u{212a}`"),
            (
                r#"{"claw_id":"x","CLAW_ID":"heron"}"#,
                "`claw_id` and `CLAW_ID`",
            ),
            (r#"{"CLAW_ID":"heron"}"#, "`CLAW_ID`"),
            (r#"{"a":[{"clawId":"heron"}]}"#, "`clawId`"),
            (r#"{"a":{"claw.id":"heron"}}"#, "`claw.id`"),
            (r#"{"claw[id":"heron"}"#, "`claw[id`"),
            (r#"{"claw_id[0]":"heron"}"#, "`claw_id[0]`"),
            (r#"{"claw_id\u0000":"heron"}"#, "`claw_id\0`"),
        ] {
            let (code, message) = sent(&tools, arguments).expect_err(arguments);
            assert_eq!(code, "invalid_arguments", "{arguments}");
            assert!(message.contains(named), "{message}");
        }
        let (_, message) = sent(&tools, r#"{"fish":{"KIND":1}}"#).expect_err("is refused");
        assert_eq!(message, "`KIND` could be read as `kind`: write `kind`");
        sent(&tools, r#"{"claws":1,"id":2,"Amount":{"a":1},"a":{"A":2}}"#).unwrap();
    }
}

#[test]
fn only_declared_arguments_reach_an_http_service() {
    let refused = |schema: Value, arguments: &str, message: &str| {
        let (code, said) = sent(&tools("POST", "http", &schema), arguments).expect_err(arguments);
        assert_eq!(
            (code.as_str(), said.as_str()),
            ("schema_validation", message)
        );
        // An MCP server checks its arguments itself.
        if schema.get("additionalProperties").is_none() {
            sent(&tools("POST", "mcp", &schema), arguments).unwrap();
        }
    };
    let fish = json!({"properties": {"fish": {}, "claw_id": {}}});
    refused(
        fish.clone(),
        r#"{"fish":1,"_method":"DELETE"}"#,
        "`_method` is not an argument of this tool; its arguments are `fish`",
    );
    refused(
        json!({"type": "object"}),
        r#"{"page":1}"#,
        "`page` is not an argument of this tool; it has none",
    );
    refused(
        json!({"additionalProperties": false}),
        r#"{"page":1}"#,
        "`page` is not an argument of this tool; it has none",
    );
    refused(
        json!({"patternProperties": {"^x-": {}}}),
        r#"{"x-a":1,"y":2}"#,
        "`y` is not an argument of this tool; its arguments follow a pattern",
    );
    let many: Map<String, Value> = (10..50).map(|at| (format!("n{at}"), json!({}))).collect();
    let (_, said) = sent(
        &tools("POST", "http", &json!({"properties": many})),
        r#"{"n":1}"#,
    )
    .expect_err("is refused");
    assert!(said.ends_with("`n40`, `n41` and 8 more"), "{said}");
    let long = format!("{{\"{}\":1}}", "x".repeat(10_000));
    let (_, said) = sent(&tools("POST", "http", &fish), &long).expect_err("is refused");
    assert!(said.len() < 200, "{said}");
}

#[test]
fn no_declared_argument_is_lost() {
    let named = |name: &str| json!({"properties": {name: {"type": "integer"}}});
    for (schema, arguments) in [
        (json!({"additionalProperties": true}), r#"{"any":1}"#),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            r#"{"any":1}"#,
        ),
        (json!({"propertyNames": {"pattern": "^a"}}), r#"{"any":1}"#),
        (json!({"required": ["fish"]}), r#"{"fish":1}"#),
        (
            json!({"patternProperties": {"^x-": {}, "^y[a-z]": {}}}),
            r#"{"x-a":1,"yz":2}"#,
        ),
        (
            json!({"allOf": [named("a"), {"$ref": "#/$defs/b"}], "$defs": {"b": named("b")}}),
            r#"{"a":1,"b":2}"#,
        ),
        (
            json!({"anyOf": [named("a"), named("b")]}),
            r#"{"a":1,"b":2}"#,
        ),
        (
            json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            r#"{"a":1}"#,
        ),
        (
            json!({"if": {"required": ["a"]}, "then": named("b"), "else": named("c")}),
            r#"{"a":1,"b":2}"#,
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            r#"{"a":1,"b":2}"#,
        ),
    ] {
        let tools = tools("POST", "http", &schema);
        let call = sent(&tools, arguments).unwrap_or_else(|error| panic!("{schema}: {error:?}"));
        assert_eq!(call.arguments().get(), arguments, "{schema}");
    }
}
