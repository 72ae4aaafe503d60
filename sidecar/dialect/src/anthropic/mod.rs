//! Anthropic's `POST /v1/messages`.
//!
//! Calls are the `tool_use` blocks. Tools that the provider itself runs (`server_tool_use`,
//! `mcp_tool_use` and their results) are content and stay in place.

pub(crate) mod answer;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
