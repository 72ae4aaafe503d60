//! Refuses request fields that a more lenient parser behind the mediator could decode as other
//! fields.
//!
//! A gateway in Go or .NET decodes `MODEL` as `model`, and the last one wins; a gateway that uses
//! Protobuf decodes `toolChoice` as `tool_choice`. So a field is refused if such a parser could
//! decode it as a field that the mediator reads, rewrites or refuses, or as another field of the
//! request.
//!
//! Not here: items of the history, which the runner controls entirely, and free JSON (schemas,
//! arguments, headers).

use std::sync::LazyLock;

use toolcrib_bounds::cut;
use toolcrib_bounds::names::{KnownNames, same_without_case};

use crate::DialectError;
use crate::json::{Array, Object};

/// Fields of a request that any dialect reads or rewrites, and fields that make a provider run
/// tools. A test compares them with the dialects' code.
const READ: [&str; 25] = [
    "background",
    "container",
    "conversation",
    "function_call",
    "functions",
    "include",
    "input",
    "instructions",
    "mcp_servers",
    "messages",
    "model",
    "n",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "store",
    "stream",
    "stream_options",
    "system",
    "thread",
    "tool_choice",
    "tool_resources",
    "tools",
    "web_search",
    "web_search_options",
];

/// Fields with which a request could bypass policy at a provider that is itself a proxy: they
/// choose another address, credential, model or route. No dialect defines any of them.
pub(crate) const REFUSED: [&str; 27] = [
    "api_base",
    "api_key",
    "api_type",
    "api_version",
    "azure_ad_token",
    "base_url",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "custom_llm_provider",
    "default_headers",
    "deployment_id",
    "endpoint",
    "extra_body",
    "extra_headers",
    "extra_query",
    "fallbacks",
    "headers",
    "litellm_params",
    "model_list",
    "models",
    "organization_id",
    "provider",
    "proxy",
    "route",
    "router_settings",
    "routing",
    "user_config",
];

/// Fields whose nested members are checked as well.
const WALKED: [&str; 8] = [
    "container",
    "function_call",
    "functions",
    "mcp_servers",
    "stream_options",
    "tool_choice",
    "tools",
    "web_search_options",
];

/// Names of members that are checked inside [`WALKED`] fields, down to [`MAX_DEPTH`].
const MEMBERS: [&str; 23] = [
    "allowed_tools",
    "authorization",
    "authorization_token",
    "connector_id",
    "custom",
    "definition",
    "description",
    "disable_parallel_tool_use",
    "function",
    "headers",
    "id",
    "include_usage",
    "input_schema",
    "mode",
    "name",
    "parameters",
    "require_approval",
    "server_label",
    "server_url",
    "tool",
    "tools",
    "type",
    "url",
];

/// Members that hold arbitrary JSON, which is not checked.
const FREE: [&str; 10] = [
    "examples",
    "filters",
    "headers",
    "input_examples",
    "input_schema",
    "metadata",
    "output_schema",
    "parameters",
    "schema",
    "json_schema",
];

/// Limits the depth of the check; no dialect reads deeper members.
const MAX_DEPTH: usize = 16;
/// Limits the bytes of a field's name that an error quotes.
const MAX_NAME: usize = 64;

static FIELDS: LazyLock<KnownNames> =
    LazyLock::new(|| KnownNames::new(READ.into_iter().chain(REFUSED)));
static MEMBER_NAMES: LazyLock<KnownNames> = LazyLock::new(|| KnownNames::new(MEMBERS));

/// Refuses fields that a lenient parser could decode as another field. Checks the top level, and
/// the members of [`WALKED`] fields except [`FREE`] ones. `checked`: a field whose members were checked
/// before.
pub(crate) fn unambiguous(
    text: &str,
    fields: &Object,
    checked: Option<&str>,
) -> Result<(), DialectError> {
    check(fields, &FIELDS)?;
    fields
        .members
        .iter()
        .filter(|member| WALKED.contains(&member.key.as_str()))
        .filter(|member| checked != Some(member.key.as_str()))
        .try_for_each(|member| walk(&text[member.value.clone()], MAX_DEPTH))
}

fn walk(raw: &str, depth: usize) -> Result<(), DialectError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(());
    };
    match raw.as_bytes().first() {
        Some(b'{') => {
            let object = Object::scan(raw)?;
            check(&object, &MEMBER_NAMES)?;
            object
                .members
                .iter()
                .filter(|member| !FREE.contains(&member.key.as_str()))
                .try_for_each(|member| walk(&raw[member.value.clone()], depth))
        }
        Some(b'[') => Array::scan(raw)?
            .texts(raw)
            .try_for_each(|item| walk(item, depth)),
        _ => Ok(()),
    }
}

fn check(object: &Object, known: &KnownNames) -> Result<(), DialectError> {
    let keys = || object.members.iter().map(|member| member.key.as_str());
    let refuse = |name: &str, other: &str| {
        Err(DialectError::FieldReadsAs {
            name: cut(name, MAX_NAME).into_owned(),
            other: cut(other, MAX_NAME).into_owned(),
        })
    };
    if let Some((name, meant)) = keys().find_map(|name| Some((name, known.read_as(name)?))) {
        return refuse(name, meant);
    }
    match same_without_case(keys()) {
        None => Ok(()),
        Some((name, other)) if name == other => {
            Err(DialectError::Repeated(cut(name, MAX_NAME).into_owned()))
        }
        Some((other, name)) => refuse(name, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds calls such as `present(text, fields, "model")` in the modules that read requests.
    #[test]
    fn every_field_that_is_read_is_known() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("../read.rs"),
            include_str!("../openai_chat/request.rs"),
            include_str!("../anthropic/request.rs"),
            include_str!("../responses/request.rs"),
        ];
        let mut seen = 0;
        for source in sources {
            for begin in [
                "text, fields, \"",
                "fields.get(text, \"",
                "fields.member(\"",
            ] {
                for rest in source.split(begin).skip(1) {
                    let name = rest.split('"').next().unwrap_or_default();
                    assert!(READ.contains(&name), "{name} is read and not in READ");
                    seen += 1;
                }
            }
        }
        assert!(seen > 30, "{seen}");
    }
}
