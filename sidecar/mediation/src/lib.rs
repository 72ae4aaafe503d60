//! A turn as a state machine: the owner of each call, the calls that may run, the limits of a
//! turn, and the rounds that are kept for the next request.
//!
//! Pure: the caller passes the time and does the waiting. [`Catalog`] is one loaded version of the
//! granted tools; [`PresentedTools`] holds the tools that one request showed the model; [`Authority`] is
//! consulted at each dispatch. Both take the time of the clock, since rules of grants have windows.
//! [`Turn`] takes an [`Event`] and gives [`Effect`]s; [`DirectCall`] is a call that a runner makes
//! outside of a turn; [`http_call`] turns a permitted call into a request; [`Continuity`] puts hidden
//! rounds back; [`Scrubber`] removes known secrets from bytes.
//!
//! Invariants: every call of a reply is executed, returned or rejected exactly once; no
//! runner-owned call is executed and no managed call is shown to the runner (they are
//! different types, see [`Partition`]); every script of events ends; nothing follows
//! [`Effect::Answer`].
//!
//! The drive loop, with the IO as functions:
//!
//! ```
//! # use std::sync::Arc; use std::time::Duration;
//! # use toolcrib_dialect::{Dialect, Reply, Request};
//! # use toolcrib_manifest::{Policy, Streaming, Tier, ToolsFile};
//! # use toolcrib_mediation::*;
//! # fn ask_model(_: Vec<u8>) -> Vec<u8> {
//! #   br#"{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}]}"#.to_vec()
//! # }
//! # fn execute(_: LiveTool, _: &ManagedCall) -> ToolOutcome { unreachable!() }
//! # fn now() -> Duration { Duration::ZERO }
//! # fn clock() -> jiff::Timestamp { jiff::Timestamp::UNIX_EPOCH }
//! # let file: ToolsFile = serde_json::from_str(r#"{"version":1,"tools":[{"name":"pond.depth",
//! #   "inputSchema":{"type":"object"},"execution":{"transport":"http","service":"pond",
//! #   "base_url":"http://pond","method":"GET","path":"/depth"}}]}"#).unwrap();
//! # let body = br#"{"model":"house/otter-1","messages":[{"role":"user","content":"hi"}]}"#.to_vec();
//! let catalog = Arc::new(Catalog::load(&file, Tier::Elevated));
//! let authority = Authority::new(catalog, None);
//! let (rates, budgets) = (RateCounts::default(), BudgetCounts::default());
//! let request = Request::decode(Dialect::OpenaiChat, body).map_err(RunnerError::from)?;
//! let presented = PresentedTools::new(&authority, &request, clock());
//! let (mut turn, mut effects) = Turn::start(TurnConfig {
//!     request: Arc::new(request),
//!     presented,
//!     policy: Policy::default(),
//!     streaming: Streaming::Buffered,
//!     claw_id: ClawId { name: "otter".into(), namespace: "pond".into() },
//!     history: HistoryEdits::default(),
//!     prompt: None,
//!     context: None,
//! })?;
//! let answer = 'turn: loop {
//!     let mut events = Vec::new();
//!     for effect in std::mem::take(&mut effects) {
//!         match effect {
//!             // One body per candidate, since each has a model name of its own.
//!             Effect::CallModel(_) => {
//!                 let reply = ask_model(turn.request_body("otter-1")?);
//!                 events.push(match Reply::decode(Dialect::OpenaiChat, reply) {
//!                     Ok(reply) => Event::Replied(reply),
//!                     Err(error) => Event::ModelFailed(ModelFailure::Malformed(error)),
//!                 });
//!             }
//!             // All calls of one effect run at once; authority is checked at dispatch.
//!             Effect::CallTools(calls) => for call in calls {
//!                 let (allowed_by, outcome) = match authority.permits(&call, &rates, &budgets, clock()) {
//!                     Ok(tool) => (tool.allowed_by().cloned(), execute(tool, &call)),
//!                     Err(denied) => (None, denied.into()),
//!                 };
//!                 let max_result_bytes = Policy::default().max_tool_result_bytes;
//!                 let (call, latency) = (call.id(), now());
//!                 events.push(Event::ToolFinished {
//!                     call, outcome, display: None, allowed_by, latency, max_result_bytes,
//!                 });
//!             },
//!             Effect::Emit(_bytes) => {}
//!             Effect::Answer(answer) => break 'turn answer,
//!         }
//!     }
//!     for event in events {
//!         effects.extend(turn.step(now(), event));
//!     }
//! };
//! assert_eq!(answer.response.unwrap().status, 200);
//! # Ok::<(), RunnerError>(())
//! ```

mod access;
mod calls;
mod codes;
mod direct_call;
mod text;
mod tools;
mod turn;

pub use access::approval::{ApprovalNeed, PendingNeed};
pub use access::authority::{Authority, LiveTool};
pub use access::budgets::BudgetCounts;
pub use access::denial::Denial;
pub use access::fabricated_calls::fabricated_calls;
pub use access::partition::{OwnedCall, Partition, partition};
pub use access::presented::{NameOwner, PresentedTools, RememberedTools};
pub use access::questions::{
    Approval, EarlierQuestion, Ending, Progress, Questions, Refusal, SETTLED, Standing, WaitingCall,
};
pub use access::rates::{RateCounts, RuleCounts};
pub use calls::call::{CallId, ManagedCall, RunnerCall};
pub use calls::claw_id::ClawId;
pub use calls::connection::{ConnectionCause, ConnectionFailure};
pub use calls::http_call::{HttpCall, fill_claw_id, http_call, http_method, path_at};
pub use calls::outcome::{Certainty, ToolBody, ToolFailure, ToolOutcome};
pub use calls::target::target;
pub use calls::trace::{DuplicateOf, RecordStatus, TraceCall, TraceRound, TraceUsage, TurnRecord};
pub use codes::{ResultCode, RunnerCode, RunnerError, upstream_status};
pub use direct_call::{DirectCall, DirectResult};
pub use text::display::Display;
pub use text::scrub::Scrubber;
pub use tools::catalog::{AgentName, Catalog, CatalogTool, OutputMismatch};
pub use tools::names::alias;
pub use tools::offer::OfferedTool;
pub use tools::rules::{AllowedBy, WouldDeny};
pub use turn::continuity::{Continuity, HiddenRounds, HistoryEdits};
pub use turn::feeds::{FeedSnapshot, FeedState, MAX_FEED, MAX_FEEDS, feed_name, feeds_message};
pub use turn::{
    Effect, Event, ModelCall, ModelFailure, Purpose, Response, Turn, TurnConfig, TurnResult,
    first_edits,
};
