//! A call that a runner makes by itself, past any turn, as an MCP client does.
//!
//! Read, checked, run and answered as a call of a turn is, with the same result. What only a
//! turn has is not here: an order among calls, repetitions that are skipped, a count of
//! failures and of rounds, an end by success. Who sees the results, and decides to call again,
//! is the runner.

use std::time::Duration;

use crate::call::{CallId, ManagedCall};
use crate::claw_id::ClawId;
use crate::codes::ResultCode;
use crate::display::Display;
use crate::outcome::ToolOutcome;
use crate::presented::{Presented, Resolved};
use crate::rejection::{unknown_result, unready_result};
use crate::slot::{Answered, Slot, SlotState, as_json};
use crate::trace::{RecordStatus, TraceRound, TraceUsage, TurnRecord};

/// Its place in the record: the only call of the only round.
const ID: CallId = CallId { round: 1, index: 0 };

#[derive(Debug)]
pub struct LoneCall(Slot);

/// The result for the runner, and the record of the call.
#[derive(Clone, Debug, PartialEq)]
pub struct LoneAnswer {
    /// JSON, as a model reads it.
    pub result: String,
    pub is_success: bool,
    pub record: TurnRecord,
}

impl LoneCall {
    /// `name` is the presented or the canonical one; `arguments` are as the runner wrote them.
    pub fn new(presented: &Presented, claw_id: &ClawId, name: &str, arguments: &str) -> Self {
        let mut slot = Slot {
            index: ID.index,
            name: name.to_string(),
            compiled: false,
            tool: None,
            arguments: as_json(arguments),
            state: SlotState::Answered(Answered::rejected(String::new(), false)),
        };
        slot.state = match presented.resolve(name) {
            Resolved::Managed(tool) => {
                slot.name = tool.name().to_string();
                slot.compiled = true;
                slot.tool = Some(tool.clone());
                match ManagedCall::read(ID, arguments, tool, claw_id) {
                    Ok(call) => {
                        slot.arguments = call.arguments.clone();
                        SlotState::Waiting(call)
                    }
                    Err(why) => SlotState::Answered(unready_result(tool, &why, 1)),
                }
            }
            // Its client may have seen the tool in a list a moment ago: it is denied, as one
            // that is withdrawn in mid-turn is.
            Resolved::Nobody | Resolved::Runner => rejected(ResultCode::PermissionDenied, name),
            Resolved::Denied(canonical, code) => {
                slot.name = canonical.to_string();
                slot.compiled = true;
                let code = match code {
                    ResultCode::UnsupportedTool => ResultCode::PermissionDenied,
                    code => code,
                };
                rejected(code, name)
            }
        };
        Self(slot)
    }

    /// The call to dispatch at `now`, once; `None`: it is answered already.
    pub fn start(&mut self, now: Duration) -> Option<ManagedCall> {
        self.0.start(now)
    }

    pub fn finish(
        &mut self,
        outcome: &ToolOutcome,
        display: Option<Display>,
        latency: Duration,
        max_result_bytes: u64,
    ) {
        let max_bytes = usize::try_from(max_result_bytes).unwrap_or(usize::MAX);
        self.0.finish(outcome, display, latency, max_bytes.max(1));
    }

    /// The runner has disconnected, or its access has ended.
    pub fn cut_short(&mut self, now: Duration) {
        self.0.cut_short(ResultCode::Canceled, now);
    }

    /// `error`: the code towards the runner where it gets no result.
    pub fn end(self, error: Option<&'static str>) -> LoneAnswer {
        let answered = self.0.answered();
        LoneAnswer {
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
                    tool_calls: self.0.trace().into_iter().collect(),
                    round_usage: TraceUsage::default(),
                }],
                interventions: Vec::new(),
            },
        }
    }
}

fn rejected(code: ResultCode, name: &str) -> SlotState {
    SlotState::Answered(Answered::rejected(unknown_result(code, name), false))
}
