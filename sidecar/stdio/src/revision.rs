//! Translates requests to the child, and its results, for both forms of the protocol.
//!
//! The child was initialized once and speaks the form with a handshake. Results for stateless
//! clients get the members that their form requires.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_mcp::code::INVALID_PARAMS;
use toolcrib_mcp::revision::{HANDSHAKE, META, META_PREFIX, SERVER_KEY, STATELESS, settled};
use toolcrib_mcp::{Fault, Members, Raw, members, raw};

/// The methods that reach the child. This is a closed set: another method could change state that
/// all clients share (`logging/setLevel`), or need a stream to the client (`resources/subscribe`).
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

    /// Returns true if the result carries a cache lifetime.
    fn is_cacheable(self) -> bool {
        !matches!(self, Self::CallTool | Self::GetPrompt | Self::Complete)
    }
}

/// The child's description of itself, without capabilities that the wrapper does not support.
#[derive(Clone, Debug)]
pub struct ChildDescription {
    version: &'static str,
    capabilities: Value,
    server: Raw,
    instructions: Option<String>,
}

impl ChildDescription {
    /// Reads the child's answer to `initialize`. The error says what is wrong with the answer.
    pub fn read(result: &RawValue) -> Result<Self, String> {
        let mut members = members(result).ok_or("its answer to initialize is not an object")?;
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

    /// The child's `serverInfo`, as JSON.
    pub fn server(&self) -> &str {
        self.server.get()
    }

    /// Returns the answer to a client's `initialize`. The version is the requested one if it is
    /// known and not newer than the child's, else the child's.
    pub fn initialized(&self, params: Option<&RawValue>) -> Raw {
        let version = settled(params, self.version);
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "serverInfo": self.server,
        });
        self.instruct(&mut result);
        raw(&result)
    }

    /// Returns the answer to `server/discover`.
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

/// Keeps the four capabilities whose methods reach the child, without the parts that need a stream
/// of notifications.
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

/// Returns the `params` for the child, without the protocol's own keys in `_meta` and without the
/// progress token: the child's progress notifications are dropped.
pub fn for_child(params: Option<&RawValue>) -> Result<Option<Members>, Fault> {
    let Some(params) = params else {
        return Ok(None);
    };
    let mut params = members(params).ok_or_else(|| invalid("params must be an object"))?;
    if params.contains_key("task") {
        // The child would store tasks where every client could read them.
        return Err(invalid("tasks are not offered"));
    }
    if let Some(mut meta) = params.remove(META).and_then(|it| members(&it)) {
        meta.retain(|key, _| key != "progressToken" && !key.starts_with(META_PREFIX));
        if !meta.is_empty() {
            params.insert(META.to_owned(), raw(&meta));
        }
    }
    Ok(Some(params))
}

/// Returns the child's result for a stateless client; `None` if it is not an object.
pub fn for_stateless(method: Method, result: &RawValue) -> Option<Raw> {
    let mut result = members(result)?;
    let mut say = |name: &str, value: Value| {
        result.entry(name.to_owned()).or_insert_with(|| raw(&value));
    };
    say("resultType", "complete".into());
    if method.is_cacheable() {
        // Clients are not notified of changes in the child's lists, so no list may be cached.
        say("ttlMs", 0.into());
        say("cacheScope", "private".into());
    }
    Some(raw(&result))
}

fn invalid(message: &str) -> Fault {
    Fault::new(INVALID_PARAMS, message)
}

#[cfg(test)]
mod tests {
    use toolcrib_mcp::revision::VERSION_KEY;

    use super::*;

    fn about(version: &str) -> ChildDescription {
        ChildDescription::read(&raw(&json!({
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

    #[test]
    fn a_client_sees_only_supported_capabilities() {
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
    fn the_revision_is_never_newer_than_the_childs() {
        let version = |child: &str, asked: &str| {
            let params = raw(&json!({"protocolVersion": asked}));
            value(&about(child).initialized(Some(&params)))["protocolVersion"].clone()
        };
        assert_eq!(version("2025-11-25", "2025-06-18"), "2025-06-18");
        assert_eq!(version("2025-03-26", "2025-11-25"), "2025-03-26");
        assert_eq!(version("2025-11-25", "2031-01-01"), "2025-11-25");
    }

    #[test]
    fn an_invalid_initialize_result_names_its_fault() {
        let read = |value: Value| ChildDescription::read(&raw(&value)).unwrap_err();
        assert_eq!(read(json!(7)), "its answer to initialize is not an object");
        let unknown = json!({"protocolVersion": "2031-01-01"});
        assert_eq!(read(unknown), "it speaks MCP 2031-01-01");
        let no_name = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        assert_eq!(read(no_name), "its answer has no serverInfo");
    }

    #[test]
    fn progress_tokens_and_tasks_do_not_reach_the_child() {
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
    fn a_stateless_result_has_the_required_members() {
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
