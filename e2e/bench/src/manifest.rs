//! Writes the mediator's four files, for an agent with any number of tools of one service.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolcrib_manifest::names;

/// The runner's token. The files have only its hash.
pub const TOKEN: &str = "otter:runner-5d0e27c4";

/// The key of the model, which does not check it.
pub const MODEL_KEY: &str = "sk-house-9b1c44e07d2f4a55";

/// The agent's `streaming` setting.
#[derive(Clone, Copy, Debug)]
pub enum Streaming {
    Buffered,
    Live,
}

impl Streaming {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Streaming::Buffered => "Buffered",
            Streaming::Live => "Live",
        }
    }
}

/// The transport of the tools.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Http,
    Mcp,
    /// MCP revision 2025-11-25, with one session for all tools.
    McpSession,
    /// MCP revision 2025-11-25 with one credential per tool, so each tool has its own session.
    McpSessions,
}

/// Writes the files of an agent whose model and tools are at `servers`.
pub fn write(
    dir: &Path,
    servers: SocketAddr,
    tools: usize,
    streaming: Streaming,
    transport: Transport,
) -> Result<()> {
    let tools: Vec<Value> = (0..tools).map(|at| tool(at, servers, transport)).collect();
    let native = !matches!(transport, Transport::Http);
    write_files(
        dir,
        servers,
        json!({"version": 1, "tools": tools}),
        MODEL_KEY,
        json!({"streaming": streaming.word(), "native": native}),
    )
}

/// Writes the files with this `tools.json`, this key of the provider and these members of
/// `agent.json`.
pub(crate) fn write_files(
    dir: &Path,
    servers: SocketAddr,
    tools: Value,
    key: &str,
    members: Value,
) -> Result<()> {
    let others = [
        ("tools.json", tools),
        (
            "providers.json",
            json!({"version": 1, "providers": {"house": {
                "auth": "bearer",
                "endpoints": [{
                    "base_url": format!("http://{servers}/v1"),
                    "dialect": "openai",
                    "responses": false,
                }],
                "keys": [{"id": "house/key", "secret": key}],
            }}}),
        ),
        ("feeds.json", json!([])),
    ];
    let mut digests = serde_json::Map::new();
    for (name, value) in &others {
        let text = value.to_string();
        digests.insert(name.to_string(), sha256(&text).into());
        fs::write(dir.join(name), text)?;
    }
    let mut agent = json!({
        "version": 1,
        "agent": "otter",
        "namespace": "pond",
        "claw_id": "otter",
        "tokens": [{"id": "token", "sha256": sha256(TOKEN)}],
        "max_tier": "Elevated",
        "files": digests,
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        agent[name] = value.clone();
    }
    fs::write(dir.join("agent.json"), agent.to_string())?;
    Ok(())
}

/// Rewrites the files so that one rule grants each tool, with a pinned argument, a condition and a
/// rate.
pub fn limit(dir: &Path) -> Result<()> {
    let read = |name: &str| -> Result<Value> {
        Ok(serde_json::from_str(&fs::read_to_string(dir.join(name))?)?)
    };
    let (mut tools, mut agent) = (read("tools.json")?, read("agent.json")?);
    for tool in tools["tools"].as_array_mut().into_iter().flatten() {
        tool["x-toolcrib"]["requires"] = json!([names::RULES, names::WHEN, names::RATES]);
        tool["x-toolcrib"]["rules"] = json!([{
            "digest": "r1:otter-reads",
            "grant": {"namespace": "pond", "name": "otter-reads"},
            "pin": {"unit": "m"},
            "rate": [{"calls": u32::MAX, "per_ms": 3_600_000}],
            "when": [{"expression": "args.spot.size() < 40", "message": "a short name"}],
        }]);
    }
    let tools = tools.to_string();
    agent["files"]["tools.json"] = sha256(&tools).into();
    fs::write(dir.join("tools.json"), tools)?;
    fs::write(dir.join("agent.json"), agent.to_string())?;
    Ok(())
}

/// Returns a tool of typical size: a description of one sentence, and a schema with some fields.
pub(crate) fn tool(at: usize, servers: SocketAddr, transport: Transport) -> Value {
    let over_mcp =
        |path| json!({"transport": "mcp", "path": path, "tool_name": format!("depth_{at}")});
    let mut execution = match transport {
        Transport::Http => json!({
            "transport": "http",
            "method": "GET",
            "path": format!("/api/v1/{{claw_id}}/depth_{at}"),
        }),
        Transport::Mcp => over_mcp("/mcp"),
        Transport::McpSession | Transport::McpSessions => over_mcp("/mcp/session"),
    };
    execution["service"] = "pond".into();
    execution["base_url"] = format!("http://{servers}").into();
    let reader = match transport {
        Transport::McpSessions => format!("pond-reader-{at}-2e81f7a90c"),
        Transport::Http | Transport::Mcp | Transport::McpSession => {
            "pond-reader-2e81f7a90c".to_string()
        }
    };
    execution["auth"] = json!({"type": "bearer", "token": reader});
    json!({
        "name": format!("pond.depth_{at}"),
        "description": "How deep the pond is at a spot, with the time of the last measurement \
            and what the surveyor wrote beside it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "spot": {"type": "string", "description": "Name of the spot, as on the map"},
                "unit": {"type": "string", "enum": ["m", "ft"]},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "since": {"type": "string", "description": "RFC 3339"},
                "claw_id": {"type": "string"},
            },
            "required": ["spot", "claw_id"],
            "additionalProperties": false,
        },
        "annotations": {"readOnly": true},
        "execution": execution,
        "x-toolcrib": {"tier": "ReadOnly", "grant": {"namespace": "pond", "name": "otter-reads"}},
    })
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
