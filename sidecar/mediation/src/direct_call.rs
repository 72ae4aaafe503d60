//! A direct call: a runner calls a tool outside of a turn, as an MCP client does.
//!
//! A direct call is read, checked, executed and answered like a call of a turn, with the same
//! result. It has no order among calls, no repetition check, no count of failures or rounds, and no
//! end by success: the runner sees each result and decides whether to call again.

use std::time::Duration;

use crate::access::presented::{NameOwner, PresentedTools};
use crate::calls::call::{CallId, ManagedCall};
use crate::calls::call_state::{CallFinish, CallPhase, CallResult, CallState, as_json};
use crate::calls::claw_id::ClawId;
use crate::calls::outcome::ToolOutcome;
use crate::calls::rejection::{unknown_result, unready_result};
use crate::calls::trace::{RecordStatus, TraceRound, TraceUsage, TurnRecord};
use crate::codes::ResultCode;
use crate::text::display::Display;
use crate::tools::rules::AllowedBy;

/// Id in the record: the only call of the only round.
const ID: CallId = CallId { round: 1, index: 0 };

#[derive(Debug)]
pub struct DirectCall(CallState);

/// The result for the runner, and the record of the call.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectResult {
    /// The result as JSON text, as a model reads it.
    pub result: String,
    pub is_success: bool,
    pub record: TurnRecord,
}

impl DirectCall {
    /// `name` is the presented or the canonical name; `arguments` are as the runner wrote them.
    pub fn new(presented: &PresentedTools, claw_id: &ClawId, name: &str, arguments: &str) -> Self {
        let mut state = CallState {
            index: ID.index,
            name: name.to_string(),
            compiled: false,
            tool: None,
            arguments: as_json(arguments),
            allowed_by: None,
            first_attempt: None,
            phase: CallPhase::Answered(CallResult::rejected(String::new(), false)),
        };
        match presented.resolve(name) {
            NameOwner::Managed(tool) => {
                state.name = tool.name().to_string();
                state.compiled = true;
                state.tool = Some(tool.catalog_tool().clone());
                match ManagedCall::read(ID, arguments, tool, claw_id, presented.at()) {
                    Ok(call) => state.wait(call),
                    Err(why) => state.phase = CallPhase::Answered(unready_result(tool, &why, 1)),
                }
            }
            // The client may have listed this tool a moment ago, so the call is denied, like a call
            // of a tool that is withdrawn during a turn.
            NameOwner::Unknown | NameOwner::Runner => {
                state.phase = rejected(ResultCode::PermissionDenied, name);
            }
            NameOwner::Denied(canonical, code) => {
                state.name = canonical.to_string();
                state.compiled = true;
                let code = if code == ResultCode::UnsupportedTool {
                    ResultCode::PermissionDenied
                } else {
                    code
                };
                state.phase = rejected(code, name);
            }
        }
        Self(state)
    }

    /// Returns the call to dispatch at `now`, once. `None` if it is answered already.
    pub fn start(&mut self, now: Duration) -> Option<ManagedCall> {
        self.0.start(now, None)
    }

    /// `allowed_by`: the rule by which the dispatch was permitted ([`crate::LiveTool::allowed_by`]).
    pub fn finish(
        &mut self,
        outcome: &ToolOutcome,
        display: Option<Display>,
        allowed_by: Option<AllowedBy>,
        latency: Duration,
        max_result_bytes: u64,
    ) {
        let max_bytes = usize::try_from(max_result_bytes).unwrap_or(usize::MAX);
        let max_bytes = max_bytes.max(1);
        let finish = CallFinish {
            outcome,
            display,
            allowed_by,
            latency,
        };
        // A service that recognizes repetitions does not help: the runner's next call has another key.
        let tool = self.0.tool.as_ref();
        let repeatable = tool.is_some_and(|it| it.is_repeatable());
        self.0.finish(finish, repeatable, max_bytes);
    }

    /// Notes, before the call is cut short, that it still waits for its approval.
    pub fn unsent(&mut self) {
        self.0.unsent();
    }

    /// Ends the call because the runner has disconnected or its access has ended.
    pub fn cut_short(&mut self, now: Duration) {
        self.0.cut_short(ResultCode::Canceled, now);
    }

    /// `error`: the code for a runner that gets no result.
    pub fn end(self, error: Option<&'static str>) -> DirectResult {
        let answered = self.0.answered();
        DirectResult {
            result: answered.map_or_else(String::new, |it| it.result.clone()),
            is_success: answered.is_some_and(|it| it.success),
            record: TurnRecord {
                status: match error {
                    None => RecordStatus::Ok,
                    Some(_) => RecordStatus::Error,
                },
                error,
                usage: TraceUsage::default(),
                tool_trace: vec![TraceRound {
                    round: ID.round,
                    received_ms: Some(0),
                    tool_calls: self.0.trace().into_iter().collect(),
                    round_usage: TraceUsage::default(),
                }],
                interventions: Vec::new(),
                undeclared_calls: Vec::new(),
            },
        }
    }
}

fn rejected(code: ResultCode, name: &str) -> CallPhase {
    CallPhase::Answered(CallResult::rejected(unknown_result(code, name), false))
}
