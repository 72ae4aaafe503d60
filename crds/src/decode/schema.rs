//! What a definition's schema says about a field, in words for its author.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::definitions;

/// Limits the bytes of a quoted text: the length of a DNS label.
pub(super) const QUOTED: usize = 63;
/// Limits the fields that a message lists.
const LISTED: usize = 8;

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

/// Returns the schema of a type, in the form of a definition's.
pub(super) fn schema_of<T: JsonSchema>() -> JSONSchemaProps {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings.with_transform(StructuralSchemaRewriter);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    serde_json::from_value(schema.to_value())
        .expect("a type's schema has the form of a definition's")
}

pub(super) fn item(list: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match list.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// Returns the schema of each value of a map.
pub(super) fn values(map: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match map.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(values) => Some(values),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

pub(super) fn schemas() -> &'static BTreeMap<String, JSONSchemaProps> {
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
pub(super) fn described(schema: &JSONSchemaProps, value: &Value) -> String {
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

pub(super) fn noun(value: &Value) -> &'static str {
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
pub(super) fn reference(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
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
pub(super) fn wanted(schema: &JSONSchemaProps, value: Option<&Value>) -> String {
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
