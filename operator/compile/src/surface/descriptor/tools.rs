//! Tools of a descriptor: their schemas, tiers, and whether they are called over HTTP or MCP.
//!
//! Not here: the HTTP mapping, and the tools that an agent gets.
//!
//! Invariant: a tool without hints is never treated as harmless.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_bounds::arguments::{self, Arguments};
use toolcrib_bounds::cut;
use toolcrib_bounds::schema::keywords::{UnknownKeyword, keywords, unknown_keywords};
use toolcrib_crds::decode_part;
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_manifest::{HttpMethod, RawJson, Tier, Tool, Transport};
use toolcrib_mcp::header;

use super::hidden::hidden_name;
use super::http::{HttpCall, http_call};
use super::members::{ByName, Reader, known, members_of, missing};
use crate::Code;
use crate::diagnostics::finding::Finding;
use crate::near::Suggestions;
use crate::surface::schema;

#[derive(Clone, Debug)]
pub(crate) struct DescribedTool {
    /// Path of the tool in the descriptor: `tools[2]`.
    pub field: String,
    pub description: String,
    pub input_schema: RawJson,
    pub other_arguments: OtherArguments,
    /// Schema of structured results, for tools over MCP that declare one. Results of an HTTP
    /// service are not checked.
    pub output_schema: Option<RawJson>,
    pub annotations: Option<RawJson>,
    /// The tier that the annotations give.
    pub tier: Tier,
    /// `None`: the tool goes over MCP.
    pub http: Option<HttpCall>,
}

pub(super) fn read(reader: &mut Reader, written: Option<&RawValue>) -> ByName<DescribedTool> {
    reader.items(written, "tools", Code::InvalidTool, tool)
}

#[derive(Deserialize)]
struct ToolDeclaration {
    #[serde(default)]
    description: Option<String>,
    #[serde(rename = "inputSchema")]
    input_schema: Option<RawJson>,
    #[serde(rename = "outputSchema")]
    output_schema: Option<RawJson>,
    annotations: Option<RawJson>,
    http: Option<BTreeMap<String, Value>>,
}

/// Longest description, in bytes; every request carries the descriptions to the model.
const MAX_DESCRIPTION: usize = 8 * 1024;
/// Limits the unknown members of a schema that are compared with keywords.
const MAX_MISSPELT: usize = 8;
/// Limits the bytes of an argument's name in a message.
const MAX_NAME: usize = 64;

fn tool(raw: &RawValue, at: &str, warnings: &mut Vec<Finding>) -> Result<DescribedTool, Finding> {
    let place = ["spec", "descriptor", "tools", "[]"];
    let declaration: ToolDeclaration = decode_part("Surface", &place, raw.get())
        .map_err(|error| Finding::new(error.field, Code::InvalidTool, error.message))?;
    let description = declaration.description.unwrap_or_default();
    if description.len() > MAX_DESCRIPTION {
        return Err(Finding::new(
            "description",
            Code::InvalidTool,
            format!("is longer than {MAX_DESCRIPTION} bytes: shorten it"),
        ));
    }
    let input_schema = declaration.input_schema.ok_or_else(|| {
        let cure = "write {\"type\": \"object\"} for a tool without arguments";
        let keys = members_of(Some(raw));
        let message = missing("inputSchema", keys.keys(), &known(at), cure);
        Finding::new("inputSchema", Code::InvalidSchema, message)
    })?;
    for (field, schema) in [
        ("inputSchema", Some(&input_schema)),
        ("outputSchema", declaration.output_schema.as_ref()),
    ] {
        let name = schema.and_then(|schema| hidden_name(schema.get()));
        if let Some(character) = name {
            return Err(Finding::new(
                field,
                Code::InvalidSchema,
                format!(
                    "has a name with the character U+{:04X}, which nobody sees: write the name without it",
                    u32::from(character)
                ),
            ));
        }
    }
    let schema =
        schema::check(input_schema.get()).map_err(|finding| finding.within("inputSchema"))?;
    warnings.extend(misspelt_keywords(&schema));
    if let Some(found) = arguments::ambiguity(&schema, CLAW_ID) {
        let message = format!(
            "declares {:?}, which services could read as {:?}: rename or remove one",
            found.name, found.other
        );
        let field = schema::field(&found.at);
        return Err(Finding::new(field, Code::InvalidSchema, message).within("inputSchema"));
    }
    // The mediator repeats marked arguments of an MCP tool in headers.
    if declaration.http.is_none() && !header::is_marked_well(input_schema.get()) {
        return Err(Finding::new(
            "inputSchema",
            Code::InvalidSchema,
            "marks an argument with an x-mcp-header that is not a header name, is there twice, or is not of type string, integer or boolean: correct the x-mcp-header, or remove it",
        ));
    }
    let output_schema = declaration
        .output_schema
        .filter(|_| declaration.http.is_none());
    if let Some(output) = &output_schema {
        schema::check(output.get()).map_err(|finding| finding.within("outputSchema"))?;
    }
    let tier = tier(declaration.annotations.as_ref(), warnings)?;
    let http = declaration
        .http
        .map(|http| http_call(&http, &schema, warnings))
        .transpose()
        .map_err(|finding| finding.within("http"))?;
    let other_arguments = OtherArguments::of(http.is_some(), &schema);
    if let Some(finding) = http
        .as_ref()
        .and_then(|http| without_arguments(http, &schema))
    {
        warnings.push(finding);
    }
    if http.is_some() {
        warnings.extend(required_not_described(&schema));
    }
    Ok(DescribedTool {
        field: at.to_owned(),
        description,
        input_schema,
        other_arguments,
        output_schema,
        annotations: declaration.annotations,
        tier,
        http,
    })
}

impl DescribedTool {
    /// `None`: the tool goes over MCP.
    pub(crate) fn method(&self) -> Option<HttpMethod> {
        self.http.as_ref().map(|http| http.method)
    }
}

/// How the mediator treats an argument that a tool's schema does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherArguments {
    /// The call is refused.
    Refused,
    /// The argument is accepted if the schema's own keywords accept it.
    BySchema,
    /// The MCP server decides.
    ByServer,
}

impl OtherArguments {
    fn of(over_http: bool, schema: &Value) -> Self {
        match (over_http, Arguments::declared(schema).open) {
            (false, _) => Self::ByServer,
            (true, true) => Self::BySchema,
            (true, false) => Self::Refused,
        }
    }

    /// Decides for a compiled tool, whose schema was checked before.
    pub(crate) fn of_compiled(tool: &Tool) -> Self {
        let schema = serde_json::from_str(tool.input_schema.get()).unwrap_or(Value::Null);
        Self::of(tool.execution.transport == Transport::Http, &schema)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::BySchema => "accepted as the schema says",
            Self::ByServer => "checked by the server",
        }
    }
}

/// Warns of a tool that sends a body and declares no arguments: nothing could fill the body.
fn without_arguments(http: &HttpCall, schema: &Value) -> Option<Finding> {
    let declared = Arguments::declared(schema);
    let has_body = match http.method {
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch => true,
        HttpMethod::Get | HttpMethod::Head | HttpMethod::Delete => http.body.is_some(),
    };
    let silent = schema.get("additionalProperties").is_none();
    let declares = !declared.names.is_empty() || !declared.patterns.is_empty() || declared.open;
    (has_body && silent && !declares).then(|| {
        Finding::new(
            "inputSchema",
            Code::NoArgumentsDeclared,
            format!(
                "declares no arguments, so a call with any is refused and {} is sent an empty \
                 object: declare them under properties, or write additionalProperties: true for \
                 any and false for none",
                http.path
            ),
        )
    })
}

/// Warns of members of the schema that are probably misspelt keywords: a validator ignores them. Other
/// unknown members are usually notes for other programs, so they get no warning.
fn misspelt_keywords(schema: &Value) -> Vec<Finding> {
    let mut suggestions = Suggestions::default();
    let unknown = unknown_keywords(schema, MAX_MISSPELT).into_iter();
    let misspelt = unknown.filter_map(|UnknownKeyword { pointer, name }| {
        let meant = suggestions.nearest(&name, keywords())?;
        let message =
            format!("is not a keyword of JSON Schema, and is ignored: did you mean {meant}?");
        let field = schema::field(&pointer);
        Some(Finding::new(field, Code::UnknownField, message).within("inputSchema"))
    });
    misspelt.collect()
}

/// Warns of a tool that needs an argument without saying what it is.
fn required_not_described(schema: &Value) -> Option<Finding> {
    let mut others = schema.as_object()?.clone();
    let required = others.remove("required")?;
    let declared = Arguments::declared(&Value::Object(others));
    if declared.open || !declared.patterns.is_empty() {
        return None;
    }
    let mut names = required.as_array()?.iter().filter_map(Value::as_str);
    let name = names.find(|name| !declared.names.contains(*name))?;
    let known = declared.names.iter().map(String::as_str);
    let cure = match Suggestions::default().nearest(name, known) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "declare it under properties".to_owned(),
    };
    let name = cut(name, MAX_NAME);
    Some(Finding::new(
        "inputSchema.required",
        Code::RequiredNotDescribed,
        format!("names {name}, which properties do not have, so any value of it passes: {cure}"),
    ))
}

/// Annotations that decide a tier, each in both spellings.
const READ_ONLY: [&str; 2] = ["readOnly", "readOnlyHint"];
const DESTRUCTIVE: [&str; 2] = ["destructive", "destructiveHint"];
const CONFIRMATION: [&str; 2] = ["confirmationRequired", "confirmationRequiredHint"];
/// Other annotations that MCP or the mediator know.
const OTHER_ANNOTATIONS: [&str; 7] = [
    "parallel_safe",
    "polling",
    "title",
    "idempotent",
    "idempotentHint",
    "openWorld",
    "openWorldHint",
];

/// Decides the tier from the annotations; on conflict the highest tier wins. An unknown annotation
/// decides nothing and gets a finding: a misspelt `destructive` would lower a tier in silence.
fn tier(annotations: Option<&RawJson>, warnings: &mut Vec<Finding>) -> Result<Tier, Finding> {
    let Some(annotations) = annotations else {
        return Ok(Tier::System);
    };
    let hints: BTreeMap<String, Value> = serde_json::from_str(annotations.get()).map_err(|_| {
        Finding::new(
            "annotations",
            Code::InvalidTool,
            "must be an object: write {readOnly: true}, for example",
        )
    })?;
    let deciding = [READ_ONLY, DESTRUCTIVE, CONFIRMATION].concat();
    let known_hints = || deciding.iter().chain(&OTHER_ANNOTATIONS).copied();
    let mut suggestions = Suggestions::default();
    for (name, value) in &hints {
        if deciding.contains(&name.as_str()) {
            if !value.is_boolean() && !value.is_null() {
                return Err(Finding::new(
                    format!("annotations.{name}"),
                    Code::InvalidTool,
                    "must be true or false, without quotes, since it decides the tool's tier",
                ));
            }
        } else if !known_hints().any(|known| known == name)
            && !name.contains('/')
            && !name.starts_with("x-")
        {
            warnings.push(Finding::new(
                format!("annotations.{name}"),
                Code::UnknownField,
                format!(
                    "is not known, and decides no tier: {}",
                    match suggestions.nearest(name, known_hints()) {
                        Some(meant) => format!("did you mean {meant}?"),
                        None => "correct the name, or begin it with x-".to_owned(),
                    }
                ),
            ));
        }
    }
    let says = |names: [&str; 2], wanted: bool| {
        names
            .iter()
            .any(|name| hints.get(*name) == Some(&Value::Bool(wanted)))
    };
    Ok(if says(DESTRUCTIVE, true) || says(CONFIRMATION, true) {
        Tier::Elevated
    } else if says(READ_ONLY, true) && !says(READ_ONLY, false) {
        Tier::ReadOnly
    } else {
        Tier::System
    })
}
