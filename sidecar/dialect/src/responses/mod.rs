//! OpenAI's `POST /v1/responses`.
//!
//! History and reply are lists of items. Calls are the items that the runner has to
//! answer: `function_call`, `custom_tool_call`, and the built-ins that run on its side
//! (shell, computer, patches, approvals). What the provider runs itself, and reasoning,
//! is content and stays in place.
//!
//! With tools put in, the whole conversation must stand in the body: the rounds that the
//! runner does not see exist nowhere else. So a request that refers to state at the
//! provider (`previous_response_id`, `conversation`, `prompt`) or that is to be fetched
//! later (`background`) is refused; without tools it passes. `store` stays as it came.

pub(crate) mod answer;
pub(crate) mod history;
mod item;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
