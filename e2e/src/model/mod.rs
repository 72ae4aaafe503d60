//! The scripted model: a stand-in for a model provider that plays a script.
//!
//! It speaks OpenAI chat completions, Anthropic messages and OpenAI responses, streaming and
//! not, over plain HTTP, and it understands nothing: a [`Script`] says which reply each
//! request gets, by what the request holds. Tests and the demo use it where a real provider
//! would make them slow, costly and different on every run.
//!
//! - `script`: what a script may say, and which step a request gets (pure);
//! - `conversation`: the few facts of a request that scripts look at (pure);
//! - `wire`: a reply in each dialect, as JSON and as server-sent events (pure);
//! - `record`: the bounded memory of what was asked;
//! - `routes`: the HTTP surface.
//!
//! Invariant: a request is answered from the script and the request alone, but for the steps
//! that a script limits with `times`. Every route, the control routes too, wants the API key,
//! so that a runner without one learns nothing here.

mod conversation;
mod record;
mod routes;
mod script;
mod wire;

pub use conversation::{Conversation, Dialect};
pub use record::{Recorded, Recorder};
pub use routes::{ModelState, router};
pub use script::{
    ArgumentsSpec, CallSpec, Fault, NoScript, Reply, Script, Step, ToolRef, UsageSpec, When,
};
