//! The way from an object's root to the wrong field, and the error about it.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;

use super::DecodeError;
use super::schema::{described, item, noun, reference, schemas, values, wanted};
use crate::near;

/// Limits the bytes of a path: keys of maps are part of it.
pub(super) const FIELD: usize = 256;
/// Limits the bytes of a message.
pub(super) const MESSAGE: usize = 304;

/// A field: its path, its value, and what the definition says about it.
pub(super) struct Field<'a> {
    kind: &'a str,
    path: String,
    /// The path in the form that `kubectl explain` accepts.
    explained: String,
    value: Option<&'a RawValue>,
    /// `None` if the kind is not of this API, or its definition does not describe the field.
    schema: Option<&'a JSONSchemaProps>,
    /// The location of an example, for a kind that `kubectl explain` does not know.
    help: Option<&'a str>,
    /// The fields of the parent object, if the last step led to an unknown field.
    others: Option<Vec<&'a str>>,
}

impl<'a> Field<'a> {
    pub(super) fn root(kind: &'a str, text: &'a str) -> Self {
        Self {
            kind,
            path: String::new(),
            explained: kind.to_lowercase(),
            value: serde_json::from_str(text).ok(),
            schema: schemas().get(kind),
            help: None,
            others: None,
        }
    }

    /// Describes a kind without a definition. `help` is the location of an example.
    pub(super) fn described_by(self, schema: &'a JSONSchemaProps, help: &'a str) -> Self {
        Self {
            schema: Some(schema),
            help: Some(help),
            ..self
        }
    }

    /// Makes the part at `at` the root; the value is that part already.
    pub(super) fn descend(&mut self, at: &[&str]) {
        for name in at {
            let schema = self.schema;
            self.schema = match *name {
                "[]" => schema.and_then(item),
                name => {
                    self.explained.push('.');
                    self.explained.push_str(name);
                    let properties = schema.and_then(|schema| schema.properties.as_ref());
                    properties.and_then(|properties| properties.get(name))
                }
            };
        }
    }

    /// Takes one step down; returns false if there is none.
    pub(super) fn enter(&mut self, segment: &Segment) -> bool {
        match segment {
            Segment::Seq { index } => {
                self.path.push_str(&format!("[{index}]"));
                self.value = self
                    .value
                    .and_then(|value| serde_json::from_str::<Vec<&RawValue>>(value.get()).ok())
                    .and_then(|items| items.get(*index).copied());
                self.schema = self.schema.and_then(item);
                true
            }
            Segment::Map { key } => {
                self.value = members(self.value).get(key).copied();
                self.field(key);
                true
            }
            Segment::Enum { .. } | Segment::Unknown => false,
        }
    }

    fn field(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
        let schema = self.schema;
        self.schema = schema
            .and_then(|schema| schema.properties.as_ref())
            .and_then(|properties| properties.get(name));
        if self.schema.is_some() {
            self.explained.push('.');
            self.explained.push_str(name);
        } else {
            self.schema = schema.and_then(values);
            let is_unknown = self.schema.is_none();
            let known = schema.and_then(|schema| schema.properties.as_ref());
            self.others = known
                .filter(|_| is_unknown)
                .map(|known| known.keys().map(String::as_str).collect());
        }
    }

    pub(super) fn error(mut self) -> DecodeError {
        let present = members(self.value);
        let missing = self
            .schema
            .and_then(|schema| schema.required.as_ref())
            .filter(|_| self.is_object())
            .and_then(|required| required.iter().find(|name| !present.contains_key(*name)));
        let value = self
            .value
            .map(|value| serde_json::from_str::<Value>(value.get()));
        let message = if let Some(others) = self.others.take() {
            let name = self.path.rsplit('.').next().unwrap_or_default();
            let meant = near::meant_or_known(name, others);
            format!("is not a field: {meant}")
        } else if let Some(name) = missing {
            let misspelt = self.misspelt(name, &present);
            self.field(name);
            match (misspelt, self.schema) {
                (Some(other), _) => {
                    format!(
                        "is missing, and {other} beside it is not a field: did you mean {name}?"
                    )
                }
                (None, Some(schema)) => format!("is missing: write {}", wanted(schema, None)),
                (None, None) => format!("is missing: write it; {}", self.advice()),
            }
        } else {
            // A part that accepts every value, such as a descriptor's, does not describe them.
            let schema = self
                .schema
                .filter(|schema| schema.type_.is_some() || schema.enum_.is_some());
            match (value, schema) {
                (Some(Err(_)), _) => "is nested too deep: write it with fewer levels".to_owned(),
                (Some(Ok(value)), Some(schema)) => {
                    let name = reference(schema, &value);
                    format!(
                        "is {}: write {}",
                        described(schema, &value),
                        name.unwrap_or_else(|| wanted(schema, Some(&value)))
                    )
                }
                (Some(Ok(value)), None)
                    if !self.path.is_empty() || self.explained.contains('.') =>
                {
                    format!("is {}: {}", noun(&value), self.advice())
                }
                (_, _) => format!("cannot be decoded as {}: {}", self.kind, self.advice()),
            }
        };
        let (path, _) = toolcrib_bounds::shown(&self.path);
        let (message, _) = toolcrib_bounds::shown(&message);
        DecodeError {
            field: toolcrib_bounds::cut(&path, FIELD).into_owned(),
            message: toolcrib_bounds::cut(&message, MESSAGE).into_owned(),
        }
    }

    /// Finds an unknown key of this object that may be a misspelling of `name`.
    fn misspelt<'k>(
        &self,
        name: &str,
        present: &'k BTreeMap<String, &RawValue>,
    ) -> Option<&'k str> {
        let known = self.schema?.properties.as_ref()?;
        let unknown = present.keys().filter(|key| !known.contains_key(*key));
        near::nearest(name, unknown.map(String::as_str))
    }

    fn is_object(&self) -> bool {
        self.value.is_some_and(|value| value.get().starts_with('{'))
    }

    fn advice(&self) -> String {
        if let Some(help) = self.help {
            return help.to_owned();
        }
        format!(
            "`kubectl explain {} --recursive` shows what it takes",
            self.explained
        )
    }
}

fn members(value: Option<&RawValue>) -> BTreeMap<String, &RawValue> {
    value
        .and_then(|value| serde_json::from_str(value.get()).ok())
        .unwrap_or_default()
}
