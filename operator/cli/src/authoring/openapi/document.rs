//! Reads an OpenAPI document of any version into one shape.
//!
//! Swagger 2.0 has other positions: schemas under `definitions`, the body among the parameters, a
//! host instead of servers. They are converted here, so later steps do not know of Swagger.

use crate::authoring::{SHOWN, kubernetes_object};
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Longest chain of references.
const MAX_HOPS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Swagger2,
    /// Has `nullable`, and boolean `exclusiveMinimum`.
    OpenApi30,
    /// Its schemas are JSON Schema.
    OpenApi31,
}

#[derive(Debug)]
pub struct Document {
    pub version: Version,
    pub root: Value,
}

/// Parses JSON or YAML. `Err`: the fault in it.
pub fn parse(text: &str) -> Result<Document, String> {
    let root: Value = match serde_json::from_str(text) {
        Ok(root) => root,
        Err(json) if text.trim_start().starts_with('{') => {
            return Err(format!("cannot be read as JSON: {json}: correct it there"));
        }
        Err(_) => {
            toolcrib_compile::yaml::check_nesting(text)?;
            serde_yaml::from_str(text).map_err(|error| {
                let cure = toolcrib_compile::yaml::CURE;
                format!("cannot be read as YAML: {error}; {cure}")
            })?
        }
    };
    let version = |key: &str| root.get(key).and_then(Value::as_str);
    let version = match (version("openapi"), version("swagger")) {
        (Some(version), _) if version.starts_with("3.0") => Version::OpenApi30,
        (Some(version), _) if version.starts_with("3.") => Version::OpenApi31,
        (None, Some("2.0")) => Version::Swagger2,
        _ => return Err(format!("is no OpenAPI document: {}", seems(&root))),
    };
    Ok(Document { version, root })
}

/// Says what a document seems to be, and what to give instead.
fn seems(root: &Value) -> String {
    let text = |key: &str| root.get(key).and_then(Value::as_str);
    let kind = text("kind");
    if let Some(object) = kubernetes_object(kind, text("apiVersion")) {
        let cure = match kind {
            Some("Surface") => "give the document that it was made from, or apply it as it is",
            _ => "give the document that the service itself publishes, such as its /openapi.json",
        };
        return format!("it seems to be a Kubernetes object, {object}: {cure}");
    }
    if let Some(version) = text("openapi").or(text("swagger")) {
        let version = toolcrib_bounds::cut(version, SHOWN);
        return format!("its version is {version}: give one of openapi: 3.x, or swagger: \"2.0\"");
    }
    let what = if root.get("services").is_some() {
        "it seems to be a pod file, which `kubectl toolcrib import` reads"
    } else if root.get("tools").is_some() {
        "it seems to be a descriptor, which belongs in spec.descriptor of a Surface"
    } else if root.get("item").is_some() && root.get("info").is_some() {
        "it seems to be a Postman collection, which can be converted to OpenAPI"
    } else if root.is_object() {
        "it has no field openapi or swagger"
    } else {
        "it is a plain text or a list, such as a web page or a log"
    };
    format!("{what}: give a document with openapi: 3.x, or swagger: \"2.0\"")
}

/// An operation with its path and method.
#[derive(Debug)]
pub struct Operation<'a> {
    /// The method in lower case.
    pub method: &'a str,
    pub path: &'a str,
    pub value: &'a Value,
    /// Parameters with references resolved: those of the path first, without the overridden ones.
    pub parameters: Vec<Value>,
    /// Whether the operation or its path has servers of its own.
    pub elsewhere: bool,
}

impl Operation<'_> {
    /// `GET /fish/{id}`, for messages.
    pub fn place(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }

    pub fn text(&self, field: &str) -> &str {
        self.value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let tags = self.value.get("tags").and_then(Value::as_array);
        tags.into_iter().flatten().filter_map(Value::as_str)
    }
}

/// Methods of a path item, in reading order.
const METHODS: [&str; 8] = [
    "get", "head", "post", "put", "patch", "delete", "options", "trace",
];

impl Document {
    /// Returns all operations by path.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let mut operations = Vec::new();
        for (path, item) in paths.into_iter().flatten() {
            let item = self.followed(item).unwrap_or(item);
            for method in METHODS {
                let Some(value) = item.get(method).filter(|value| value.is_object()) else {
                    continue;
                };
                operations.push(Operation {
                    method,
                    path,
                    value,
                    parameters: self.parameters(item, value),
                    elsewhere: item.get("servers").is_some() || value.get("servers").is_some(),
                });
            }
        }
        operations
    }

    /// Returns the paths whose item refers to nothing, each with the reference.
    pub fn dangling_paths(&self) -> impl Iterator<Item = (&str, &str)> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let paths = paths.into_iter().flatten();
        paths.filter_map(|(path, item)| Some((path.as_str(), self.dangling(item)?)))
    }

    /// Returns the reference of a value, if it leads nowhere or in a circle.
    pub fn dangling<'v>(&self, value: &'v Value) -> Option<&'v str> {
        let reference = value.get("$ref").and_then(Value::as_str)?;
        self.followed(value).is_none().then_some(reference)
    }

    fn parameters(&self, item: &Value, operation: &Value) -> Vec<Value> {
        let mut parameters: BTreeMap<(String, String), (usize, Value)> = BTreeMap::new();
        let of = |value: &Value| -> Vec<Value> {
            let list = value.get("parameters").and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .map(|parameter| self.followed(parameter).unwrap_or(parameter).clone())
                .collect()
        };
        let all = of(item).into_iter().chain(of(operation));
        for (index, parameter) in all.enumerate() {
            let text = |key: &str| parameter[key].as_str().unwrap_or_default().to_owned();
            let key = (text("in"), text("name"));
            // An operation's parameter replaces its path's.
            let at = parameters.get(&key).map_or(index, |(at, _)| *at);
            parameters.insert(key, (at, parameter));
        }
        let mut ordered: Vec<(usize, Value)> = parameters.into_values().collect();
        ordered.sort_by_key(|(index, _)| *index);
        ordered
            .into_iter()
            .map(|(_, parameter)| parameter)
            .collect()
    }

    /// Follows a local reference; `None` if it leads nowhere or in a circle.
    pub fn followed<'a>(&'a self, value: &'a Value) -> Option<&'a Value> {
        let mut value = value;
        for _ in 0..MAX_HOPS {
            match value.get("$ref").and_then(Value::as_str) {
                None => return Some(value),
                Some(target) => value = self.at(target)?,
            }
        }
        None
    }

    pub fn at(&self, reference: &str) -> Option<&Value> {
        let pointer = reference.strip_prefix('#')?;
        let decoded = toolcrib_bounds::json::pointer::decoded(pointer)?;
        self.root.pointer(&decoded)
    }

    /// Returns a parameter's schema: its own, that of its JSON content, or (Swagger) the
    /// parameter.
    pub fn schema_of<'a>(&self, parameter: &'a Value) -> Option<std::borrow::Cow<'a, Value>> {
        use std::borrow::Cow;
        match self.version {
            Version::Swagger2 => {
                let mut schema = parameter.as_object()?.clone();
                for key in [
                    "name",
                    "in",
                    "required",
                    "collectionFormat",
                    "allowEmptyValue",
                ] {
                    schema.remove(key);
                }
                Some(Cow::Owned(Value::Object(schema)))
            }
            Version::OpenApi30 | Version::OpenApi31 => parameter.get("schema").map(Cow::Borrowed),
        }
    }

    /// Returns the request's body: content types, and the schema of the JSON one.
    pub fn body(&self, operation: &Operation<'_>) -> Option<Body> {
        match self.version {
            Version::Swagger2 => {
                let body = operation
                    .parameters
                    .iter()
                    .find(|parameter| parameter["in"] == "body");
                let form = operation
                    .parameters
                    .iter()
                    .any(|parameter| parameter["in"] == "formData");
                if form {
                    return Some(Body {
                        required: true,
                        schema: None,
                        types: vec!["a form".to_owned()],
                    });
                }
                body.map(|body| Body {
                    required: body["required"] == true,
                    schema: Some(body.get("schema").cloned().unwrap_or_else(|| json!({}))),
                    types: Vec::new(),
                })
            }
            Version::OpenApi30 | Version::OpenApi31 => {
                let body = self.followed(operation.value.get("requestBody")?)?;
                let content = body.get("content").and_then(Value::as_object);
                let empty = Map::new();
                let content = content.unwrap_or(&empty);
                let json = content.iter().find(|(kind, _)| is_json(kind));
                Some(Body {
                    required: body["required"] == true,
                    schema: json.map(|(_, media)| {
                        media.get("schema").cloned().unwrap_or_else(|| json!({}))
                    }),
                    types: content.keys().cloned().collect(),
                })
            }
        }
    }
}

#[derive(Debug)]
pub struct Body {
    pub required: bool,
    /// `None`: the body accepts no JSON.
    pub schema: Option<Value>,
    pub types: Vec<String>,
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind == "application/json" || kind.ends_with("+json") || kind == "*/*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeply_nested_brackets_are_refused() {
        let error = parse(&format!("a: {}", "[".repeat(100_000))).expect_err("too deep");
        assert!(error.contains("more than 128 brackets"), "{error}");
    }
}
