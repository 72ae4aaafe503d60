//! `mcp.json` of the context: what connects a runner's own MCP client to the mediator's
//! `/mcp`. One server, and the runner's token as the name of a variable that injection sets:
//! the file is no secret.
//!
//! Generic is what most clients read: `mcpServers` with `type`, `url` and `headers`, and
//! `${NAME}` for a variable.

use serde_json::{Value, json};
use toolcrib_crds::Runner;

use crate::names;

pub(crate) fn of(runner: Runner) -> String {
    let (list, kind, transport) = match runner {
        Runner::Generic | Runner::ClaudeCode => ("mcpServers", "type", "http"),
        // The member `mcp` of its own configuration, to be named there by `$include`.
        Runner::OpenClaw => ("servers", "transport", "streamable-http"),
    };
    let config = json!({
        list: {
            names::MCP_SERVER: {
                kind: transport,
                "url": names::mcp_url(),
                "headers": {"Authorization": format!("Bearer ${{{}}}", names::ENV_TOKEN)},
            }
        }
    });
    pretty(&config)
}

/// People look into it.
fn pretty(config: &Value) -> String {
    let text = serde_json::to_string_pretty(config).expect("a JSON value is always JSON");
    text + "\n"
}
