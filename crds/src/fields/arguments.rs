//! Conditions of a grant on a tool's arguments: fixed values, and a schema that narrows.
//!
//! Here: shapes, bounds, and their documentation. Not here: whether a tool declares the arguments,
//! and whether a call meets the conditions (`toolcrib-rules`).
//!
//! Invariant: values and schemas keep their bytes, and no part of the schema is pruned. A dropped
//! keyword would silently loosen a restriction.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toolcrib_manifest::RawJson;

/// Limits on a tool's arguments. A call that violates one is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgumentRules {
    /// Top-level arguments with the only value that each may have, such as `{account: A-17}`. The
    /// model is not shown them, and the mediator fills them in. A tool that does not declare such
    /// an argument is not given. Pins and schema together have at most 8 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Pins")]
    pub pin: BTreeMap<String, RawJson>,
    /// JSON Schema that the arguments must match beside the tool's own, such as
    /// `{properties: {amount: {maximum: 100}}}`. It has `properties` and `required` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArgumentsSchema>")]
    pub schema: Option<RawJson>,
}

/// The schema of `arguments.pin`: any names and values.
struct Pins;

impl JsonSchema for Pins {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Pins".into()
    }

    /// A rule (CEL) of the whole map could not see its keys, since the values have no type of CEL. So
    /// the one name that is refused is a property, whose rule no value meets.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "maxProperties": 16,
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "claw_id": {
                    "type": "string",
                    "maxLength": 256,
                    "description": "Never: the mediator writes the agent's identity there.",
                    "x-kubernetes-validations": [{
                        "rule": "false",
                        "message": "claw_id is always the agent's identity, which the mediator writes: remove it",
                    }],
                },
            },
        })
    }
}

/// The schema of `arguments.schema`.
struct ArgumentsSchema;

impl JsonSchema for ArgumentsSchema {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ArgumentsSchema".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "properties": {
                    "type": "object",
                    "maxProperties": 64,
                    "x-kubernetes-preserve-unknown-fields": true,
                    "description": "JSON Schemas by argument, such as {side: {enum: [buy]}}; false forbids the argument.",
                },
                "required": {
                    "type": "array",
                    "maxItems": 64,
                    "items": {"type": "string", "maxLength": 256},
                    "description": "Names of arguments that a call must have.",
                },
            },
        })
    }
}
