//! `tools.json`: version 1 of the compiled tool manifest (ADR-020), with Toolcrib's additions under
//! one key, `x-toolcrib`.

use std::collections::BTreeMap;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::{GrantRef, RawJson, Rule, SecretText, providers::Tls};

/// The granted tools and the turn's budgets. `tools: []` means pass-through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsFile {
    #[serde(default)]
    pub policy: Policy,
    pub tools: Vec<Tool>,
    pub version: u32,
    #[serde(
        rename = "x-toolcrib",
        default,
        skip_serializing_if = "ToolsExtension::is_empty"
    )]
    pub extension: ToolsExtension,
}

/// Settings per service, for which ADR-020's format has no place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsExtension {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceSettings>,
}

impl ToolsExtension {
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// One granted tool, under its canonical name `<surface>.<tool>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<RawJson>,
    #[serde(default)]
    pub description: String,
    pub execution: Execution,
    /// JSON Schema of the arguments, with the bytes of the normalized descriptor.
    #[serde(rename = "inputSchema")]
    pub input_schema: RawJson,
    pub name: String,
    #[serde(rename = "x-toolcrib", default)]
    pub extension: ToolExtension,
}

/// Toolcrib's additions to an entry of ADR-020's format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolExtension {
    /// Names of the enforced ClusterToolPolicies that ask for an approval of each call, sorted. The
    /// entry digest covers whether it is empty, and `requires` contains [`crate::names::APPROVAL`]
    /// if it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approval: Vec<String>,
    /// Digest over both schemas, execution without `auth`, tier, [`crate::Annotations`] if one is set,
    /// and whether `approval` is empty, in a versioned form (`v1:<hex>`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_digest: Option<String>,
    /// The surface is in another namespace: its service gets `name.namespace` as `claw_id`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRef>,
    /// MCP: JSON Schema for the server's structured results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<RawJson>,
    /// Names of restrictions that a reader must know. A reader that does not know one withholds
    /// this tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The rules that give the tool, or empty if none of them has conditions. Rules without
    /// conditions all give the same, so only the first of them is listed. If all rules have
    /// conditions, `requires` contains [`crate::names::RULES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Text instead of an enum: an unknown tier withholds the tool instead of making the file
    /// undecodable. Missing: System.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Name of the first ClusterToolPolicy with `enforcement: Audit` that would deny the tool. No
    /// digest of the tool covers it, since such a policy does not change how calls run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<String>,
}

/// The harm that a call can do, in ascending order. Of several tiers, the highest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    ReadOnly,
    Workspace,
    System,
    Elevated,
}

impl Tier {
    pub const ALL: [Tier; 4] = [
        Tier::ReadOnly,
        Tier::Workspace,
        Tier::System,
        Tier::Elevated,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Tier::ReadOnly => "ReadOnly",
            Tier::Workspace => "Workspace",
            Tier::System => "System",
            Tier::Elevated => "Elevated",
        }
    }

    /// Returns `None` for a tier of a later release.
    pub fn parse(text: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.name() == text)
    }

    /// Returns the tier of a tool with tier `self` that is called with `method` (`None`: over MCP).
    /// A ReadOnly tool with a method that writes becomes System, like a tool without a tier.
    pub fn called_with(self, method: Option<HttpMethod>) -> Tier {
        let writes = method.is_some_and(|method| method.reading().is_none());
        match self {
            Tier::ReadOnly if writes => Tier::System,
            Tier::ReadOnly | Tier::Workspace | Tier::System | Tier::Elevated => self,
        }
    }

    pub(crate) fn elevated() -> Tier {
        Tier::Elevated
    }
}

/// The execution of a call. The model never sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_order"
    )]
    pub auth: Option<Auth>,
    /// `http(s)://<service>.<namespace>.svc:<port>` or the surface's url; `path` is appended to
    /// this url's own path.
    pub base_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyKind>,
    /// Wraps the body: `{"<body_key>": {arguments}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_key: Option<String>,
    /// HTTP: name of the header by whose value the service recognizes a repeated call. A reader that
    /// does not know it sends no such header, and repeats no call because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<HttpMethod>,
    /// Path template with `{placeholders}`; for MCP the server's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The surface's name in the agent's spec.
    pub service: String,
    /// MCP: the tool's name at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    pub transport: Transport,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Http,
    Mcp,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Mcp => "mcp",
        }
    }

    pub fn is_http(&self) -> bool {
        *self == Transport::Http
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl HttpMethod {
    /// Returns the method for a tool that only reads. `None` for PUT, PATCH and DELETE: they change
    /// the resource at the path, whatever the service does (RFC 9110, 9.3).
    pub fn reading(self) -> Option<ReadMethod> {
        match self {
            HttpMethod::Get => Some(ReadMethod::Get),
            HttpMethod::Head => Some(ReadMethod::Head),
            HttpMethod::Post => Some(ReadMethod::Post),
            HttpMethod::Put | HttpMethod::Patch | HttpMethod::Delete => None,
        }
    }
}

/// A method that a ReadOnly tool may be called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMethod {
    Get,
    Head,
    /// For searches with arguments in a body. HTTP leaves the meaning of POST to the service, so
    /// the author vouches that such a tool only reads.
    Post,
}

impl From<ReadMethod> for HttpMethod {
    fn from(method: ReadMethod) -> Self {
        match method {
            ReadMethod::Get => HttpMethod::Get,
            ReadMethod::Head => HttpMethod::Head,
            ReadMethod::Post => HttpMethod::Post,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyKind {
    Json,
}

/// The mediator's authentication to the service. Exactly one of the secret and `file` is set;
/// `file` is a path under the config directory whose content is the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Auth {
    Bearer {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<SecretText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    Header {
        header: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<SecretText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    Basic {
        username: SecretText,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<SecretText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    Oauth {
        token_url: String,
        client_id: SecretText,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_secret: Option<SecretText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scopes: Vec<String>,
    },
}

/// Serializes a tagged enum with sorted keys; serde alone would write the tag first.
pub(crate) fn in_order<S: Serializer>(
    tagged: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match serde_json::to_value(tagged).map_err(S::Error::custom)? {
        Value::Object(fields) => serializer.collect_map(BTreeMap::from_iter(fields)),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => other.serialize(serializer),
    }
}

/// The budgets of a turn, each at least 1. A missing field takes its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Milliseconds for which a call waits for an approval before the model is told that the decision
    /// is pending. `None`: two minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_wait_ms: Option<u64>,
    pub max_rounds: u32,
    pub max_tool_result_bytes: u64,
    pub timeout_per_tool_ms: u64,
    pub total_timeout_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            approval_wait_ms: None,
            max_rounds: 8,
            timeout_per_tool_ms: 30_000,
            total_timeout_ms: 120_000,
            max_tool_result_bytes: 16_384,
        }
    }
}
