//! Anthropic's `POST /v1/messages`.
//!
//! Calls are the `tool_use` blocks. What the provider runs itself (`server_tool_use`,
//! `mcp_tool_use` and their results) is content and stays in place.

pub(crate) mod answer;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
