//! The two forms of MCP over HTTP.
//!
//! Up to 2025-11-25, a client begins with `initialize` and may have a session. From 2026-07-28 on,
//! each request describes itself in headers and in `_meta`, and no state is kept.

use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::code::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY,
    PARSE_ERROR, UNSUPPORTED_VERSION,
};
use crate::header::{self, METHOD_HEADER, NAME_HEADER, VERSION_HEADER};
use crate::message::{Fault, members};

/// Revisions with a handshake, oldest first.
pub const HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub const NEWEST_HANDSHAKE: &str = HANDSHAKE[HANDSHAKE.len() - 1];
/// The revision without sessions: each request describes itself.
pub const STATELESS: &str = "2026-07-28";

/// The member of `params` and of results that is reserved for the protocol.
pub const META: &str = "_meta";
/// Prefix of the keys in `_meta` that the protocol itself defines.
pub const META_PREFIX: &str = "io.modelcontextprotocol/";
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Key of the `subscriptions/listen` request that a notification belongs to.
pub const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
pub const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// The form of the protocol that a client uses, by its version header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With sessions; also used for a client that sends no version header.
    Handshake,
    Stateless,
}

pub fn form(headers: &HeaderMap) -> Form {
    match headers.get(VERSION_HEADER).map(|value| value.as_bytes()) {
        None => Form::Handshake,
        Some(version) if HANDSHAKE.iter().any(|it| it.as_bytes() == version) => Form::Handshake,
        Some(_) => Form::Stateless,
    }
}

/// A program's `clientInfo` or `serverInfo`.
pub fn implementation(name: &str, version: &str) -> Value {
    json!({"name": name, "version": version})
}

/// The [`META`] object of a [`STATELESS`] request, for a client without capabilities.
pub fn request_meta(client: Value) -> Value {
    json!({VERSION_KEY: STATELESS, CLIENT_KEY: client, CAPABILITIES_KEY: {}})
}

/// Returns the revision for the answer to `initialize`: the requested one if it is known and not
/// newer than `newest`, else `newest`.
pub fn settled(params: Option<&RawValue>, newest: &'static str) -> &'static str {
    let asked = params
        .and_then(members)
        .and_then(|params| text(params.get("protocolVersion")?));
    let known = HANDSHAKE
        .into_iter()
        .find(|known| Some(*known) == asked.as_deref());
    // The names of versions are dates, so they sort by age.
    known.map_or(newest, |known| known.min(newest))
}

/// The member of `params` that the header `Mcp-Name` mirrors.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

/// Checks that the headers of a stateless request agree with its body. Proxies decide by the
/// headers, but the body is executed.
pub fn check_envelope(
    headers: &HeaderMap,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), Fault> {
    for name in [VERSION_HEADER, METHOD_HEADER, NAME_HEADER] {
        if headers.get_all(name).iter().count() > 1 {
            return Err(mismatch(format!("the header {name} is there twice")));
        }
    }
    let params = params.and_then(members).unwrap_or_default();
    let meta = params.get(META).and_then(|it| members(it)).ok_or_else(|| {
        invalid(format!(
            "params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}"
        ))
    })?;
    for key in [VERSION_KEY, CAPABILITIES_KEY] {
        if !meta.contains_key(key) {
            return Err(invalid(format!("params._meta has no {key}")));
        }
    }
    let version = meta.get(VERSION_KEY).and_then(|it| text(it));
    if version.is_none() || header::text(headers, VERSION_HEADER) != version {
        return Err(mismatch(format!(
            "the header {VERSION_HEADER} is not the version in params._meta"
        )));
    }
    if header::text(headers, METHOD_HEADER).as_deref() != Some(method) {
        return Err(mismatch(format!(
            "the header {METHOD_HEADER} is not the method of the body"
        )));
    }
    if let Some(member) = named_by(method)
        && let Some(named) = params.get(member)
        && header::text(headers, NAME_HEADER) != text(named)
    {
        return Err(mismatch(format!(
            "the header {NAME_HEADER} is not params.{member}"
        )));
    }
    check_version(headers)
}

pub fn check_version(headers: &HeaderMap) -> Result<(), Fault> {
    let requested = header::text(headers, VERSION_HEADER).unwrap_or_default();
    if requested == STATELESS {
        return Ok(());
    }
    Err(Fault {
        data: Some(json!({"supported": [STATELESS], "requested": requested})),
        ..Fault::new(UNSUPPORTED_VERSION, "Unsupported protocol version")
    })
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

fn mismatch(message: String) -> Fault {
    Fault::new(HEADER_MISMATCH, message)
}

fn invalid(message: String) -> Fault {
    Fault::new(INVALID_PARAMS, message)
}

/// Returns the HTTP status that the revision defines for an error code, or 200 if it defines none.
pub fn status(form: Form, code: Option<i64>) -> StatusCode {
    match (form, code) {
        (
            Form::Stateless,
            Some(
                PARSE_ERROR | INVALID_REQUEST | INVALID_PARAMS | HEADER_MISMATCH
                | MISSING_CAPABILITY | UNSUPPORTED_VERSION,
            ),
        ) => StatusCode::BAD_REQUEST,
        (Form::Stateless, Some(METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
        (Form::Handshake, Some(PARSE_ERROR | INVALID_REQUEST)) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::message::raw;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_version_header_selects_the_protocol_form() {
        assert_eq!(form(&headers(&[])), Form::Handshake);
        for (version, expected) in [
            ("2025-06-18", Form::Handshake),
            ("2026-07-28", Form::Stateless),
            ("2031-01-01", Form::Stateless),
        ] {
            assert_eq!(form(&headers(&[(VERSION_HEADER, version)])), expected);
        }
    }

    #[test]
    fn stateless_headers_must_match_the_body() {
        let params = raw(&json!({
            "name": "swïm",
            "_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}},
        }));
        let check = |pairs: &[(&'static str, &'static str)], params: &RawValue| {
            check_envelope(&headers(pairs), "tools/call", Some(params)).map_err(|it| it.code)
        };
        let version = (VERSION_HEADER, "2026-07-28");
        let method = (METHOD_HEADER, "tools/call");
        let name = (NAME_HEADER, "=?base64?c3fDr20=?=");
        assert_eq!(check(&[version, method, name], &params), Ok(()));
        let mismatch = Err(HEADER_MISMATCH);
        assert_eq!(check(&[version, method], &params), mismatch);
        assert_eq!(check(&[version, name], &params), mismatch);
        assert_eq!(check(&[version, method, name, name], &params), mismatch);
        assert_eq!(
            check(&[version, method, (NAME_HEADER, "dive")], &params),
            mismatch
        );
        assert_eq!(
            check(&[version, (METHOD_HEADER, "tools/list"), name], &params),
            mismatch
        );
        let newer = (VERSION_HEADER, "2031-01-01");
        assert_eq!(check(&[newer, method, name], &params), mismatch);
        let bare = raw(&json!({"name": "swïm"}));
        assert_eq!(check(&[version, method, name], &bare), Err(INVALID_PARAMS));
        let no_capabilities = raw(&json!({"_meta": {VERSION_KEY: "2026-07-28"}}));
        assert_eq!(
            check(&[version, method], &no_capabilities),
            Err(INVALID_PARAMS)
        );
        let future = raw(&json!({"_meta": {VERSION_KEY: "2031-01-01", CAPABILITIES_KEY: {}}}));
        assert_eq!(check(&[newer, method], &future), Err(UNSUPPORTED_VERSION));
    }
}
