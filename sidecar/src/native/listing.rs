//! The granted tools as an MCP client sees them. Pure.

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use toolcrib_mcp::{Raw, raw};
use toolcrib_mediation::{Authority, Presented};

/// What `tools/list` gives.
#[derive(Debug)]
pub struct Listing {
    /// The array.
    pub tools: Raw,
    /// Equal ones are the same list.
    pub digest: [u8; 32],
}

/// An address, a credential or a grant is nobody's business here. The result has the form
/// that a model reads, whatever the service answers, so there is no output schema.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolEntry<'a> {
    /// As a model sees it in mediated mode.
    name: &'a str,
    /// The canonical name.
    title: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    annotations: Hints,
}

/// From what was compiled and reviewed, never from a server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hints {
    read_only_hint: bool,
    idempotent_hint: bool,
}

impl Listing {
    pub fn of(authority: &Authority) -> Self {
        let presented = Presented::alone(authority);
        let tools: Vec<ToolEntry<'_>> = presented
            .tools()
            .map(|(name, tool)| ToolEntry {
                name,
                title: tool.name(),
                description: &tool.tool.description,
                input_schema: serde_json::from_str(tool.shown_schema())
                    .expect("a schema that was loaded is JSON"),
                annotations: Hints {
                    read_only_hint: tool.is_read_only(),
                    idempotent_hint: tool.annotations.idempotent,
                },
            })
            .collect();
        let tools = raw(&tools);
        let digest = Sha256::digest(tools.get()).into();
        Self { tools, digest }
    }
}
