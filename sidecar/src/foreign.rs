//! The mediator's work on the bytes of a service's answer, without IO.
//!
//! `e2e/growth` counts how this work grows, and fuzzes it. Not here: connections, deadlines, and the
//! bounds on the bytes of a whole answer.

use toolcrib_mediation::Scrubber;

use crate::outbound::tools::{answer, mcp, oauth};

/// The result's bound of most agents, in bytes.
const MAX_RESULT: usize = 16 * 1024;

/// Decodes and scrubs the body of a tool's answer with this content encoding; `None` if it cannot
/// be decoded.
pub fn answer(encoding: &str, body: &[u8], scrubber: &Scrubber) -> Option<Vec<u8>> {
    answer::of_bytes(encoding, body, MAX_RESULT, scrubber)
}

/// Reads the answer of a token endpoint; returns whether it has a usable token.
pub fn token(body: &[u8]) -> bool {
    oauth::read(body).is_ok()
}

/// Reads a message of an MCP server, and the result in it. Returns the text for the model.
pub fn mcp_message(text: &str) -> Option<String> {
    mcp::text_of(text)
}
