//! The format of a policy test: a document of a client-side kind, which no cluster knows.
//!
//! Its group is not that of the objects, so that a test never passes for one.

use anyhow::{anyhow, bail};
use serde::Deserialize;
use serde_json::Value;
use toolcrib_compile::{Loaded, Origin};

pub const API_VERSION: &str = "cli.toolcrib.dev/v1alpha1";
pub const KIND: &str = "ToolTest";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ToolTest {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    pub name: String,
    /// The agent's.
    pub namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub agent: String,
    /// The pod that calls, for an agent with `identity: Pod`.
    pub pod: Option<String>,
    pub cases: Vec<Case>,
}

/// One call of a model, and what is to come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    name: Option<String>,
    /// `SURFACE.TOOL`, with the agent's name for the surface.
    pub call: String,
    /// As the model writes them. Missing: `{}`.
    arguments: Option<Value>,
    /// The same as text, for what is no JSON, or JSON of a dangerous kind (repeated keys).
    arguments_text: Option<String>,
    pub expect: Expect,
}

/// What is written is compared; what is not may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub result: Verdict,
    /// The code in the result that the model reads: `permission_denied`, `schema_validation`.
    pub code: Option<String>,
    /// What gives the tool: `ToolGrant/analyst-reads`, `ToolDefaults/default`.
    pub by: Option<String>,
    /// Why compile withholds it: a diagnostic's code.
    pub withheld: Option<String>,
    pub tier: Option<String>,
    /// Whose the credential is: `PerAgent`, `Surface`, `None`.
    pub credential: Option<String>,
    /// As executed: with the agent's own `claw_id`.
    pub arguments: Option<Value>,
    pub request: Option<ExpectedRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub enum Verdict {
    /// It would be sent.
    Allowed,
    /// The model reads an error; nothing is sent.
    Denied,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRequest {
    pub method: Option<String>,
    pub url: Option<String>,
    /// `null`: there is none.
    #[serde(default, deserialize_with = "written")]
    pub body: Option<Value>,
}

/// Keeps a `null` that is written apart from what is not written.
fn written<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Case {
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.call.clone())
    }

    /// What the model writes.
    pub fn arguments_text(&self) -> anyhow::Result<String> {
        match (&self.arguments, &self.arguments_text) {
            (Some(_), Some(_)) => bail!("has arguments and argumentsText: keep one"),
            (Some(value), None) => Ok(value.to_string()),
            (None, Some(text)) => Ok(text.clone()),
            (None, None) => Ok("{}".to_owned()),
        }
    }
}

/// The tests among the documents.
pub fn tests(loaded: &Loaded) -> anyhow::Result<Vec<(Origin, ToolTest)>> {
    let group = API_VERSION.split('/').next().unwrap_or_default();
    loaded
        .others
        .iter()
        .filter_map(|document| {
            let version = document.value["apiVersion"].as_str()?;
            let ours = version.split('/').next() == Some(group);
            ours.then(|| read(version, document.origin.clone(), &document.value))
        })
        .collect()
}

fn read(version: &str, origin: Origin, value: &Value) -> anyhow::Result<(Origin, ToolTest)> {
    let place = format!("{}, document {}", origin.path, origin.document);
    let kind = value["kind"].as_str().unwrap_or_default();
    if version != API_VERSION || kind != KIND {
        bail!("{place}: is {kind} of {version}; this release knows {KIND} of {API_VERSION}");
    }
    let test: ToolTest = serde_path_to_error::deserialize(value).map_err(|error| {
        let (at, why) = (error.path().to_string(), error.inner());
        anyhow!("{place}: .{at}: {why}: `kubectl toolcrib test --help` shows one")
    })?;
    Ok((origin, test))
}
