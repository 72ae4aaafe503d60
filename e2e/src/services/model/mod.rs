//! The scripted model: a stand-in for a model provider that plays a script.
//!
//! It speaks OpenAI chat completions, Anthropic messages and OpenAI responses, streaming and not,
//! over plain HTTP. It has no model: a [`Script`] chooses the reply by the content of the
//! request. Tests and the demo use it where a real provider would be slow, costly and different
//! on every run.
//!
//! - `script`: the format of a script, and the choice of a step (pure);
//! - `conversation`: the few facts of a request that scripts test (pure);
//! - `wire`: a reply in each dialect, as JSON and as server-sent events (pure);
//! - `stored`: responses that a later request continues by their id;
//! - `record`: the bounded memory of requests;
//! - `routes`: the HTTP surface.
//!
//! Invariant: a reply depends on the script, the request and the response that the request
//! continues, except for steps that a script limits with `times`. Every route, the control routes
//! too, requires the API key, so a runner without the key learns nothing here.

mod conversation;
mod record;
mod routes;
mod script;
mod stored;
mod wire;

pub use conversation::{Conversation, Dialect};
pub use record::{Recorder, RequestRecord};
pub use routes::{ModelState, router};
pub use script::{
    ArgumentsSpec, CallSpec, Fault, NoScript, Reply, Script, Step, StepCondition, ToolRef,
    UsageSpec,
};
