//! Messages of an MCP server: their bound, and finding the answer to a request.

use serde_json::Value;

/// Longest message, in bytes.
pub const MESSAGE: usize = 16 * 1024 * 1024;

/// Whether a message answers the request with this id.
pub fn answers(message: &Value, id: u64) -> bool {
    message.get("method").is_none() && message.get("id") == Some(&id.into())
}
