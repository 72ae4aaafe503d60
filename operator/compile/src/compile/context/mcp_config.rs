//! Writes `mcp.json` of the context, which connects a runner's own MCP client to the mediator's
//! `/mcp`. The file lists one server, and names the variable in which injection puts the runner's
//! token, so it is no secret.
//!
//! Generic is the form that most clients read: `mcpServers` with `type`, `url` and `headers`, and
//! `${NAME}` for a variable.

use serde_json::{Value, json};
use toolcrib_crds::Runner;

use crate::names;

pub(crate) fn of(runner: Runner) -> String {
    let (list, kind, transport) = match runner {
        Runner::Generic | Runner::ClaudeCode => ("mcpServers", "type", "http"),
        // OpenClaw includes the file as the member `mcp` of its configuration, by `$include`.
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

/// Indents the file for people who read it.
fn pretty(config: &Value) -> String {
    let text = serde_json::to_string_pretty(config).expect("a JSON value is always JSON");
    text + "\n"
}
