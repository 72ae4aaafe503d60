//! OpenAI's `POST /v1/responses`.
//!
//! History and reply are lists of items. Calls are the items that the runner has to answer:
//! `function_call`, `custom_tool_call`, and the built-ins that run on its side (shell, computer,
//! patches, approvals). Reasoning and tools that the provider itself runs are content and stay in
//! place.
//!
//! With `previous_response_id`, the provider has the conversation so far. Each request of a turn
//! continues the same response, and its input has the hidden rounds of the turn, so the response
//! that the runner gets has them in its past.
//!
//! With managed tools, the mediator refuses a request that refers to other state at the provider
//! (`conversation`, `prompt`), or whose answer would be fetched later (`background`). Without
//! managed tools, such a request passes. `store` stays unchanged.

pub(crate) mod answer;
pub(crate) mod history;
mod item;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
