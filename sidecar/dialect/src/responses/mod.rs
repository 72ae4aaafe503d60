//! OpenAI's `POST /v1/responses`.
//!
//! History and reply are lists of items. Calls are the items that the runner has to answer:
//! `function_call`, `custom_tool_call`, and the built-ins that run on its side (shell, computer,
//! patches, approvals). Reasoning and tools that the provider itself runs are content and stay in
//! place.
//!
//! With managed tools, the whole conversation must be in the body, because only the mediator has
//! the hidden rounds. So the mediator refuses a request that refers to state at the provider
//! (`previous_response_id`, `conversation`, `prompt`), or whose answer would be fetched later
//! (`background`). Without managed tools, such a request passes. `store` stays unchanged.

pub(crate) mod answer;
pub(crate) mod history;
mod item;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
