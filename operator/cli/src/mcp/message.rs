//! The messages of a server: how long one may be, and which one answers a request.

use serde_json::Value;

/// The longest message in bytes.
pub const MESSAGE: usize = 16 * 1024 * 1024;

/// Whether a message answers the request of this id.
pub fn answers(message: &Value, id: u64) -> bool {
    message.get("method").is_none() && message.get("id") == Some(&id.into())
}
