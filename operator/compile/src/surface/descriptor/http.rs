//! The HTTP mapping of a tool.
//!
//! Not here: making the call.
//!
//! Invariant: no mapping sets a header or parameter that decides identity or framing. The only header
//! that it may name gets a value of the mediator's.

use std::collections::BTreeMap;

use serde_json::Value;
use toolcrib_bounds::{cut, headers};
use toolcrib_manifest::{BodyKind, HttpMethod};

use super::members::missing;
use crate::Code;
use crate::diagnostics::finding::Finding;
use crate::names;
use crate::near::Suggestions;
use crate::surface::template;

#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    pub method: HttpMethod,
    pub path: String,
    pub body: Option<BodyKind>,
    pub body_key: Option<String>,
    /// The header by which the service recognizes a repeated call.
    pub idempotency_header: Option<String>,
}

/// The mapping as written: members by name.
type Http = BTreeMap<String, Value>;

/// The keys of a mapping.
const KEYS: [&str; 5] = ["method", "path", "body", "body_key", "idempotencyHeader"];

/// Longest name of a header, as of `Surface.spec.auth.headerName`.
const MAX_HEADER: usize = 128;

/// Reads a mapping. Fields of its error are relative to `http`, those of `warnings` to the tool.
pub(super) fn http_call(
    http: &Http,
    schema: &Value,
    warnings: &mut Vec<Finding>,
) -> Result<HttpCall, Finding> {
    refuse_headers(http, warnings)?;
    let method = method(http)?;
    let path = path(http, schema)?;
    warnings.extend(other_placeholder(&path));
    let body = body(http)?;
    let body_key = body_key(http, method, body)?;
    let idempotency_header = idempotency_header(http)?;
    Ok(HttpCall {
        method,
        path,
        body,
        body_key,
        idempotency_header,
    })
}

/// Refuses headers, and warns of every other member that is not part of a mapping: it is ignored.
fn refuse_headers(http: &Http, warnings: &mut Vec<Finding>) -> Result<(), Finding> {
    let mut suggestions = Suggestions::default();
    for key in http.keys() {
        match key.as_str() {
            key if KEYS.contains(&key) => {}
            key if ["header", "cookie", "host"]
                .iter()
                .any(|word| key.to_ascii_lowercase().contains(word)) =>
            {
                return Err(Finding::new(
                    key,
                    Code::HeaderMappingRefused,
                    format!(
                        "is refused: headers are chosen by the mediator alone; credentials belong to the Surface's auth: {}",
                        match suggestions.nearest(key, KEYS) {
                            Some(meant) => format!("did you mean {meant}?"),
                            None => "remove it".to_owned(),
                        }
                    ),
                ));
            }
            key => warnings.push(Finding::new(
                format!("http.{key}"),
                Code::UnknownField,
                format!(
                    "is not known here and means nothing: {}",
                    match suggestions.nearest(key, KEYS) {
                        Some(meant) => format!("did you mean {meant}?"),
                        None => "correct the name, or remove it".to_owned(),
                    }
                ),
            )),
        }
    }
    Ok(())
}

fn text<'a>(http: &'a Http, key: &str) -> Result<Option<&'a str>, Finding> {
    match http.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Finding::new(
            key,
            Code::InvalidTool,
            "must be text: write it in quotes",
        )),
    }
}

fn method(http: &Http) -> Result<HttpMethod, Finding> {
    Ok(match text(http, "method")? {
        Some("GET") => HttpMethod::Get,
        Some("HEAD") => HttpMethod::Head,
        Some("POST") => HttpMethod::Post,
        Some("PUT") => HttpMethod::Put,
        Some("PATCH") => HttpMethod::Patch,
        Some("DELETE") => HttpMethod::Delete,
        other => {
            let cure = "write GET, HEAD, POST, PUT, PATCH or DELETE";
            let message = match other {
                Some(other) => format!("is {other:?}: {cure}"),
                None => missing("method", http.keys(), &KEYS, cure),
            };
            return Err(Finding::new("method", Code::InvalidTool, message));
        }
    })
}

fn path(http: &Http, schema: &Value) -> Result<String, Finding> {
    let path = text(http, "path")?
        .ok_or_else(|| {
            let cure = "write the path on the service, such as /quotes/{id}";
            let message = missing("path", http.keys(), &KEYS, cure);
            Finding::new("path", Code::InvalidTool, message)
        })?
        .to_owned();
    let placeholders = template::placeholders(&path)
        .map_err(|message| Finding::new("path", Code::InvalidTool, message))?;
    for name in &placeholders {
        refuse_header_like("path", name)?;
        let declared = schema
            .pointer("/properties")
            .is_some_and(|properties| properties.get(name.as_str()).is_some());
        if name != names::CLAW_ID && !declared {
            return Err(Finding::new(
                "path",
                Code::InvalidTool,
                format!(
                    "has the placeholder {{{name}}}, which is not a property of inputSchema: declare it there"
                ),
            ));
        }
    }
    Ok(path)
}

/// Warns of `:id`, which is a placeholder elsewhere.
fn other_placeholder(path: &str) -> Option<Finding> {
    let name = path.split('/').find_map(|part| part.strip_prefix(':'))?;
    let message =
        format!(":{name} is sent as it is written: for the argument {name} write {{{name}}}");
    Some(Finding::new("http.path", Code::PathSentAsWritten, message))
}

fn body(http: &Http) -> Result<Option<BodyKind>, Finding> {
    Ok(match text(http, "body")? {
        None => None,
        Some("json") => Some(BodyKind::Json),
        Some(other) => {
            return Err(Finding::new(
                "body",
                Code::InvalidTool,
                format!("is {other:?}: write json, or leave body out"),
            ));
        }
    })
}

/// Reads the name of the member that wraps the body.
fn body_key(
    http: &Http,
    method: HttpMethod,
    body: Option<BodyKind>,
) -> Result<Option<String>, Finding> {
    let body_key = text(http, "body_key")?.map(str::to_owned);
    if let Some(key) = &body_key {
        refuse_header_like("body_key", key)?;
        let bodiless = matches!(
            method,
            HttpMethod::Get | HttpMethod::Head | HttpMethod::Delete
        );
        if key.is_empty() || (bodiless && body.is_none()) {
            return Err(Finding::new(
                "body_key",
                Code::InvalidTool,
                "wraps a JSON body: set body: json with it, and a name that is not empty",
            ));
        }
    }
    Ok(body_key)
}

fn idempotency_header(http: &Http) -> Result<Option<String>, Finding> {
    const KEY: &str = "idempotencyHeader";
    let Some(name) = text(http, KEY)? else {
        return Ok(None);
    };
    if name.len() > MAX_HEADER || !headers::may_be_chosen(name) {
        return Err(Finding::new(
            KEY,
            Code::HeaderMappingRefused,
            format!(
                "{:?} is refused: name a header that decides no framing, identity or authentication, such as Idempotency-Key",
                cut(name, MAX_HEADER)
            ),
        ));
    }
    Ok(Some(name.to_owned()))
}

/// Names of headers that are also common names of arguments. They are allowed, since a mapping
/// sets no header.
const ARGUMENTS: [&str; 12] = [
    "accept-encoding",
    "api-key",
    "content-encoding",
    "content-type",
    "expect",
    "forwarded",
    "host",
    "origin",
    "referer",
    "trailer",
    "upgrade",
    "via",
];

/// Refuses names that decide identity or framing when they are names of headers.
fn refuse_header_like(field: &str, name: &str) -> Result<(), Finding> {
    let header = name.to_ascii_lowercase().replace('_', "-");
    if headers::reserved(&header).is_some() && !ARGUMENTS.contains(&header.as_str()) {
        return Err(Finding::new(
            field,
            Code::HeaderMappingRefused,
            format!("maps {name:?}, a name that decides identity or framing: rename it"),
        ));
    }
    Ok(())
}
