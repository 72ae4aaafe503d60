//! Converts OpenAPI's schemas to JSON Schema, with their definitions under `$defs`.
//!
//! References are kept, since a recursive type cannot be written out. Only the top of a body is
//! resolved, since providers want plain properties there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use toolcrib_bounds::{cut, pattern};

use super::document::{Document, Version};
use super::names::Names;
use super::{Remarks, marks};

/// Limit on depth: no argument of a tool is deeper.
const MAX_DEPTH: usize = 32;
/// Limit on the parts of one body, through references, `allOf` and alternatives: a short document
/// can name the same part again and again.
const MAX_PARTS: usize = 256;

/// Keywords that only OpenAPI has, or that are for readers of the document.
const DROPPED: [&str; 9] = [
    "example",
    "examples",
    "xml",
    "externalDocs",
    "discriminator",
    "readOnly",
    "writeOnly",
    "nullable",
    "deprecated",
];

/// The schemas of one tool.
pub struct Schemas<'a> {
    document: &'a Document,
    place: String,
    /// Names under `$defs`, by reference.
    names: BTreeMap<String, String>,
    used: Names,
    /// Parts of a body that may still be read.
    parts: usize,
    /// Converted definitions; absent while the conversion is running.
    defs: BTreeMap<String, Value>,
    waiting: Vec<String>,
}

/// The members of an object, from all places that declare some.
#[derive(Debug, Default)]
pub struct Shape {
    pub properties: Map<String, Value>,
    pub required: BTreeSet<String>,
    /// `additionalProperties`, if it allows any.
    pub additional: Option<Value>,
}

impl<'a> Schemas<'a> {
    pub fn new(document: &'a Document, place: &str) -> Self {
        Self {
            document,
            place: place.to_owned(),
            names: BTreeMap::new(),
            used: Names::default(),
            parts: 0,
            defs: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Converts the schema of a value; its references lead to `$defs`.
    pub fn converted(&mut self, schema: &Value, remarks: &mut Remarks) -> Value {
        let converted = self.schema(schema, 0, remarks);
        while let Some(reference) = self.waiting.pop() {
            let Some(name) = self.names.get(&reference).cloned() else {
                continue;
            };
            let found = self.document.at(&reference).cloned();
            if found.is_none() {
                remarks.look(
                    &self.place,
                    format!("{reference:?} leads nowhere, so anything is taken there"),
                );
            }
            let schema = self.schema(&found.unwrap_or_else(|| json!({})), 0, remarks);
            self.defs.insert(name, schema);
        }
        converted
    }

    pub fn into_defs(self) -> BTreeMap<String, Value> {
        self.defs
    }

    fn schema(&mut self, schema: &Value, depth: usize, remarks: &mut Remarks) -> Value {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => return json!({}),
            Value::Bool(false) => return json!({"not": {}}),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                remarks.look(
                    &self.place,
                    "holds a schema that is none: anything is taken there",
                );
                return json!({});
            }
        };
        if depth > MAX_DEPTH {
            remarks.look(
                &self.place,
                format!("is nested deeper than {MAX_DEPTH} levels; below, anything is taken"),
            );
            return json!({});
        }
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, members, remarks);
        }
        let mut converted = Map::new();
        for (key, value) in members {
            let value = match (key.as_str(), value) {
                (key, _) if DROPPED.contains(&key) || key.starts_with("x-") => continue,
                ("$schema" | "$id" | "$anchor" | "$dynamicAnchor" | "$defs" | "definitions", _) => {
                    continue;
                }
                ("properties" | "patternProperties", Value::Object(properties)) => {
                    self.properties(properties, depth, remarks)
                }
                ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(items)) => items
                    .iter()
                    .map(|item| self.schema(item, depth + 1, remarks))
                    .collect(),
                ("items" | "not" | "contains" | "propertyNames", schema) => {
                    self.schema(schema, depth + 1, remarks)
                }
                ("additionalProperties", schema) if schema.is_object() => {
                    self.schema(schema, depth + 1, remarks)
                }
                ("description" | "title", Value::String(text)) => {
                    cleaned(text, &self.place, remarks).into()
                }
                // The service has this schema too, and checks the value itself.
                ("pattern", Value::String(text)) if let Err(error) = pattern::cost(text) => {
                    remarks.left_out(
                        &self.place,
                        format!(
                            "the pattern {:?} of a value, which the service alone checks: it {error}",
                            cut(text, 80)
                        ),
                    );
                    continue;
                }
                ("required", Value::Array(names)) => {
                    let sent = |name: &&Value| {
                        let property = members
                            .get("properties")
                            .and_then(|all| all.get(name.as_str()?));
                        !property.is_some_and(is_read_only)
                    };
                    names.iter().filter(sent).cloned().collect()
                }
                // In Swagger, `required` of a parameter is not JSON Schema's.
                ("required", _) => continue,
                (_, value) => value.clone(),
            };
            converted.insert(key.clone(), value);
        }
        if self.document.version != Version::OpenApi31 {
            bounds_of_3_0(&mut converted);
        }
        let nullable = members.get("nullable") == Some(&Value::Bool(true))
            || members.get("x-nullable") == Some(&Value::Bool(true));
        if nullable {
            or_null(converted)
        } else {
            converted.into()
        }
    }

    /// Converts properties, without the read-only ones, which only answers have.
    fn properties(
        &mut self,
        properties: &Map<String, Value>,
        depth: usize,
        remarks: &mut Remarks,
    ) -> Value {
        let mut converted = Map::new();
        for (name, schema) in properties {
            if is_read_only(schema) {
                continue;
            }
            let (shown, hidden) = marks::shown(name);
            if hidden > 0 {
                remarks.left_out(
                    &self.place,
                    format!("the property {shown:?}, whose name holds {hidden} hidden characters"),
                );
                continue;
            }
            let schema = self.schema(schema, depth + 1, remarks);
            converted.insert(name.clone(), schema);
        }
        converted.into()
    }

    fn reference(
        &mut self,
        reference: &str,
        members: &Map<String, Value>,
        remarks: &mut Remarks,
    ) -> Value {
        if !reference.starts_with('#') {
            remarks.look(
                &self.place,
                format!("{reference:?} is in another document, so anything is taken there"),
            );
            return json!({});
        }
        let name = match self.names.get(reference) {
            Some(name) => name.clone(),
            None => {
                let name = self.new_name(reference);
                self.names.insert(reference.to_owned(), name.clone());
                self.waiting.push(reference.to_owned());
                name
            }
        };
        let mut converted = json!({"$ref": format!("#/$defs/{name}")});
        // Only 3.1 allows other keywords beside a reference.
        if self.document.version == Version::OpenApi31
            && let Some(text) = members.get("description").and_then(Value::as_str)
        {
            converted["description"] = cleaned(text, &self.place, remarks).into();
        }
        converted
    }

    fn new_name(&mut self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(60)
            .collect();
        self.used
            .unused(&plain, |number| format!("{plain}_{number}"))
    }

    /// Returns the members of an object schema, through references, `allOf` and alternatives.
    /// `None`: the schema is no object, or has too many parts.
    pub fn shape(&mut self, schema: &Value, remarks: &mut Remarks) -> Option<Shape> {
        self.parts = MAX_PARTS;
        let shape = self.shape_of(schema, 0, remarks);
        shape.filter(|_| self.parts > 0)
    }

    /// The reason for which the last [`Self::shape`] was `None`.
    pub fn no_shape(&self) -> String {
        if self.parts == 0 {
            format!("its body's schema has {MAX_PARTS} parts or more: write it with fewer")
        } else {
            "its body is no JSON object, and arguments always are one".to_owned()
        }
    }

    fn shape_of(&mut self, schema: &Value, depth: usize, remarks: &mut Remarks) -> Option<Shape> {
        self.parts = self.parts.saturating_sub(1);
        if depth > MAX_DEPTH || self.parts == 0 {
            return None;
        }
        let document = self.document;
        let schema = document.followed(schema)?;
        let members = schema.as_object()?;
        let is_object = match members.get("type") {
            None => true,
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(_) => false,
        };
        if !is_object || members.contains_key("enum") {
            return None;
        }
        let mut shape = Shape::default();
        let mut says_something = members.get("type").is_some();
        if let Some(Value::Object(properties)) = members.get("properties") {
            says_something = true;
            if let Value::Object(converted) = self.properties(properties, depth, remarks) {
                shape.properties = converted;
            }
        }
        if let Some(Value::Array(names)) = members.get("required") {
            let names = names.iter().filter_map(Value::as_str).map(str::to_owned);
            shape.required = names.collect();
        }
        match members.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => shape.additional = Some(true.into()),
            Some(schema) => {
                says_something = true;
                shape.additional = Some(self.schema(schema, depth + 1, remarks));
            }
        }
        for part in list(members, "allOf") {
            let part = self.shape_of(part, depth + 1, remarks)?;
            says_something = true;
            shape.properties.extend(part.properties);
            shape.required.extend(part.required);
            shape.additional = shape.additional.or(part.additional);
        }
        for keyword in ["oneOf", "anyOf"] {
            let alternatives: Vec<&Value> = list(members, keyword).collect();
            if alternatives.is_empty() {
                continue;
            }
            let shapes: Option<Vec<Shape>> = alternatives
                .into_iter()
                .map(|alternative| self.shape_of(alternative, depth + 1, remarks))
                .collect();
            says_something = true;
            self.either(&mut shape, shapes?, remarks);
        }
        // Read-only members were not converted.
        shape
            .required
            .retain(|name| shape.properties.contains_key(name) || shape.additional.is_some());
        says_something.then_some(shape)
    }

    /// Unites alternatives, since providers accept none at the top: all properties, of which those
    /// are required that every alternative requires. The service still checks the value.
    fn either(&mut self, shape: &mut Shape, alternatives: Vec<Shape>, remarks: &mut Remarks) {
        remarks.changed(
            &self.place,
            "the body is one of several schemas: their properties are united, and what only some of them require is optional",
        );
        let mut required: Option<BTreeSet<String>> = None;
        for alternative in alternatives {
            for (name, schema) in alternative.properties {
                match shape.properties.get_mut(&name) {
                    None => {
                        shape.properties.insert(name, schema);
                    }
                    Some(known) if *known == schema => {}
                    Some(known) => match known.get_mut("anyOf").and_then(Value::as_array_mut) {
                        Some(choices) if choices.contains(&schema) => {}
                        Some(choices) => choices.push(schema),
                        None => *known = json!({"anyOf": [known.clone(), schema]}),
                    },
                }
            }
            shape.additional = shape.additional.take().or(alternative.additional);
            required = Some(match required {
                None => alternative.required,
                Some(all) => all.intersection(&alternative.required).cloned().collect(),
            });
        }
        shape.required.extend(required.unwrap_or_default());
    }
}

fn list<'v>(members: &'v Map<String, Value>, key: &str) -> impl Iterator<Item = &'v Value> {
    members
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn is_read_only(schema: &Value) -> bool {
    schema.get("readOnly") == Some(&Value::Bool(true))
}

/// Converts bounds of 3.0: `maximum: 5, exclusiveMaximum: true` becomes `exclusiveMaximum: 5`.
fn bounds_of_3_0(schema: &mut Map<String, Value>) {
    for (bound, exclusive) in [
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ] {
        if let Some(Value::Bool(is_exclusive)) = schema.get(exclusive).cloned() {
            schema.remove(exclusive);
            if is_exclusive && let Some(limit) = schema.remove(bound) {
                schema.insert(exclusive.to_owned(), limit);
            }
        }
    }
}

fn or_null(mut schema: Map<String, Value>) -> Value {
    match schema.get("type") {
        Some(Value::String(kind)) => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".to_owned(), kinds);
            if let Some(Value::Array(values)) = schema.get_mut("enum")
                && !values.contains(&Value::Null)
            {
                values.push(Value::Null);
            }
            schema.into()
        }
        None | Some(_) => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// Returns a text for the model without invisible characters.
pub fn cleaned(text: &str, place: &str, remarks: &mut Remarks) -> String {
    let (shown, hidden) = marks::shown(text);
    if hidden > 0 {
        remarks.look(
            place,
            format!("a text held {hidden} hidden characters, which are gone: read what is left"),
        );
    }
    if let Some(words) = marks::instructs(&shown) {
        let start: String = shown.trim().chars().take(60).collect();
        remarks.look(
            place,
            format!("a text says {words:?} ({start:?}…): does it describe, or instruct the model?"),
        );
    }
    shown
}

/// Adds a remark on invisible characters in a name. The name stays: the service knows it so.
pub fn named(name: &str, place: &str, remarks: &mut Remarks) {
    let (shown, hidden) = marks::shown(name);
    let escaped = name.escape_debug();
    if hidden > 0 {
        remarks.look(
            place,
            format!("the name \"{escaped}\" holds {hidden} hidden characters, which stay"),
        );
    }
    if let Some(words) = marks::instructs(&shown) {
        remarks.look(
            place,
            format!("the name \"{escaped}\" says {words:?}: does it name, or instruct the model?"),
        );
    }
}

/// Whether the schema allows any value: it has no type, reference or alternative.
pub fn takes_anything(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else {
        return true;
    };
    const SAYS: [&str; 9] = [
        "type",
        "$ref",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "properties",
        "not",
    ];
    !SAYS.iter().any(|key| members.contains_key(*key))
        || (members.get("type") == Some(&json!("object"))
            && ![
                "properties",
                "allOf",
                "anyOf",
                "oneOf",
                "additionalProperties",
            ]
            .iter()
            .any(|key| members.contains_key(*key)))
}
