//! The schema of a Surface's descriptor: names and words for `kubectl explain`.
//!
//! Here: the keys and their meaning. Not here: decoding. The compiler reads the descriptor's own
//! text, so that a wrong part withholds only that part, and numbers keep their digits.
//!
//! Invariant: the schema refuses nothing and prunes nothing. No part has a type. Every part
//! preserves unknown keys, since the API server prunes below a part with named keys unless it is
//! told otherwise. Every part is nullable, since the API server removes a null from other parts.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// The schema of `Surface.spec.descriptor`.
pub(crate) struct Descriptor;

impl JsonSchema for Descriptor {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Descriptor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": properties(DESCRIPTOR),
        })
    }
}

/// One key and its meaning.
struct Key {
    name: &'static str,
    about: &'static str,
    below: Subkeys,
}

/// The keys within a key's value.
enum Subkeys {
    Nothing,
    Keys(&'static [Key]),
    /// The value is a list, and its items have these keys.
    Items(&'static [Key]),
}

const fn key(name: &'static str, about: &'static str) -> Key {
    Key {
        name,
        about,
        below: Subkeys::Nothing,
    }
}

const fn object(name: &'static str, about: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        about,
        below: Subkeys::Keys(keys),
    }
}

const fn list(name: &'static str, about: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        about,
        below: Subkeys::Items(keys),
    }
}

const DESCRIPTOR: &[Key] = &[
    key(
        "version",
        "Number: 1 or 2. Left out: 1. `tools`, `mcp` and `auth.env` need version 2.",
    ),
    key(
        "description",
        "Text: what the service is for. Agents read it beside the surface's skill.",
    ),
    list(
        "tools",
        "List of tools. A tool that cannot be used is withheld, and the others are not.",
        TOOL,
    ),
    list(
        "feeds",
        "List of feeds: data that the mediator puts into model requests before the model asks.",
        FEED,
    ),
    key(
        "skill",
        "Text: path of a Markdown file that tells agents how to use the service. Its last part is a \
         key of the ConfigMap of `spec.descriptorFrom`; an inline descriptor has no files.",
    ),
    key("skillText", "Text: the skill itself. It wins over `skill`."),
    list(
        "endpoints",
        "List of endpoints that programs call by hand. No grant governs them and no credential is \
         sent. The tools document names them where the descriptor has no `tools`.",
        ENDPOINT,
    ),
    object(
        "auth",
        "Object: how the service authenticates its callers. `Surface.spec.auth` wins over it.",
        AUTH,
    ),
    object(
        "mcp",
        "Object: the service's MCP endpoint, for tools without `http`. `Surface.spec.mcp` wins over it.",
        MCP,
    ),
];

const TOOL: &[Key] = &[
    key(
        "name",
        "Text, required: 1 to 128 letters, digits, '_', '-', '.' or '/'. Grants name the tool by it. Of \
         two tools with one name the first counts.",
    ),
    key("description", "Text of at most 8 KiB, for the model."),
    key(
        "inputSchema",
        "JSON Schema of the arguments, required: `type: object` for a tool without arguments. The \
         mediator checks every call against it. An HTTP service gets declared arguments only: a call \
         with another one is refused, unless the schema says `additionalProperties: true` or has a \
         schema for them.",
    ),
    key(
        "outputSchema",
        "JSON Schema of the structured result of a tool over MCP. It means nothing beside `http`.",
    ),
    object(
        "http",
        "Object: the HTTP request that carries out a call. Left out: the tool is called over MCP. The \
         model never sees it. Other keys for headers, cookies and hosts are refused.",
        HTTP,
    ),
    object(
        "annotations",
        "Object of hints. Those that are true or false give the tool its tier: Elevated with a \
         destructive or confirmationRequired hint, else ReadOnly with a readOnly hint, else System. \
         `Surface.spec.tiers` wins over them. An unknown name is warned of, unless it has a '/' or \
         begins with x-.",
        ANNOTATIONS,
    ),
];

const HTTP: &[Key] = &[
    key(
        "method",
        "Text, required: GET, HEAD, POST, PUT, PATCH or DELETE.",
    ),
    key(
        "path",
        "Text, required: begins with '/', has at most 1024 bytes and no query. `{NAME}` stands for an \
         argument, which `inputSchema.properties` must declare; `{claw_id}` for the agent's identity.",
    ),
    key(
        "body",
        "Text: `json`. Arguments that are not in the path then go into a JSON body also with GET, HEAD \
         and DELETE, which otherwise have them in the query. POST, PUT and PATCH always send a JSON \
         body.",
    ),
    key(
        "body_key",
        "Text: wraps the body. The arguments become the value of this key, the only one of the body.",
    ),
    key(
        "idempotencyHeader",
        "Text: the header by whose value the service recognizes a repeated call, such as \
         Idempotency-Key. The mediator gives it a value. A repetition in the same turn is then sent with \
         the same value where it is otherwise refused, since the first call may have run. Names of \
         headers for framing, routing, identity or authentication are refused.",
    ),
];

const ANNOTATIONS: &[Key] = &[
    key(
        "readOnly",
        "true: the tool changes nothing. Tier ReadOnly, unless another hint says otherwise.",
    ),
    key(
        "readOnlyHint",
        "The same in MCP's spelling. If one of the two is false, the other does not count.",
    ),
    key(
        "destructive",
        "true: the tool can destroy something. Tier Elevated.",
    ),
    key("destructiveHint", "The same in MCP's spelling."),
    key(
        "confirmationRequired",
        "true: a person should agree to each call. Tier Elevated.",
    ),
    key(
        "confirmationRequiredHint",
        "The same, spelt as MCP spells hints.",
    ),
    key(
        "title",
        "Text: the tool's name for people. It decides no tier.",
    ),
    key(
        "idempotent",
        "true: a second call does no more than the first. It decides no tier.",
    ),
    key("idempotentHint", "The same in MCP's spelling."),
    key(
        "openWorld",
        "true: the tool reaches what is outside of the service. It decides no tier.",
    ),
    key("openWorldHint", "The same in MCP's spelling."),
    key(
        "parallel_safe",
        "true: the mediator may run calls of such tools at the same time. It decides no tier.",
    ),
    key(
        "polling",
        "true: the same call may run again in one turn, though it succeeded. It decides no tier.",
    ),
    object(
        "x-claw",
        "Object of hints that MCP has no names for.",
        &[key(
            "terminalOnSuccess",
            "true: a call that succeeds ends the turn.",
        )],
    ),
];

const FEED: &[Key] = &[
    key(
        "name",
        "Text, required: the same letters as of a tool. Grants name the feed by it.",
    ),
    key(
        "path",
        "Text, required: the path of a GET, as of a tool. Its only placeholder is `{claw_id}`.",
    ),
    key(
        "ttl",
        "Number of seconds for which a copy is used, 1 to 86400. Left out: 60.",
    ),
];

const ENDPOINT: &[Key] = &[
    key("method", "Text: the HTTP method."),
    key("path", "Text: the path on the service."),
    key("description", "Text: what the endpoint is for."),
];

const AUTH: &[Key] = &[
    key(
        "type",
        "Text: bearer, header, basic or oauth. Left out: bearer.",
    ),
    key(
        "env",
        "Text: the key of the Secret, where `secretKeyRef` names none. Needs version 2.",
    ),
    key("header", "Text: the header's name, with type header."),
];

const MCP: &[Key] = &[key("path", "Text: path of the endpoint. Left out: /mcp.")];

/// A schema that accepts every value and preserves every key and every null.
fn open() -> Map<String, Value> {
    Map::from_iter([
        ("nullable".into(), true.into()),
        ("x-kubernetes-preserve-unknown-fields".into(), true.into()),
    ])
}

fn properties(keys: &[Key]) -> Value {
    keys.iter()
        .map(|key| (key.name.to_owned(), schema(key)))
        .collect::<Map<_, _>>()
        .into()
}

fn schema(key: &Key) -> Value {
    let mut schema = open();
    schema.insert("description".into(), key.about.into());
    match key.below {
        Subkeys::Nothing => {}
        Subkeys::Keys(keys) => {
            schema.insert("properties".into(), properties(keys));
        }
        Subkeys::Items(keys) => {
            let mut items = open();
            items.insert("properties".into(), properties(keys));
            schema.insert("items".into(), json!(items));
        }
    }
    schema.into()
}
