//! Detects requests that make the provider act by itself: execute tools, connect to servers, fetch
//! urls. A policy can refuse such requests, because the provider would reach targets that the
//! agent's network and grants do not allow.
//!
//! Tools that the runner executes pass, also those built into a dialect (a shell, an editor).
//! Images and files inside the request pass too. A key matches a name if a lenient parser behind
//! the mediator could decode it as that name. Every value of a repeated key is checked.

use toolcrib_bounds::names::reads_as;

use crate::json::{self, Array, Object};
use crate::{Dialect, DialectError};

/// Fields of a body that make providers or gateways search or connect. No single dialect has them
/// all.
const FIELDS: [&str; 8] = [
    "connectors",
    "data_sources",
    "enable_search",
    "mcp_servers",
    "plugins",
    "search_parameters",
    "web_search",
    "web_search_options",
];

/// Members of a content block with a url that the provider would fetch.
const URLS: [&str; 4] = ["audio_url", "file_url", "image_url", "video_url"];

/// Members that hold a file's bytes; some gateways accept a url there.
const BYTES: [&str; 2] = ["data", "file_data"];

/// Limits the nesting of content blocks (in tool results and documents) and of tool namespaces.
/// Deeper ones are refused, because each level is one more pass over the bytes.
const MAX_DEPTH: usize = 4;

/// Refuses a request that makes the provider act by itself. Errors: `ProviderSide` with the first
/// such field.
pub(crate) fn refuse<'t>(
    dialect: Dialect,
    text: &'t str,
    fields: &Object,
    history: impl Iterator<Item = &'t str>,
) -> Result<(), DialectError> {
    let found = find(dialect, text, fields, history);
    found.map_or(Ok(()), |field| Err(DialectError::ProviderSide(field)))
}

fn find<'t>(
    dialect: Dialect,
    text: &'t str,
    fields: &Object,
    history: impl Iterator<Item = &'t str>,
) -> Option<String> {
    // A prompt that the provider stores can have tools that the mediator cannot see.
    let stored = (dialect == Dialect::OpenaiResponses).then_some("prompt");
    let steers = FIELDS
        .into_iter()
        .chain(stored)
        .find(|field| values(text, fields, field).any(|raw| !json::is_null(raw) && raw != "false"));
    if let Some(field) = steers {
        return Some(field.to_owned());
    }
    tools(dialect, text, fields, "tools", 0)
        .or_else(|| {
            let mut systems = values(text, fields, "system");
            systems.find_map(|raw| content(raw, "system", 0))
        })
        .or_else(|| {
            let name = match dialect {
                Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
                Dialect::OpenaiResponses => "input",
            };
            let mut items = history.enumerate();
            items.find_map(|(index, raw)| item(dialect, raw, &format!("{name}[{index}]")))
        })
}

/// Finds the first declared tool that the runner does not execute.
fn tools(
    dialect: Dialect,
    text: &str,
    fields: &Object,
    path: &str,
    depth: usize,
) -> Option<String> {
    for raw in values(text, fields, "tools").filter(|raw| !json::is_null(raw)) {
        let Ok(array) = Array::scan(raw) else {
            return Some(path.to_owned());
        };
        for (index, tool) in array.texts(raw).enumerate() {
            let at = format!("{path}[{index}]");
            let Ok(object) = Object::scan(tool) else {
                return Some(at);
            };
            let mut kinds = values(tool, &object, "type").peekable();
            if kinds.peek().is_none() && dialect != Dialect::AnthropicMessages {
                return Some(at);
            }
            for kind in kinds {
                match json::string(kind).as_deref() {
                    Some("namespace")
                        if dialect == Dialect::OpenaiResponses && depth < MAX_DEPTH =>
                    {
                        let nested = format!("{at}.tools");
                        if let Some(found) = tools(dialect, tool, &object, &nested, depth + 1) {
                            return Some(found);
                        }
                    }
                    Some(kind) if is_runners(dialect, kind) => {}
                    Some(_) | None => return Some(at),
                }
            }
        }
    }
    None
}

/// Returns true if the runner executes tools of this type, or if they only search the request
/// itself.
fn is_runners(dialect: Dialect, kind: &str) -> bool {
    match dialect {
        Dialect::OpenaiChat => matches!(kind, "function" | "custom"),
        Dialect::OpenaiResponses => matches!(
            kind,
            "function"
                | "custom"
                | "apply_patch"
                | "computer"
                | "computer_use_preview"
                | "local_shell"
                | "tool_search"
        ),
        Dialect::AnthropicMessages => {
            // A dated type such as `bash_20250124`.
            let dated = |prefix: &str| {
                kind.strip_prefix(prefix)
                    .is_some_and(|date| date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()))
            };
            kind == "custom"
                || kind.starts_with("tool_search_tool_")
                || ["bash_", "computer_", "memory_", "text_editor_"]
                    .into_iter()
                    .any(dated)
        }
    }
}

fn item(dialect: Dialect, raw: &str, path: &str) -> Option<String> {
    let object = Object::scan(raw).ok()?;
    // An item of the history may declare tools.
    if dialect == Dialect::OpenaiResponses
        && let Some(found) = tools(dialect, raw, &object, &format!("{path}.tools"), 0)
    {
        return Some(found);
    }
    block(raw, path, 0)
}

/// Checks a text, a block, or a list of blocks.
fn content(raw: &str, path: &str, depth: usize) -> Option<String> {
    match raw.as_bytes().first() {
        Some(b'{') => block(raw, path, depth),
        Some(b'[') => {
            let array = Array::scan(raw).ok()?;
            let mut blocks = array.texts(raw).enumerate();
            blocks.find_map(|(index, raw)| block(raw, &format!("{path}[{index}]"), depth))
        }
        _ => None,
    }
}

fn block(raw: &str, path: &str, depth: usize) -> Option<String> {
    if !raw.starts_with('{') {
        return None;
    }
    if depth > MAX_DEPTH {
        return Some(path.to_owned());
    }
    let object = Object::scan(raw).ok()?;
    for name in URLS {
        if values(raw, &object, name).any(names_remote) {
            return Some(format!("{path}.{name}"));
        }
    }
    if holds_remote(raw, &object) {
        return Some(path.to_owned());
    }
    // OpenAI's dialects put files and sounds into these members.
    for name in ["file", "input_audio"] {
        for inner in values(raw, &object, name) {
            if Object::scan(inner).is_ok_and(|object| holds_remote(inner, &object)) {
                return Some(format!("{path}.{name}"));
            }
        }
    }
    for source in values(raw, &object, "source") {
        if let Some(found) = sourced(source, &format!("{path}.source"), depth) {
            return Some(found);
        }
    }
    ["content", "output"].into_iter().find_map(|name| {
        let mut nested = values(raw, &object, name);
        nested.find_map(|raw| content(raw, &format!("{path}.{name}"), depth + 1))
    })
}

/// Checks the source of an image or a document in Anthropic's dialect.
fn sourced(raw: &str, path: &str, depth: usize) -> Option<String> {
    // The source of a search result is displayed text and is not fetched.
    let object = Object::scan(raw).ok()?;
    let by_url = |kind: &str| json::string(kind).is_some_and(|kind| is_read_as(&kind, "url"));
    if values(raw, &object, "type").any(by_url)
        || values(raw, &object, "url").any(|raw| !json::is_null(raw))
    {
        return Some(format!("{path}.url"));
    }
    let mut nested = values(raw, &object, "content");
    nested.find_map(|raw| content(raw, &format!("{path}.content"), depth + 1))
}

/// Returns true for a url other than `data:`, as text or as the `url` of an object.
fn names_remote(raw: &str) -> bool {
    if raw.starts_with('{') {
        return Object::scan(raw)
            .map_or(true, |object| values(raw, &object, "url").any(names_remote));
    }
    !json::is_null(raw) && !is_data(raw)
}

/// Returns true if a member for inline bytes holds a url instead. Base64 has no colon, so `://`
/// shows a url.
fn holds_remote(raw: &str, object: &Object) -> bool {
    BYTES.into_iter().any(|name| {
        values(raw, object, name).any(|raw| {
            raw.starts_with('"')
                && !is_data(raw)
                && json::string(raw).is_none_or(|text| text.contains("://"))
        })
    })
}

/// Returns true for a `data:` url. The first test reads only the beginning, since an image may be
/// most of a body.
fn is_data(raw: &str) -> bool {
    raw.starts_with("\"data:")
        || json::string(raw).is_some_and(|text| {
            let scheme = text.split(':').next().unwrap_or_default();
            text.len() > scheme.len() && scheme.eq_ignore_ascii_case("data")
        })
}

/// Returns the values of all keys that a lenient parser could decode as `name`.
fn values<'t>(text: &'t str, object: &'t Object, name: &'t str) -> impl Iterator<Item = &'t str> {
    let members = object.members.iter();
    let members = members.filter(move |member| is_read_as(&member.key, name));
    members.map(move |member| &text[member.value.clone()])
}

fn is_read_as(key: &str, name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !key.bytes().all(is_plain) {
        return reads_as(key, name);
    }
    // Decides like `reads_as`, and also accepts equal names. It does not allocate, since a body may
    // have many keys.
    let (key, name) = (key.bytes(), name.bytes());
    let letters = |byte: &u8| *byte != b'_';
    let (key, name) = (key.filter(letters), name.filter(letters));
    key.map(|byte| byte.to_ascii_lowercase()).eq(name)
}
