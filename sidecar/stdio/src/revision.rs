//! The two revisions of MCP over HTTP, and what of a child's words each may see.
//!
//! Up to 2025-11-25 a client begins with `initialize` and has a session. From 2026-07-28
//! each request says in headers and in `_meta` what it is, and nothing is kept. The child
//! has one `initialize` behind it and speaks the older form; its results gain what the newer
//! form requires.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::message::{Fault, Members, Raw, members, raw};

/// Revisions with a handshake, oldest first.
const HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// What the child is offered.
pub const NEWEST_HANDSHAKE: &str = HANDSHAKE[HANDSHAKE.len() - 1];
const STATELESS: &str = "2026-07-28";

pub const VERSION_HEADER: &str = "mcp-protocol-version";
pub const METHOD_HEADER: &str = "mcp-method";
pub const NAME_HEADER: &str = "mcp-name";
pub const SESSION_HEADER: &str = "mcp-session-id";

const META: &str = "_meta";
const META_PREFIX: &str = "io.modelcontextprotocol/";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// How a client speaks, by its first header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With sessions; a client that names no version is one, too.
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

/// The methods that reach the child. A closed set: another one could change what all clients
/// share (`logging/setLevel`), or needs a stream to the client (`resources/subscribe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ListTools,
    CallTool,
    ListPrompts,
    GetPrompt,
    ListResources,
    ListResourceTemplates,
    ReadResource,
    Complete,
}

impl Method {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "tools/list" => Self::ListTools,
            "tools/call" => Self::CallTool,
            "prompts/list" => Self::ListPrompts,
            "prompts/get" => Self::GetPrompt,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListResourceTemplates,
            "resources/read" => Self::ReadResource,
            "completion/complete" => Self::Complete,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ListTools => "tools/list",
            Self::CallTool => "tools/call",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::ListResources => "resources/list",
            Self::ListResourceTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Complete => "completion/complete",
        }
    }

    /// The member of `params` that the header `Mcp-Name` repeats.
    fn named_by(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::ListTools
            | Self::ListPrompts
            | Self::ListResources
            | Self::ListResourceTemplates
            | Self::Complete => None,
        }
    }

    /// Whether its result says how long it may be kept.
    fn is_cacheable(self) -> bool {
        !matches!(self, Self::CallTool | Self::GetPrompt | Self::Complete)
    }
}

/// What the child said of itself, less what this relay does not carry.
#[derive(Clone, Debug)]
pub struct About {
    version: &'static str,
    capabilities: Value,
    server: Raw,
    instructions: Option<String>,
}

impl About {
    /// From the child's answer to `initialize`; `Err`: why that is none.
    pub fn read(result: &RawValue) -> Result<Self, String> {
        let mut members = members(result).ok_or("its answer is no object")?;
        let mut take = |name: &str| members.remove(name);
        let version: String = take("protocolVersion")
            .and_then(|it| serde_json::from_str(it.get()).ok())
            .ok_or("its answer names no protocolVersion")?;
        let version = HANDSHAKE
            .into_iter()
            .find(|known| *known == version)
            .ok_or_else(|| format!("it speaks MCP {}", version.escape_debug()))?;
        let capabilities = take("capabilities")
            .and_then(|it| serde_json::from_str(it.get()).ok())
            .map(carried)
            .ok_or("its answer has no capabilities")?;
        Ok(Self {
            version,
            capabilities,
            server: take("serverInfo").ok_or("its answer has no serverInfo")?,
            instructions: take("instructions").and_then(|it| serde_json::from_str(it.get()).ok()),
        })
    }

    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The child's name for itself, as JSON.
    pub fn server(&self) -> &str {
        self.server.get()
    }

    /// The answer to a client's `initialize`: the version that it asked for, but none newer
    /// than the child's.
    pub fn initialized(&self, params: Option<&RawValue>) -> Raw {
        let asked: Option<String> = params
            .and_then(members)
            .and_then(|params| serde_json::from_str(params.get("protocolVersion")?.get()).ok());
        let asked = HANDSHAKE
            .into_iter()
            .find(|known| Some(*known) == asked.as_deref());
        // The names of versions are dates, which sort.
        let version = asked.map_or(self.version, |asked| asked.min(self.version));
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "serverInfo": self.server,
        });
        self.instruct(&mut result);
        raw(&result)
    }

    /// The answer to `server/discover`.
    pub fn discovered(&self) -> Raw {
        let mut result = json!({
            "supportedVersions": [STATELESS],
            "capabilities": self.capabilities,
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            META: {SERVER_KEY: self.server},
        });
        self.instruct(&mut result);
        raw(&result)
    }

    fn instruct(&self, result: &mut Value) {
        if let Some(instructions) = &self.instructions {
            result["instructions"] = instructions.as_str().into();
        }
    }
}

/// The four that clients call, without what would need a stream of notifications.
fn carried(capabilities: Value) -> Value {
    let Value::Object(mut capabilities) = capabilities else {
        return json!({});
    };
    capabilities.retain(|name, _| {
        matches!(
            name.as_str(),
            "tools" | "prompts" | "resources" | "completions"
        )
    });
    for capability in capabilities.values_mut() {
        if let Some(capability) = capability.as_object_mut() {
            capability.remove("listChanged");
            capability.remove("subscribe");
        }
    }
    Value::Object(capabilities)
}

/// What a stateless request says of itself must be said twice, alike: in headers, by which
/// proxies decide, and in the body, which is what is done.
pub fn check_envelope(
    headers: &HeaderMap,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), Fault> {
    for header in [VERSION_HEADER, METHOD_HEADER, NAME_HEADER] {
        if headers.get_all(header).iter().count() > 1 {
            return Err(mismatch(format!("the header {header} is there twice")));
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
    if version.is_none() || header(headers, VERSION_HEADER) != version {
        return Err(mismatch(format!(
            "the header {VERSION_HEADER} is not the version in params._meta"
        )));
    }
    if header(headers, METHOD_HEADER).as_deref() != Some(method) {
        return Err(mismatch(format!(
            "the header {METHOD_HEADER} is not the method of the body"
        )));
    }
    if let Some(member) = Method::parse(method).and_then(Method::named_by)
        && let Some(named) = params.get(member)
        && header(headers, NAME_HEADER) != text(named)
    {
        return Err(mismatch(format!(
            "the header {NAME_HEADER} is not params.{member}"
        )));
    }
    check_version(headers)
}

pub fn check_version(headers: &HeaderMap) -> Result<(), Fault> {
    let requested = header(headers, VERSION_HEADER).unwrap_or_default();
    if requested == STATELESS {
        return Ok(());
    }
    Err(Fault {
        code: UNSUPPORTED_VERSION,
        message: "Unsupported protocol version".to_owned(),
        data: Some(json!({"supported": [STATELESS], "requested": requested})),
    })
}

/// A header's text; what no header can hold comes as `=?base64?…?=`.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    let encoded = text
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match encoded {
        None => Some(text.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

fn mismatch(message: String) -> Fault {
    Fault {
        code: HEADER_MISMATCH,
        message,
        data: None,
    }
}

fn invalid(message: String) -> Fault {
    Fault {
        code: INVALID_PARAMS,
        message,
        data: None,
    }
}

/// What the child sees of `params`. A progress token would be one client's word in a space
/// that all share, and nobody would hear the progress.
pub fn for_child(params: Option<&RawValue>) -> Result<Option<Members>, Fault> {
    let Some(params) = params else {
        return Ok(None);
    };
    let mut params =
        members(params).ok_or_else(|| invalid("params must be an object".to_owned()))?;
    if params.contains_key("task") {
        // Tasks are kept by the child, where every client could ask for them.
        return Err(invalid("tasks are not offered".to_owned()));
    }
    if let Some(mut meta) = params.remove(META).and_then(|it| members(&it)) {
        meta.retain(|key, _| key != "progressToken" && !key.starts_with(META_PREFIX));
        if !meta.is_empty() {
            params.insert(META.to_owned(), raw(&meta));
        }
    }
    Ok(Some(params))
}

/// The child's result as a stateless client reads it; `None`: it is no object.
pub fn for_stateless(method: Method, result: &RawValue) -> Option<Raw> {
    let mut result = members(result)?;
    let mut say = |name: &str, value: Value| {
        result.entry(name.to_owned()).or_insert_with(|| raw(&value));
    };
    say("resultType", "complete".into());
    if method.is_cacheable() {
        // Nobody says when the child's lists change, so none is kept.
        say("ttlMs", 0.into());
        say("cacheScope", "private".into());
    }
    Some(raw(&result))
}

/// The status of an error, where the revision gives it one.
pub fn status(form: Form, code: Option<i64>) -> StatusCode {
    match (form, code) {
        (
            Form::Stateless,
            Some(
                PARSE_ERROR | INVALID_REQUEST | INVALID_PARAMS | HEADER_MISMATCH
                | UNSUPPORTED_VERSION,
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

    fn about(version: &str) -> About {
        About::read(&raw(&json!({
            "protocolVersion": version,
            "capabilities": {
                "tools": {"listChanged": true},
                "resources": {"subscribe": true, "listChanged": true},
                "logging": {},
                "tasks": {"list": {}},
            },
            "serverInfo": {"name": "otter", "version": "1"},
            "instructions": "Swim.",
        })))
        .unwrap()
    }

    fn value(raw: &RawValue) -> Value {
        serde_json::from_str(raw.get()).unwrap()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_client_is_told_what_is_carried_of_what_the_child_can() {
        let told = value(&about("2025-11-25").initialized(None));
        let expected = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "otter", "version": "1"},
            "instructions": "Swim.",
        });
        assert_eq!(told, expected);
        let told = value(&about("2025-11-25").discovered());
        let expected = json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "resources": {}},
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "otter", "version": "1"}},
            "instructions": "Swim.",
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn no_client_is_promised_a_revision_that_the_child_does_not_speak() {
        let version = |child: &str, asked: &str| {
            let params = raw(&json!({"protocolVersion": asked}));
            value(&about(child).initialized(Some(&params)))["protocolVersion"].clone()
        };
        assert_eq!(version("2025-11-25", "2025-06-18"), "2025-06-18");
        assert_eq!(version("2025-03-26", "2025-11-25"), "2025-03-26");
        assert_eq!(version("2025-11-25", "2031-01-01"), "2025-11-25");
    }

    #[test]
    fn an_answer_that_greets_nobody_says_what_it_lacks() {
        let read = |value: Value| About::read(&raw(&value)).unwrap_err();
        assert_eq!(read(json!(7)), "its answer is no object");
        let unknown = json!({"protocolVersion": "2031-01-01"});
        assert_eq!(read(unknown), "it speaks MCP 2031-01-01");
        let no_name = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        assert_eq!(read(no_name), "its answer has no serverInfo");
    }

    #[test]
    fn the_version_header_says_how_a_client_speaks() {
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
    fn a_stateless_request_says_the_same_twice() {
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

    #[test]
    fn the_child_sees_nothing_that_clients_could_collide_in() {
        let params = raw(&json!({
            "name": "swim", "arguments": {"depth": 2},
            "_meta": {"progressToken": 1, VERSION_KEY: "2026-07-28", "mine": true},
        }));
        let seen = for_child(Some(&params)).unwrap().unwrap();
        let expected = json!({"name": "swim", "arguments": {"depth": 2}, "_meta": {"mine": true}});
        assert_eq!(value(&raw(&seen)), expected);
        let only_ours = raw(&json!({"_meta": {"progressToken": "x"}}));
        assert_eq!(
            value(&raw(&for_child(Some(&only_ours)).unwrap().unwrap())),
            json!({})
        );
        assert_eq!(for_child(None).unwrap().map(|_| ()), None);
        for bad in [json!([1]), json!({"task": {"ttl": 1}})] {
            assert_eq!(
                for_child(Some(&raw(&bad))).unwrap_err().code,
                INVALID_PARAMS
            );
        }
    }

    #[test]
    fn a_stateless_result_says_what_the_revision_requires() {
        let tools = raw(&json!({"tools": [], "ttlMs": 5}));
        let expected =
            json!({"tools": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "private"});
        assert_eq!(
            value(&for_stateless(Method::ListTools, &tools).unwrap()),
            expected
        );
        let called = raw(&json!({"content": []}));
        let expected = json!({"content": [], "resultType": "complete"});
        assert_eq!(
            value(&for_stateless(Method::CallTool, &called).unwrap()),
            expected
        );
        assert!(for_stateless(Method::CallTool, &raw(&json!([]))).is_none());
    }
}
