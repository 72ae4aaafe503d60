//! Converts one operation to a tool, or gives the reason why it cannot be one.
//!
//! The mediator sends arguments in the path's placeholders, and all other arguments either in the
//! query (GET, HEAD, DELETE) or in the JSON body. A model never sets headers or cookies; the mediator
//! sets the value of an idempotency key. An operation that needs another place is left out. One that
//! only *may* have an argument there loses that argument, with a remark.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use toolcrib_bounds::cut;

use super::document::{Body, Document, Operation, Version};
use super::schema::{Schemas, Shape, cleaned, takes_anything};
use super::{Remarks, names};

/// Longest description, in characters: every request carries it to the model.
const MAX_DESCRIPTION: usize = 1024;
/// Headers that services use as idempotency keys, in lower case.
const IDEMPOTENCY_HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];
/// Placeholder for the agent's identity, known to the compiler and the mediator.
const CLAW_ID: &str = "claw_id";

/// The place of arguments that are not in the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentPlace {
    Query,
    Body,
}

/// Returns the tool in the descriptor's form, without its name. `Err`: why it cannot be one.
pub fn tool(
    document: &Document,
    operation: &Operation<'_>,
    path_prefix: &str,
    remarks: &mut Remarks,
) -> Result<Value, String> {
    if operation.elsewhere {
        return Err("has servers of its own: make a surface of it with --url".to_owned());
    }
    let place = operation.place();
    let body = document.body(operation);
    let rest = rest(operation.method, body.as_ref(), &place, remarks)?;
    let mut input = Input {
        document,
        place: &place,
        schemas: Schemas::new(document, &place),
        properties: Map::new(),
        required: BTreeSet::new(),
        additional: None,
        idempotency_header: None,
    };
    let mut path = format!("{path_prefix}{}", operation.path);
    let mut body_key = None;
    if let (ArgumentPlace::Body, Some(body)) = (rest, body) {
        body_key = input.body(body, remarks)?;
    }
    for parameter in &operation.parameters {
        input.parameter(parameter, rest, &mut path, remarks)?;
    }
    let mut http = json!({"method": operation.method.to_ascii_uppercase(), "path": path});
    if rest == ArgumentPlace::Body {
        http["body"] = "json".into();
    }
    if let Some(key) = body_key {
        http["body_key"] = key.into();
    }
    if let Some(header) = input.idempotency_header.take() {
        http["idempotencyHeader"] = header.into();
    }
    let mut tool = json!({
        "description": description(operation, &place, remarks),
        "inputSchema": input.schema(remarks),
        "http": http,
    });
    match operation.method {
        "get" | "head" => tool["annotations"] = json!({"readOnly": true}),
        "put" => tool["annotations"] = json!({"readOnly": false, "idempotent": true}),
        "delete" => {
            tool["annotations"] =
                json!({"readOnly": false, "destructive": true, "idempotent": true});
        }
        _ => tool["annotations"] = json!({"readOnly": false}),
    }
    if operation.value.get("deprecated") == Some(&Value::Bool(true)) {
        remarks.look(&place, "is deprecated");
    }
    Ok(tool)
}

fn rest(
    method: &str,
    body: Option<&Body>,
    place: &str,
    remarks: &mut Remarks,
) -> Result<ArgumentPlace, String> {
    let no_json = |body: &Body| {
        format!(
            "takes {}, and only JSON can be sent",
            if body.types.is_empty() {
                "a body of no type".to_owned()
            } else {
                body.types.join(", ")
            }
        )
    };
    match (method, body) {
        ("get" | "head" | "delete", None) => Ok(ArgumentPlace::Query),
        ("get" | "head" | "delete", Some(body)) => match &body.schema {
            Some(_) if body.required => Ok(ArgumentPlace::Body),
            Some(_) | None if !body.required => {
                remarks.left_out(place, "the optional body");
                Ok(ArgumentPlace::Query)
            }
            Some(_) | None => Err(no_json(body)),
        },
        ("post" | "put" | "patch", Some(body)) if body.schema.is_none() && body.required => {
            Err(no_json(body))
        }
        ("post" | "put" | "patch", _) => Ok(ArgumentPlace::Body),
        _ => Err("the mediator sends GET, HEAD, POST, PUT, PATCH and DELETE only".to_owned()),
    }
}

struct Input<'a> {
    document: &'a Document,
    place: &'a str,
    schemas: Schemas<'a>,
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    additional: Option<Value>,
    /// The header by which the service recognizes a repeated call.
    idempotency_header: Option<String>,
}

impl Input<'_> {
    /// Converts the body's members to arguments; returns the key that wraps them, if there is one.
    fn body(&mut self, body: Body, remarks: &mut Remarks) -> Result<Option<String>, String> {
        let Some(schema) = body.schema else {
            remarks.left_out(self.place, "the optional body, which is not JSON");
            return Ok(None);
        };
        if let Some(reference) = self.document.dangling(&schema) {
            return Err(format!(
                "the schema of its body, {reference:?}, leads nowhere"
            ));
        }
        let shape = self
            .schemas
            .shape(&schema, remarks)
            .ok_or_else(|| self.schemas.no_shape())?;
        let (key, shape) = self.unwrapped(&schema, shape, remarks);
        for (name, schema) in shape.properties {
            if names::is_property(&name) {
                self.properties.insert(name, schema);
            } else if shape.required.contains(&name) {
                return Err(format!(
                    "its body needs {name:?}, which cannot name an argument"
                ));
            } else {
                remarks.left_out(
                    self.place,
                    format!("{name:?}, which cannot name an argument"),
                );
            }
        }
        self.required = shape.required;
        if let Some(additional) = shape.additional {
            remarks.look(self.place, "the body takes members of any name");
            self.additional = Some(additional);
        } else if self.properties.is_empty() && body.required {
            remarks.look(
                self.place,
                "the body's schema names no members, so anything is taken",
            );
            self.additional = Some(true.into());
        }
        // References at the top were resolved; those below are converted here.
        self.schemas.converted(&json!({}), remarks);
        Ok(key)
    }

    /// Unwraps `{"trade": {…}}` without other members: the inner members become the arguments, and
    /// the mediator wraps them in the key again (`body_key`).
    fn unwrapped(
        &mut self,
        schema: &Value,
        shape: Shape,
        remarks: &mut Remarks,
    ) -> (Option<String>, Shape) {
        let only = match shape.properties.keys().collect::<Vec<_>>().as_slice() {
            [only] if shape.required.contains(*only) && shape.additional.is_none() => {
                (*only).clone()
            }
            _ => return (None, shape),
        };
        let document = self.document;
        let inner = document
            .followed(schema)
            .and_then(|schema| schema.get("properties"))
            .and_then(|properties| properties.get(&only));
        match inner.and_then(|inner| self.schemas.shape(inner, remarks)) {
            Some(inner) if !inner.properties.is_empty() => (Some(only), inner),
            _ => (None, shape),
        }
    }

    fn parameter(
        &mut self,
        parameter: &Value,
        rest: ArgumentPlace,
        path: &mut String,
        remarks: &mut Remarks,
    ) -> Result<(), String> {
        let text = |key: &str| parameter.get(key).and_then(Value::as_str);
        if let Some(reference) = self.document.dangling(parameter) {
            return Err(format!("its parameter {reference:?} leads nowhere"));
        }
        let (Some(name), Some(place)) = (text("name"), text("in")) else {
            return Err("has a parameter without name and place".to_owned());
        };
        let is_required = parameter["required"] == true;
        let lost = |what: String, remarks: &mut Remarks| {
            if is_required {
                return Err(format!("needs {what}"));
            }
            remarks.left_out(self.place, what);
            Ok(())
        };
        match (place, rest) {
            ("path", _) => {
                self.path_parameter(name, parameter, path, remarks);
                Ok(())
            }
            ("body" | "formData", _) => Ok(()),
            // Headers that the mediator or HTTP itself decides.
            ("header", _)
                if ["accept", "content-type", "authorization"]
                    .contains(&name.to_ascii_lowercase().as_str()) =>
            {
                Ok(())
            }
            ("header", _) if IDEMPOTENCY_HEADERS.contains(&name.to_ascii_lowercase().as_str()) => {
                self.idempotency_header = Some(name.to_owned());
                Ok(())
            }
            ("query", ArgumentPlace::Query) if !names::is_property(name) => lost(
                format!("the query parameter {name:?}, which cannot name an argument"),
                remarks,
            ),
            ("query", ArgumentPlace::Query) if self.properties.contains_key(name) => lost(
                format!("the query parameter {name}, which is in the path too"),
                remarks,
            ),
            ("query", ArgumentPlace::Query) => match self.query_schema(parameter, remarks) {
                Some(schema) => {
                    if is_required {
                        self.required.insert(name.to_owned());
                    }
                    self.properties.insert(name.to_owned(), schema);
                    Ok(())
                }
                None => lost(
                    format!("the query parameter {name}, which is an object"),
                    remarks,
                ),
            },
            ("query", ArgumentPlace::Body) => lost(
                format!("the query parameter {name} beside a JSON body"),
                remarks,
            ),
            (place, _) => lost(format!("the {place} parameter {name}"), remarks),
        }
    }

    /// Converts a path parameter. A name that is in use, or cannot be a placeholder, is replaced.
    fn path_parameter(
        &mut self,
        name: &str,
        parameter: &Value,
        path: &mut String,
        remarks: &mut Remarks,
    ) {
        let placeholder = format!("{{{name}}}");
        if !path.contains(&placeholder) {
            remarks.left_out(
                self.place,
                format!("the path parameter {name}, which is not in the path"),
            );
            return;
        }
        let mut ours: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .take(60)
            .collect();
        if self.properties.contains_key(&ours) {
            ours += "_in_path";
        }
        *path = path.replace(&placeholder, &format!("{{{ours}}}"));
        if ours == CLAW_ID {
            remarks.look(
                self.place,
                "the path's claw_id is filled in with the agent's identity, whatever the model says",
            );
        }
        let schema = self.parameter_schema(parameter, remarks);
        self.properties.insert(ours.clone(), schema);
        self.required.insert(ours);
    }

    /// Returns the schema; `None` for an object, whose spelling in a query is not defined.
    fn query_schema(&mut self, parameter: &Value, remarks: &mut Remarks) -> Option<Value> {
        let schema = self.document.schema_of(parameter)?;
        let opened = self.document.followed(&schema)?;
        let kind = opened.get("type").and_then(Value::as_str);
        if kind == Some("object") || opened.get("properties").is_some() {
            return None;
        }
        let joined = match self.document.version {
            Version::Swagger2 => kind == Some("array") && parameter["collectionFormat"] != "multi",
            Version::OpenApi30 | Version::OpenApi31 => {
                kind == Some("array") && parameter["explode"] == false
            }
        };
        let mut converted = self.parameter_schema(parameter, remarks);
        if joined {
            let text = converted["description"].as_str().unwrap_or_default();
            let text = format!("{text} (several: separated by commas)");
            converted = json!({"type": "string", "description": text.trim()});
        }
        Some(converted)
    }

    fn parameter_schema(&mut self, parameter: &Value, remarks: &mut Remarks) -> Value {
        let document = self.document;
        let schema = document.schema_of(parameter);
        let empty = json!({});
        let mut converted = self
            .schemas
            .converted(schema.as_deref().unwrap_or(&empty), remarks);
        let text = parameter.get("description").and_then(Value::as_str);
        if let (Some(text), Value::Object(members)) = (text, &mut converted) {
            let text = cleaned(text, self.place, remarks);
            members.insert("description".to_owned(), text.into());
        }
        converted
    }

    fn schema(self, remarks: &mut Remarks) -> Value {
        let open: Vec<&String> = self
            .properties
            .iter()
            .filter(|(_, schema)| takes_anything(schema))
            .map(|(name, _)| name)
            .collect();
        if !open.is_empty() {
            let names: Vec<&str> = open.into_iter().map(String::as_str).collect();
            remarks.look(
                self.place,
                format!("anything is taken as {}", names.join(", ")),
            );
        }
        let mut schema = json!({
            "type": "object",
            "properties": self.properties,
            // Undeclared arguments are not sent.
            "additionalProperties": self.additional.unwrap_or(Value::Bool(false)),
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        let defs = self.schemas.into_defs();
        let used = used_defs(&schema, &defs);
        let kept: Map<String, Value> = defs
            .into_iter()
            .filter(|(name, _)| used.contains(name))
            .collect();
        if !kept.is_empty() {
            schema["$defs"] = kept.into();
        }
        schema
    }
}

/// Returns the names of definitions that `schema` refers to, directly or through others.
fn used_defs(schema: &Value, defs: &std::collections::BTreeMap<String, Value>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut waiting = vec![schema];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(members) => {
                let name = members
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|reference| reference.strip_prefix("#/$defs/"));
                if let Some(name) = name
                    && used.insert(name.to_owned())
                {
                    waiting.extend(defs.get(name));
                }
                waiting.extend(members.values());
            }
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    used
}

fn description(operation: &Operation<'_>, place: &str, remarks: &mut Remarks) -> String {
    let summary = operation.text("summary").trim();
    let text = operation.text("description").trim();
    let whole = match (summary, text) {
        ("", text) => text.to_owned(),
        (summary, "") => summary.to_owned(),
        (summary, text) if text.starts_with(summary) => text.to_owned(),
        (summary, text) => format!("{summary}. {text}").replacen(".. ", ". ", 1),
    };
    let whole = cleaned(&whole, place, remarks);
    if whole.is_empty() {
        remarks.look(
            place,
            "has no description: say what it does, and when to use it",
        );
    }
    if whole.len() <= MAX_DESCRIPTION {
        return whole;
    }
    remarks.changed(
        place,
        format!("the description is cut to {MAX_DESCRIPTION} bytes"),
    );
    cut(&whole, MAX_DESCRIPTION).into_owned()
}
