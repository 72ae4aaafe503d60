//! The granted tools as an MCP client sees them. Pure.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use toolcrib_mcp::{Raw, raw};
use toolcrib_mediation::{Authority, PresentedTools};

/// The result of `tools/list`.
#[derive(Debug)]
pub struct Listing {
    /// The array.
    pub tools: Raw,
    /// The digest of the list.
    pub digest: [u8; 32],
}

/// A tool in the list. It shows no address, credential or grant, and no output schema: results
/// have the form that a model reads, whatever the service answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolEntry<'a> {
    /// The alias that a model sees in mediated mode.
    name: &'a str,
    /// The canonical name.
    title: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    annotations: Hints,
}

/// Hints from the compiled manifest, never from a server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hints {
    read_only_hint: bool,
    idempotent_hint: bool,
}

impl Listing {
    pub fn of(authority: &Authority, now: Timestamp) -> Self {
        let presented = PresentedTools::alone(authority, now);
        let tools: Vec<ToolEntry<'_>> = presented
            .tools()
            .map(|(name, offered)| {
                let tool = offered.catalog_tool();
                ToolEntry {
                    name,
                    title: tool.name(),
                    description: &tool.tool.description,
                    input_schema: serde_json::from_str(offered.shown_schema())
                        .expect("a loaded schema is JSON"),
                    annotations: Hints {
                        read_only_hint: tool.is_read_only(),
                        idempotent_hint: tool.annotations.idempotent,
                    },
                }
            })
            .collect();
        let tools = raw(&tools);
        let digest = Sha256::digest(tools.get()).into();
        Self { tools, digest }
    }
}
