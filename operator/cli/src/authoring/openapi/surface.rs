//! Converts a whole document to a Surface: its operations, address and credential.

use super::options::{Address, Choice, SurfaceOptions};
use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcrib_compile::{Inputs, Settings, Severity, check_surface, load};

use super::credential::{Credential, credential};
use super::document::{Document, Operation, Version};
use super::names::{Names, cut, snake_case};
use super::schema::cleaned;
use super::{Remark, Remarks, operation};

/// The generated Surface and its parts.
#[derive(Debug)]
pub struct GeneratedSurface {
    pub descriptor: Value,
    pub surface: Value,
    /// The Secret that the Surface's auth names, without its value.
    pub secret: Option<Value>,
    pub remarks: Vec<Remark>,
}

/// Converts the document. `Err`: why no Surface is possible.
pub fn describe(document: &Document, wanted: &SurfaceOptions) -> Result<GeneratedSurface, String> {
    let mut remarks = Remarks::default();
    let (address, prefix) = address(document, wanted, &mut remarks)?;
    for (path, reference) in document.dangling_paths() {
        remarks.left_out(path, format!("{reference:?} leads nowhere"));
    }
    let operations: Vec<Operation<'_>> = document
        .operations()
        .into_iter()
        .filter(|operation| wanted.choice.has(operation))
        .collect();
    if operations.is_empty() {
        let is_chosen = wanted.choice != Choice::default();
        return Err(match document.root.get("paths") {
            _ if is_chosen => "no operation is left: look at --include and --exclude",
            None => "has no paths: name the document that lists the service's operations",
            Some(paths) if !paths.is_object() => {
                "paths is not an object: write `paths: {/fish: {get: {…}}}`"
            }
            Some(_) => {
                "has no operation: below each path, write one for get, post or another method"
            }
        }
        .to_owned());
    }
    let mut tools: Vec<(String, Value)> = Vec::new();
    let mut made: Vec<&Operation<'_>> = Vec::new();
    let mut taken = Names::default();
    for operation in &operations {
        let place = operation.place();
        let mut own = Remarks::default();
        match operation::tool(document, operation, &prefix, &mut own) {
            Ok(mut tool) => {
                tool["name"] = tool_name(operation, wanted, &mut taken, &mut own).into();
                remarks.append(own);
                tools.push((place, tool));
                made.push(operation);
            }
            Err(reason) => remarks.left_out(&place, reason),
        }
    }
    let mut credential = credential(document, &made, wanted, &address, &mut remarks);
    let info = document.root.get("info");
    let title = info
        .and_then(|info| info.get("title"))
        .and_then(Value::as_str)
        .unwrap_or(&wanted.name);
    let title = cleaned(title, "", &mut remarks);

    // The compiler decides on each tool.
    let description = loop {
        let description = assembled(wanted, &address, &title, &tools, credential.as_ref());
        let refused = refused(&description.1, wanted);
        if refused.tools.is_empty() && refused.token_endpoint.is_none() {
            break description;
        }
        if let Some(why) = refused.token_endpoint {
            credential = credential.map(|given| given.without_endpoint(&why, &mut remarks));
        }
        for (index, message) in refused.tools.into_iter().rev() {
            let (place, _) = tools.remove(index);
            remarks.left_out(&place, message);
        }
    };
    if let Some(look) = credential.as_ref().and_then(Credential::look) {
        remarks.look("", look);
    }
    if tools.is_empty() {
        let reasons = super::lines(&remarks.0);
        return Err(format!(
            "none of the operations can be a tool: correct these, or choose others\n{}",
            reasons.join("\n")
        ));
    }
    let destructive = tools
        .iter()
        .filter(|(_, tool)| tool["annotations"]["destructive"] == true)
        .count();
    if destructive > 0 {
        remarks.look(
            "",
            format!(
                "{destructive} tools are destructive: their tier is Elevated; spec.tiers lowers it"
            ),
        );
    }
    let (descriptor, surface) = description;
    let secret = credential.map(|credential| credential.secret(wanted, &address));
    Ok(GeneratedSurface {
        descriptor,
        surface,
        secret,
        remarks: remarks.0,
    })
}

impl Choice {
    fn has(&self, operation: &Operation<'_>) -> bool {
        let place = operation.place();
        let fits = |pattern: &String| {
            matches(pattern, operation.text("operationId"))
                || matches(pattern, &place)
                || operation.tags().any(|tag| matches(pattern, tag))
        };
        (self.include.is_empty() || self.include.iter().any(fits)) && !self.exclude.iter().any(fits)
    }
}

/// Whether the text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the address of the tools, and the prefix of their paths.
fn address(
    document: &Document,
    wanted: &SurfaceOptions,
    remarks: &mut Remarks,
) -> Result<(Address, String), String> {
    let server = server(document, remarks);
    let base = url::Url::parse("http://localhost").map_err(|error| error.to_string())?;
    let parsed = server.as_deref().and_then(|server| base.join(server).ok());
    let path = parsed
        .as_ref()
        .map(|url| url.path().trim_end_matches('/').to_owned())
        .unwrap_or_default();
    match &wanted.address {
        Some(Address::Service { .. }) => Ok((wanted.address.clone().ok_or("no address")?, path)),
        // An address that the user gave is complete: its path is the base.
        Some(Address::Url(url)) if url.path().trim_end_matches('/').is_empty() => {
            Ok((Address::Url(url.clone()), path))
        }
        Some(Address::Url(url)) => Ok((Address::Url(url.clone()), String::new())),
        None => {
            let url = parsed
                .filter(|url| url.host_str().is_some_and(|host| host != "localhost"))
                .ok_or(
                    "the document names no server that others reach: give --service NAME:PORT or --url",
                )?;
            Ok((Address::Url(url), String::new()))
        }
    }
}

/// Returns the first server's URL with the defaults of its variables.
fn server(document: &Document, remarks: &mut Remarks) -> Option<String> {
    let root = &document.root;
    let text = |key: &str| root.get(key).and_then(Value::as_str);
    if document.version == Version::Swagger2 {
        let path = text("basePath").unwrap_or_default();
        let scheme = root["schemes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .max()
            .unwrap_or("https");
        return Some(match text("host") {
            Some(host) => format!("{scheme}://{host}{path}"),
            None => path.to_owned(),
        });
    }
    let servers = root.get("servers")?.as_array()?;
    if servers.len() > 1 {
        remarks.look(
            "",
            "the document names several servers: the first one is taken",
        );
    }
    let first = servers.first()?;
    let mut address = first.get("url")?.as_str()?.to_owned();
    for (name, variable) in first
        .get("variables")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let default = variable.get("default").and_then(Value::as_str)?;
        address = address.replace(&format!("{{{name}}}"), default);
    }
    Some(address)
}

fn tool_name(
    operation: &Operation<'_>,
    wanted: &SurfaceOptions,
    taken: &mut Names,
    remarks: &mut Remarks,
) -> String {
    // Models see `<surface>__<tool>`, and providers accept 64 characters.
    let length = 62_usize.saturating_sub(wanted.name.len()).max(16);
    let id = snake_case(operation.text("operationId"));
    let whole = if id.is_empty() {
        snake_case(&format!("{} {}", operation.method, operation.path))
    } else {
        id
    };
    let short = cut(&whole, length);
    if short != whole {
        remarks.changed(
            &operation.place(),
            format!("the name {whole} is cut to {short}"),
        );
    }
    let name = taken.unused(&short, |number| {
        let suffix = format!("_{number}");
        format!("{}{suffix}", cut(&short, length - suffix.len()))
    });
    if name != short {
        remarks.changed(
            &operation.place(),
            format!("is named {name}, since {short} is taken"),
        );
    }
    name
}

/// Returns the descriptor and the Surface.
fn assembled(
    wanted: &SurfaceOptions,
    address: &Address,
    title: &str,
    tools: &[(String, Value)],
    credential: Option<&Credential>,
) -> (Value, Value) {
    let tools: Vec<&Value> = tools.iter().map(|(_, tool)| tool).collect();
    let descriptor = json!({"version": 2, "description": title, "tools": tools});
    let mut spec = json!({"descriptor": descriptor});
    match address {
        Address::Service { name, port } => spec["service"] = json!({"name": name, "port": port}),
        Address::Url(url) => spec["url"] = url.as_str().trim_end_matches('/').into(),
    }
    if let Some(credential) = credential {
        spec["auth"] = credential.auth(wanted);
    }
    let surface = json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {"name": wanted.name, "namespace": wanted.namespace},
        "spec": spec,
    });
    (descriptor, surface)
}

/// The refusals of the compiler.
#[derive(Default)]
struct CompilerRefusals {
    /// The reason for each refused tool, by its index.
    tools: BTreeMap<usize, String>,
    token_endpoint: Option<String>,
}

fn refused(surface: &Value, wanted: &SurfaceOptions) -> CompilerRefusals {
    let loaded = load(
        [(wanted.name.clone(), surface.to_string())],
        Settings::default(),
    );
    let inputs: &Inputs = &loaded.inputs;
    let mut refused = CompilerRefusals::default();
    for report in inputs
        .surfaces()
        .filter_map(|(key, _)| check_surface(inputs, key))
    {
        let errors = report.diagnostics.into_iter();
        for error in errors.filter(|found| found.severity == Severity::Error) {
            let index = error
                .field
                .strip_prefix("spec.descriptor.tools[")
                .and_then(|rest| rest.split_once(']'))
                .and_then(|(index, _)| index.parse().ok());
            if let Some(index) = index {
                let message = format!("{}: {}", error.code, error.message);
                refused.tools.entry(index).or_insert(message);
            } else if error.field == "spec.auth.tokenUrl" {
                refused.token_endpoint = Some(error.message);
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, fits) in [
            ("pets", "pets", true),
            ("pets", "petstore", false),
            ("pet*", "petstore", true),
            ("*/pets/*", "GET /pets/{id}", true),
            ("GET *", "POST /pets", false),
            ("a*b*c", "a1b2c", true),
            ("a*bc", "abd", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    /// 30 schemas that each name the next one twice would have a thousand million parts.
    #[test]
    fn a_body_with_too_many_parts_is_left_out() {
        let reference = |at: usize| json!({"$ref": format!("#/components/schemas/s{at}")});
        let mut schemas: BTreeMap<String, Value> = (0..30)
            .map(|at| {
                let twice = json!({"allOf": [reference(at + 1), reference(at + 1)]});
                (format!("s{at}"), twice)
            })
            .collect();
        schemas.insert("s30".to_owned(), json!({"properties": {"a": {}}}));
        let content = json!({"application/json": {"schema": reference(0)}});
        let document = json!({
            "openapi": "3.0.3", "info": {"title": "reef", "version": "1"},
            "servers": [{"url": "https://reef.test"}],
            "paths": {"/a": {"post": {"requestBody": {"content": content}}}, "/b": {"get": {}}},
            "components": {"schemas": schemas},
        });
        let document = super::super::parse(&document.to_string()).unwrap();
        let wanted = SurfaceOptions {
            name: "reef".to_owned(),
            namespace: "pond".to_owned(),
            address: None,
            choice: Choice::default(),
        };
        let described = describe(&document, &wanted).unwrap();
        let remarks: Vec<String> = described.remarks.iter().map(Remark::to_string).collect();
        assert!(
            remarks.iter().any(|remark| remark.contains("256 parts")),
            "{remarks:?}"
        );
        assert_eq!(described.descriptor["tools"].as_array().unwrap().len(), 1);
    }
}
