//! Decodes one object; an error names the wrong field and says what to write.
//!
//! One function for the operator, the compiler and the command line, so that their messages are
//! equal. The advice comes from the definition's schema, not from serde, whose errors name Rust
//! types and columns of a text that no user wrote.
//!
//! Invariant: a message quotes a text only if it cannot be a credential: a number or a boolean in
//! quotes, one of the field's own values in another case, or the name of an object without secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;

use crate::{definitions, near};

/// The reason for which an object cannot be decoded as its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path as in `kubectl explain`, with indices: `spec.tools[2].surface`. Empty for the whole
    /// object.
    pub field: String,
    /// The fault in that field, and its cure.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Limits the bytes of a path: keys of maps are part of it.
const FIELD: usize = 256;
/// Limits the bytes of a message.
const MESSAGE: usize = 304;
/// Limits the bytes of a quoted text: the length of a DNS label.
const QUOTED: usize = 63;
/// Limits the fields that a message lists.
const LISTED: usize = 8;

/// Decodes JSON text as `kind`, which is the name of the type in Kubernetes.
pub fn decode<T: DeserializeOwned>(kind: &str, text: &str) -> Result<T, DecodeError> {
    decode_part(kind, &[], text)
}

/// Decodes JSON text as a part of a `kind`. `at` is the path to that part, with `[]` for an entry
/// of a list. The error's field is relative to that part.
pub fn decode_part<T: DeserializeOwned>(
    kind: &str,
    at: &[&str],
    text: &str,
) -> Result<T, DecodeError> {
    located(text, || {
        let mut place = Field::root(kind, text);
        place.descend(at);
        place
    })
}

/// Decodes JSON text as a kind without a definition. `help` says where the user finds an example.
pub fn decode_own<T: DeserializeOwned + JsonSchema>(
    kind: &str,
    help: &str,
    text: &str,
) -> Result<T, DecodeError> {
    let schema = OnceLock::new();
    located(text, || Field {
        help: Some(help),
        schema: Some(schema.get_or_init(schema_of::<T>)),
        ..Field::root(kind, text)
    })
}

/// Returns an object's text without `metadata.managedFields`, which are as deep as the object and
/// not used here.
pub fn without_managed_fields(text: &str) -> Result<String, serde_json::Error> {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let mut object: Members<'_> = serde_json::from_str(text)?;
    let metadata = match object.get("metadata") {
        None => return Ok(text.to_owned()),
        Some(metadata) => {
            let mut metadata: Members<'_> = serde_json::from_str(metadata.get())?;
            metadata.remove("managedFields");
            RawValue::from_string(serde_json::to_string(&metadata)?)?
        }
    };
    object.insert("metadata".to_owned(), &metadata);
    serde_json::to_string(&object)
}

/// Decodes `text`; an error carries the path from the root.
fn located<'a, T: DeserializeOwned>(
    text: &'a str,
    root: impl FnOnce() -> Field<'a>,
) -> Result<T, DecodeError> {
    // Decodes a second time with the path only after an error, since tracking the path is slow and
    // nearly every object decodes.
    serde_json::from_str(text).or_else(|_| {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let mut place = root();
            for segment in error.path() {
                if !place.enter(segment) {
                    break;
                }
            }
            place.error()
        })
    })
}

/// Returns the schema of a type, in the form of a definition's.
fn schema_of<T: JsonSchema>() -> JSONSchemaProps {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings.with_transform(StructuralSchemaRewriter);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    serde_json::from_value(schema.to_value())
        .expect("a type's schema has the form of a definition's")
}

/// A field: its path, its value, and what the definition says about it.
struct Field<'a> {
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
    fn root(kind: &'a str, text: &'a str) -> Self {
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

    /// Makes the part at `at` the root; the value is that part already.
    fn descend(&mut self, at: &[&str]) {
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
    fn enter(&mut self, segment: &Segment) -> bool {
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

    fn error(mut self) -> DecodeError {
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

/// Describes the fault of a value that the definition's schema refuses, and its cure. `pointer` is
/// a JSON pointer into the object. `None` if the definition does not describe that field.
#[cfg(feature = "admission")]
pub(crate) fn correction(kind: &str, pointer: &str, value: &Value) -> Option<String> {
    let mut schema = schemas().get(kind)?;
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let property = schema.properties.as_ref().and_then(|it| it.get(&name));
        schema = property
            .or_else(|| item(schema))
            .or_else(|| values(schema))?;
    }
    let (described, wanted) = (described(schema, value), wanted(schema, Some(value)));
    Some(format!("is {described}: write {wanted}"))
}

/// Returns the fields of the object that holds the field at `path`, in the form of `kubectl
/// explain` with indices: `spec.tools[2].allow`. Empty if the definition has no such object.
pub fn known_fields(kind: &str, path: &str) -> Vec<&'static str> {
    let (Some((parents, _)), Some(root)) = (path.rsplit_once('.'), schemas().get(kind)) else {
        return Vec::new();
    };
    let parent = parents.split('.').try_fold(root, |schema, segment| {
        let (name, indices) = segment.split_once('[').unwrap_or((segment, ""));
        let properties = schema.properties.as_ref();
        let field = properties.and_then(|properties| properties.get(name));
        let field = field.or_else(|| values(schema))?;
        indices.matches(']').try_fold(field, |list, _| item(list))
    });
    let fields = parent.and_then(|parent| parent.properties.as_ref());
    fields
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

fn members(value: Option<&RawValue>) -> BTreeMap<String, &RawValue> {
    value
        .and_then(|value| serde_json::from_str(value.get()).ok())
        .unwrap_or_default()
}

fn item(list: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match list.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// Returns the schema of each value of a map.
fn values(map: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match map.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(values) => Some(values),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

fn schemas() -> &'static BTreeMap<String, JSONSchemaProps> {
    static SCHEMAS: OnceLock<BTreeMap<String, JSONSchemaProps>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        definitions()
            .into_iter()
            .filter_map(|definition| {
                let version = definition.spec.versions.into_iter().next()?;
                let schema = version.schema?.open_api_v3_schema?;
                Some((definition.spec.names.kind, schema))
            })
            .collect()
    })
}

/// Describes the value; quotes it only if it cannot be a credential.
fn described(schema: &JSONSchemaProps, value: &Value) -> String {
    match value {
        Value::Number(number) => format!(
            "the number {}",
            toolcrib_bounds::cut(&number.to_string(), QUOTED)
        ),
        Value::Bool(value) => value.to_string(),
        Value::String(text) => {
            let is_own = choices(schema)
                .iter()
                .any(|choice| choice.eq_ignore_ascii_case(text));
            let is_plain = text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok();
            if (is_own || is_plain) && text.len() <= QUOTED {
                format!("the text {text:?}")
            } else if choices(schema).is_empty() {
                noun(value).to_owned()
            } else {
                "a text that the field does not take".to_owned()
            }
        }
        Value::Null | Value::Array(_) | Value::Object(_) => noun(value).to_owned(),
    }
}

fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn choices(schema: &JSONSchemaProps) -> Vec<&str> {
    let values = schema.enum_.iter().flatten();
    values.filter_map(|value| value.0.as_str()).collect()
}

/// Suggests `{name: X}` for the text X at a field that takes the name of an object.
fn reference(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    let fields = schema.properties.as_ref()?;
    let text = value.as_str()?;
    // A reference to a Secret has a key too; the text may be a token, so it is not repeated.
    let names_object = fields.contains_key("name")
        && fields
            .keys()
            .all(|field| field == "name" || field == "namespace");
    let is_label = (1..=QUOTED).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (names_object && is_label).then(|| format!("{{name: {text}}}"))
}

/// Describes the values that the field accepts, as an instruction.
fn wanted(schema: &JSONSchemaProps, value: Option<&Value>) -> String {
    let values = values_of(schema, value);
    match (schema.type_.as_deref(), value) {
        (Some("integer" | "number"), Some(Value::String(_))) => format!("{values}, without quotes"),
        _ => values,
    }
}

fn values_of(schema: &JSONSchemaProps, value: Option<&Value>) -> String {
    match &choices(schema)[..] {
        [] => {}
        [one] => return (*one).to_owned(),
        [first, second] => return format!("{first} or {second}"),
        all => return format!("one of {}", all.join(", ")),
    }
    match schema.type_.as_deref() {
        Some("integer" | "number") => match (schema.minimum, schema.maximum) {
            (Some(low), Some(high)) => format!("a whole number from {low} to {high}"),
            (Some(low), None) => format!("a whole number of at least {low}"),
            (None, _) => "a whole number".to_owned(),
        },
        Some("boolean") => "true or false, without quotes".to_owned(),
        Some("string") => {
            let rules = schema.x_kubernetes_validations.iter().flatten();
            let rule = rules.filter_map(|rule| rule.message.as_deref()).next();
            let in_quotes = matches!(value, Some(Value::Number(_) | Value::Bool(_)));
            // Every rule about a text begins with the instruction.
            let rule = rule.map(|rule| rule.strip_prefix("write ").unwrap_or(rule));
            match (rule, in_quotes) {
                (Some(rule), true) => format!("a text, in quotes: {rule}"),
                (Some(rule), false) => rule.to_owned(),
                (None, true) => "a text, in quotes".to_owned(),
                (None, false) => "a text".to_owned(),
            }
        }
        Some("array") => "a list, each entry of it after a dash".to_owned(),
        _ => {
            let fields = schema.properties.iter().flatten();
            let required = schema.required.as_deref().unwrap_or_default();
            // A field whose rule is false is there to be refused.
            let is_refused = |field: &JSONSchemaProps| {
                let mut rules = field.x_kubernetes_validations.iter().flatten();
                rules.any(|rule| rule.rule == "false")
            };
            let names: Vec<&str> = fields
                .filter(|(_, field)| !is_refused(field))
                .map(|(name, _)| name.as_str())
                .filter(|name| required.is_empty() || required.iter().any(|it| it == name))
                .take(LISTED)
                .collect();
            if names.is_empty() {
                "fields, such as {name: value}".to_owned()
            } else if required.is_empty() {
                format!("fields, such as {}", names.join(", "))
            } else {
                format!("{{{}: …}}", names.join(": …, "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;

    use super::*;
    use crate::{Agent, ModelProvider, Surface, ToolGrant};

    #[track_caller]
    fn check<T: DeserializeOwned + fmt::Debug>(kind: &str, spec: &str, expected: &str) {
        let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{spec}}}"#);
        let error = decode::<T>(kind, &text).expect_err(spec);
        assert_eq!(error.to_string(), expected, "{spec}");
    }

    #[test]
    fn known_fields_lists_the_siblings_of_a_field() {
        assert_eq!(
            known_fields("ToolGrant", "spec.tools[0].alow"),
            [
                "allow",
                "arguments",
                "descriptorDigest",
                "enforcement",
                "rate",
                "surface",
                "when"
            ]
        );
        assert_eq!(
            known_fields("ToolGrant", "spec.tools[0].surface.nam"),
            ["name", "namespace"]
        );
        for (kind, path) in [
            ("ToolGrant", "spec"),
            ("ToolGrant", "spec.tools[0][1].x"),
            ("ToolGrant", "spec.nothing.x"),
            ("Service", "spec.prots"),
        ] {
            assert_eq!(known_fields(kind, path), [""; 0], "{kind} {path}");
        }
    }

    #[test]
    fn a_decode_error_names_the_field_and_the_fix() {
        check::<Surface>(
            "Surface",
            r#"{"service":{"name":"reed","port":"4000"}}"#,
            r#"spec.service.port: is the text "4000": write a whole number from 1 to 65535, without quotes"#,
        );
        check::<Surface>(
            "Surface",
            r#"{"service":{"name":"reed","port":70000}}"#,
            "spec.service.port: is the number 70000: write a whole number from 1 to 65535",
        );
        check::<Surface>(
            "Surface",
            r#"{"service":{"port":80}}"#,
            "spec.service.name: is missing: write the name of an object: lower-case letters, digits and '-', such as trading-api",
        );
        check::<Surface>(
            "Surface",
            r#"{"url":"https://reed","tiers":{"swim":"readonly"}}"#,
            r#"spec.tiers.swim: is the text "readonly": write one of ReadOnly, Workspace, System, Elevated"#,
        );
        check::<ToolGrant>(
            "ToolGrant",
            r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"allow":["*"]},{"surface":"trading-api","allow":["*"]}]}"#,
            "spec.tools[1].surface: is a text: write {name: trading-api}",
        );
        check::<ToolGrant>(
            "ToolGrant",
            r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"alow":["swim"]}]}"#,
            "spec.tools[0].allow: is missing, and alow beside it is not a field: did you mean allow?",
        );
        check::<ToolGrant>(
            "ToolGrant",
            r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"names":["swim"]}]}"#,
            "spec.tools[0].allow: is missing: write a list, each entry of it after a dash",
        );
        check::<ToolGrant>(
            "ToolGrant",
            r#"{"agents":"otter"}"#,
            "spec.agents: is a text: write a list, each entry of it after a dash",
        );
        check::<Agent>(
            "Agent",
            r#"{"mode":"native"}"#,
            r#"spec.mode: is the text "native": write Mediated or Native"#,
        );
        check::<Agent>(
            "Agent",
            r#"{"native":"yes"}"#,
            "spec.native: is a text: write true or false, without quotes",
        );
        check::<Agent>(
            "Agent",
            r#"{"policy":{"toolTimeout":30}}"#,
            "spec.policy.toolTimeout: is the number 30: write a text, in quotes: whole numbers with ms, s, m or h, such as 30s or 1m30s, between 1ms and 24h",
        );
        check::<Agent>(
            "Agent",
            r#"{"mode":"Telepathic"}"#,
            "spec.mode: is a text that the field does not take: write Mediated or Native",
        );
        check::<Agent>(
            "Agent",
            r#"{"mode":7}"#,
            "spec.mode: is the number 7: write Mediated or Native",
        );
        check::<Agent>(
            "Agent",
            "[]",
            "spec: is a list: write fields, such as budgets, context, egress, extraEgress, identity, mode, models, native",
        );
        check::<ToolGrant>(
            "ToolGrant",
            r#"{"agents":["otter"],"tools":[{"surface":{"name":"desk"},"allow":["trade"],"arguments":{"pin":"A-17"}}]}"#,
            "spec.tools[0].arguments.pin: is a text: write fields, such as {name: value}",
        );
        let missing = decode::<Agent>("Agent", r#"{"metadata":{"name":"otter"}}"#);
        assert_eq!(missing.expect_err("no spec").field, "spec");
    }

    #[test]
    fn an_error_in_a_part_has_a_path_relative_to_it() {
        #[derive(Debug, serde::Deserialize)]
        struct Part {
            #[serde(rename = "description")]
            _description: Option<String>,
        }
        let at = ["spec", "descriptor", "tools", "[]"];
        let check = |text: &str, expected: &str| {
            let error = decode_part::<Part>("Surface", &at, text).expect_err(text);
            assert_eq!(error.to_string(), expected);
        };
        check(
            r#"{"description": 7}"#,
            "description: is a number: `kubectl explain surface.spec.descriptor.tools.description --recursive` shows what it takes",
        );
        check(
            r#""fish""#,
            "is a text: `kubectl explain surface.spec.descriptor.tools --recursive` shows what it takes",
        );
    }

    #[test]
    fn an_error_in_a_kind_without_schema_names_the_field() {
        check::<Service>(
            "Service",
            r#"{"ports":[{"port":"eighty"}]}"#,
            "spec.ports[0].port: is a text: `kubectl explain service --recursive` shows what it takes",
        );
    }

    /// A message must not repeat a credential that was written into the wrong field.
    #[test]
    fn a_possible_credential_is_not_quoted() {
        let token = "hunter2-hunter2";
        for spec in [
            format!(r#"{{"endpoints":[],"apiKeys":["{token}"]}}"#),
            format!(r#"{{"endpoints":[],"apiKeys":[{{"name":"a","secretKeyRef":"{token}"}}]}}"#),
            format!(r#"{{"endpoints":[],"auth":"{token}"}}"#),
            format!(r#"{{"endpoints":"{token}"}}"#),
        ] {
            let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{spec}}}"#);
            let error = decode::<ModelProvider>("ModelProvider", &text).expect_err(&spec);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn long_or_hidden_keys_are_cut_in_messages() {
        let key = format!("swim\u{202e}{}", "x".repeat(100_000));
        let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{{"tiers":{{"{key}":7}}}}}}"#);
        let error = decode::<Surface>("Surface", &text).expect_err("a tier is a text");
        assert!(error.field.len() <= FIELD && error.message.len() <= MESSAGE);
        assert!(!error.field.contains('\u{202e}') && error.field.starts_with("spec.tiers.swimx"));
    }
}
