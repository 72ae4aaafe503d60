//! A permitted call as an HTTP request: placeholders, query, body.
//!
//! Arguments are data: only the manifest decides about destination, method and headers. A value
//! that a server could read as path syntax is refused, never repaired.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use toolcrib_bounds::headers::may_be_chosen;
use toolcrib_dialect::json::{self, Change, Object};
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_manifest::{BodyKind, Execution, HttpMethod, RawJson, Tool, Transport};

use crate::calls::outcome::{Certainty, ToolFailure};
use crate::codes::ResultCode;

/// Everything that a sender needs beside host, method and credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCall {
    /// Origin form: the path of `base_url`, the filled template, the query.
    pub path_and_query: String,
    /// Body of type `application/json`.
    pub body: Option<Vec<u8>>,
    /// Value of `X-Claw-ID`, which is informational and authenticates nothing.
    pub claw_id: String,
    /// Name and value of the header by which the service recognizes a repeated call.
    pub idempotency: Option<(String, String)>,
}

/// Every character except RFC 3986's unreserved ones.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns the request for a call with these arguments (as executed, see
/// [`crate::ManagedCall::arguments`]) and this key ([`crate::ManagedCall::idempotency_key`]). Errors: a
/// path cannot carry a value; the tool's `idempotency_header` is one that only the mediator sets.
pub fn http_call(
    tool: &Tool,
    arguments: &RawJson,
    claw_id: &str,
    idempotency_key: Option<&str>,
) -> Result<HttpCall, ToolFailure> {
    let execution = &tool.execution;
    let refuse = |message: String| {
        ToolFailure::new(
            ResultCode::InvalidArguments,
            Certainty::NeverRan,
            format!("{}: {message}", tool.name),
        )
    };
    let method = http_method(tool)?;
    let text = arguments.get();
    let fields =
        Object::scan(text).map_err(|_| refuse("arguments are not a JSON object".into()))?;
    let template = execution.path.as_deref().unwrap_or_default();
    let mut used = Vec::new();
    let path = fill(template, |name| {
        used.push(name.to_string());
        if name == CLAW_ID {
            return Ok(claw_id.to_string());
        }
        let raw = fields
            .get(text, name)
            .ok_or_else(|| format!("argument `{name}` is missing"))?;
        scalar(raw).ok_or_else(|| format!("argument `{name}` cannot stand in a path"))
    })
    .map_err(refuse)?;
    let left_over = fields.edit(
        text,
        |member| {
            if used.iter().any(|it| member.key == *it) {
                Change::Drop
            } else {
                Change::Keep
            }
        },
        &[],
    );
    let in_query = match method {
        HttpMethod::Get | HttpMethod::Head | HttpMethod::Delete => {
            execution.body != Some(BodyKind::Json)
        }
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch => false,
    };
    let mut path_and_query = path_at(execution, &path);
    let body = if in_query {
        append_query(&mut path_and_query, &left_over)
            .ok_or_else(|| refuse("arguments are not a JSON object".into()))?;
        None
    } else {
        Some(match &execution.body_key {
            Some(key) => json::object(&[(key, left_over)]).into_bytes(),
            None => left_over.into_bytes(),
        })
    };
    Ok(HttpCall {
        path_and_query,
        body,
        claw_id: claw_id.to_string(),
        idempotency: idempotency(tool, idempotency_key)?,
    })
}

/// Returns the header of the key, if the tool names one. The compiler refuses reserved names; files
/// written by hand may have them.
fn idempotency(tool: &Tool, key: Option<&str>) -> Result<Option<(String, String)>, ToolFailure> {
    let header = tool.execution.idempotency_header.as_deref();
    let Some((header, key)) = header.zip(key) else {
        return Ok(None);
    };
    if !may_be_chosen(header) {
        return Err(ToolFailure::new(
            ResultCode::UnsupportedTool,
            Certainty::NeverRan,
            format!("{} names a header that it cannot choose", tool.name),
        ));
    }
    Ok(Some((header.to_string(), key.to_string())))
}

/// Returns the HTTP method of `tool`. Errors: the tool is called over MCP, or its entry names no
/// method.
pub fn http_method(tool: &Tool) -> Result<HttpMethod, ToolFailure> {
    match (tool.execution.transport, tool.execution.method) {
        (Transport::Http, Some(method)) => Ok(method),
        (Transport::Http, None) | (Transport::Mcp, _) => Err(ToolFailure::new(
            ResultCode::UnsupportedTool,
            Certainty::NeverRan,
            format!("{} cannot be called over HTTP", tool.name),
        )),
    }
}

/// Fills `{claw_id}` into a feed's url by the same rules.
pub fn fill_claw_id(url: &str, claw_id: &str) -> Result<String, ToolFailure> {
    fill(url, |name| match name {
        CLAW_ID => Ok(claw_id.to_string()),
        other => Err(format!("placeholder `{other}` cannot be filled")),
    })
    .map_err(|message| ToolFailure::new(ResultCode::RequestFailed, Certainty::NeverRan, message))
}

/// Replaces each `{name}` of the template by its encoded value.
fn fill(
    template: &str,
    mut value: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        let close = after
            .find('}')
            .ok_or("the path template has an open brace")?;
        let name = &after[..close];
        let value = value(name)?;
        if !safe(&value) {
            return Err(format!(
                "argument `{name}` has a value that a path cannot carry: it must not be empty or \
                 dots alone, nor hold / \\ ? # % or characters that are not shown"
            ));
        }
        out.push_str(&rest[..open]);
        out.extend(utf8_percent_encode(&value, ENCODED));
        rest = &after[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns true if no server can read the value as path syntax, even if it decodes more than once
/// or folds fullwidth forms.
fn safe(value: &str) -> bool {
    let decoded = percent_decode_str(value).decode_utf8_lossy();
    plain(value) && plain(&decoded)
}

fn plain(value: &str) -> bool {
    let folded: String = value.chars().map(fold).collect();
    let dots_only = !folded.is_empty() && folded.chars().all(|c| c == '.');
    let forbidden =
        |c: char| matches!(c, '/' | '\\' | '?' | '#' | '%') || c.is_control() || invisible(c);
    !folded.is_empty() && !dots_only && !folded.contains(forbidden)
}

/// Maps a character to the ASCII one that some servers read it as, where that one matters in a
/// path.
fn fold(c: char) -> char {
    match c {
        // Fullwidth forms of `!` to `~`.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xff01 + 0x21).unwrap_or(c),
        '\u{2024}' | '\u{fe52}' | '\u{3002}' | '\u{ff61}' => '.',
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => '/',
        '\u{2216}' | '\u{fe68}' | '\u{29f5}' | '\u{29f9}' => '\\',
        '\u{fe56}' => '?',
        '\u{fe5f}' => '#',
        '\u{fe6a}' => '%',
        other => other,
    }
}

/// Characters without a visible glyph: joiners, direction marks, line separators, byte order marks.
fn invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffd}')
}

/// Returns a string's text, or a number or boolean as it was written.
fn scalar(raw: &str) -> Option<String> {
    match raw.as_bytes().first()? {
        b'"' => json::string(raw),
        b'{' | b'[' | b'n' => None,
        _ => Some(raw.to_string()),
    }
}

/// Joins the path of `base_url` and a path on the service.
pub fn path_at(execution: &Execution, path: &str) -> String {
    let base = base_path(&execution.base_url).trim_end_matches('/');
    match path.strip_prefix('/') {
        Some(_) => format!("{base}{path}"),
        None => format!("{base}/{path}"),
    }
}

/// Returns the path of `scheme://authority/path`.
fn base_path(base_url: &str) -> &str {
    let after = base_url
        .split_once("://")
        .map_or(base_url, |(_, rest)| rest);
    let path = after.find('/').map_or("", |slash| &after[slash..]);
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Appends scalars as `name=value`, a list of scalars as one pair for each, and deeper values as
/// JSON text; leaves out `null`.
fn append_query(out: &mut String, arguments: &str) -> Option<()> {
    let fields = Object::scan(arguments).ok()?;
    let mut separator = if out.contains('?') { '&' } else { '?' };
    let mut pair = |name: &str, value: &str| {
        out.push(std::mem::replace(&mut separator, '&'));
        out.extend(utf8_percent_encode(name, ENCODED));
        out.push('=');
        out.extend(utf8_percent_encode(value, ENCODED));
    };
    for member in &fields.members {
        let raw = &arguments[member.value.clone()];
        if json::is_null(raw) {
            continue;
        }
        if let Some(value) = scalar(raw) {
            pair(&member.key, &value);
            continue;
        }
        let items: Option<Vec<String>> = json::Array::scan(raw)
            .ok()
            .and_then(|array| array.texts(raw).map(scalar).collect());
        match items {
            Some(items) => items.iter().for_each(|item| pair(&member.key, item)),
            None => pair(&member.key, raw),
        }
    }
    Some(())
}
