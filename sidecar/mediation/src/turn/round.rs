//! One round: a reply's managed calls, each answered exactly once.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_dialect::{RawCall, Reply, ToolResult};

use super::Turn;
use super::past::{Key, Past};
use crate::call::{CallId, ManagedCall, RunnerCall};
use crate::catalog::CatalogTool;
use crate::codes::ResultCode;
use crate::display::Display;
use crate::outcome::{Certainty, ToolOutcome};
use crate::partition::{Owned, Partition};
use crate::presented::{Presented, Resolved};
use crate::rejection::{duplicate_result, order_result, unknown_result, unready_result};
use crate::slot::{Answered, Slot, SlotState, as_json};
use crate::trace::{TraceRound, TraceUsage};

/// Limits the calls of one group: enough to hide latency, too few to flood a service.
const MAX_PARALLEL: usize = 8;

#[derive(Debug)]
pub(super) struct Round {
    number: u32,
    pub(super) reply: Reply,
    slots: Vec<Slot>,
    /// The budget of rounds is used up: these calls were not run, and no others will be.
    pub(super) exhausted: bool,
    intervention: Option<ResultCode>,
}

/// A call that the mediator answers: its index, and the owner of its name.
#[derive(Debug)]
pub(super) struct Ours {
    index: usize,
    tool: Meant,
}

#[derive(Debug)]
enum Meant {
    Tool(Arc<CatalogTool>),
    /// A tool that the agent does not get, by its canonical name.
    Denied(String, ResultCode),
    Unknown,
}

/// Finds the owner of each call of a reply.
pub(super) fn owners(reply: &Reply, presented: &Presented) -> Vec<Owned<Ours>> {
    let owner = |(index, call): (usize, &RawCall)| {
        let tool = match presented.resolve(&call.name) {
            Resolved::Runner => {
                return Owned::Runner(RunnerCall {
                    index,
                    name: call.name.clone(),
                });
            }
            Resolved::Managed(tool) => Meant::Tool(tool.clone()),
            Resolved::Denied(canonical, code) => Meant::Denied(canonical.to_string(), code),
            Resolved::Nobody => Meant::Unknown,
        };
        Owned::Managed(Ours { index, tool })
    };
    reply.calls().iter().enumerate().map(owner).collect()
}

impl Turn {
    /// Creates the round of all calls that the mediator answers; rejects those that must not run.
    pub(super) fn begin_round(&mut self, reply: Reply, partition: Partition<Ours>) -> Round {
        let number = self.rounds;
        let exhausted = number > self.policy.max_rounds.max(1);
        let (calls, runner, order) = match partition {
            Partition::NoCalls => (Vec::new(), Vec::new(), None),
            Partition::Managed(calls) => (calls, Vec::new(), None),
            Partition::ManagedThenRunner { managed, hidden } => {
                let code = out_of_order(&managed, hidden.len());
                (managed, Vec::new(), code)
            }
            // Happens only for a runner that accepts a single call per reply.
            Partition::RunnerOwned(calls) => (Vec::new(), calls, Some(ResultCode::MixedToolOrder)),
            Partition::Interleaved(calls) => {
                let (mut ours, mut runner) = (Vec::new(), Vec::new());
                for call in calls {
                    match call {
                        Owned::Managed(call) => ours.push(call),
                        Owned::Runner(call) => runner.push(call),
                    }
                }
                (ours, runner, Some(ResultCode::MixedToolOrder))
            }
        };
        let order = if exhausted {
            Some(ResultCode::ToolBudgetExhausted)
        } else {
            order.or_else(|| out_of_order(&calls, 0))
        };
        let mut slots: Vec<Slot> = calls
            .into_iter()
            .map(|ours| self.slot(&reply, ours, order))
            .collect();
        slots.extend(runner.iter().map(|call| runner_slot(&reply, call, order)));
        slots.sort_by_key(|slot| slot.index);
        Round {
            number,
            reply,
            slots,
            exhausted,
            intervention: order,
        }
    }

    fn slot(&mut self, reply: &Reply, ours: Ours, order: Option<ResultCode>) -> Slot {
        let call = &reply.calls()[ours.index];
        let written = as_json(&call.arguments);
        let (name, tool) = match &ours.tool {
            Meant::Tool(tool) => (tool.name().to_string(), Some(tool.clone())),
            Meant::Denied(canonical, _) => (canonical.clone(), None),
            Meant::Unknown => (call.name.clone(), None),
        };
        let mut slot = Slot {
            index: ours.index,
            name,
            compiled: !matches!(ours.tool, Meant::Unknown),
            tool,
            arguments: written,
            state: SlotState::Answered(Answered::rejected(String::new(), false)),
        };
        let state = match (order, ours.tool) {
            (Some(code), _) => Err(Answered::rejected(order_result(code), false)),
            (None, Meant::Denied(_, code)) => Err(Answered::rejected(
                unknown_result(code, &call.name),
                code == ResultCode::PermissionDenied,
            )),
            (None, Meant::Unknown) => {
                let result = unknown_result(ResultCode::UnsupportedTool, &call.name);
                Err(Answered::rejected(result, false))
            }
            (None, Meant::Tool(tool)) => self.ready(ours.index, call, &tool),
        };
        match state {
            Ok(call) => {
                slot.arguments = call.arguments.clone();
                slot.state = SlotState::Waiting(call);
            }
            Err(answered) => slot.state = SlotState::Answered(answered),
        }
        slot
    }

    fn ready(
        &mut self,
        index: usize,
        call: &RawCall,
        tool: &CatalogTool,
    ) -> Result<ManagedCall, Answered> {
        let round = self.rounds;
        let id = CallId { round, index };
        ManagedCall::read(id, &call.arguments, tool, &self.claw_id).map_err(|why| {
            let failures = self.failures.entry(tool.name().to_string()).or_default();
            *failures += u32::from(why.is_in_arguments());
            unready_result(tool, &why, *failures)
        })
    }
}

impl Round {
    /// Returns the calls to run next; empty if every call has its result.
    pub(super) fn next_group(&mut self, past: &mut Past, now: Duration) -> Vec<ManagedCall> {
        let mut group: Vec<ManagedCall> = Vec::new();
        let mut keys: Vec<Key> = Vec::new();
        for slot in &mut self.slots {
            let SlotState::Waiting(call) = &slot.state else {
                // Within a group, an answered call is a barrier unless its tool is parallel_safe
                // too.
                if group.is_empty() || slot.parallel_safe() {
                    continue;
                }
                break;
            };
            if !group.is_empty() && (!slot.parallel_safe() || group.len() == MAX_PARALLEL) {
                break;
            }
            let key = Key::of(call);
            // A repetition can only be detected after the other call has its outcome.
            if keys.contains(&key) {
                break;
            }
            let annotations = slot.tool.as_ref().map(|tool| tool.annotations);
            if let Some(duplicate) = past.duplicate(&key, annotations.unwrap_or_default()) {
                let mut answered =
                    Answered::rejected(duplicate_result(&slot.name, duplicate), true);
                answered.duplicate = Some(duplicate);
                slot.state = SlotState::Answered(answered);
                continue;
            }
            group.extend(slot.start(now));
            keys.push(key);
            if !slot.parallel_safe() {
                break;
            }
        }
        group
    }

    /// Stores one outcome. Returns `false` if no call waits for it.
    pub(super) fn finished(
        &mut self,
        id: CallId,
        outcome: &ToolOutcome,
        display: Option<Display>,
        latency: Duration,
        max_bytes: usize,
        past: &mut Past,
    ) -> bool {
        let found = self
            .slots
            .iter_mut()
            .find(|slot| matches!(&slot.state, SlotState::Running(call, _) if call.id == id));
        let Some(slot) = found else {
            return false;
        };
        let key = match &slot.state {
            SlotState::Running(call, _) => Key::of(call),
            SlotState::Waiting(_) | SlotState::Answered(_) => return false,
        };
        let certainty = slot.finish(outcome, display, latency, max_bytes);
        if certainty != Certainty::NeverRan {
            past.executed(key, self.number, certainty);
        }
        true
    }

    pub(super) fn running(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| matches!(slot.state, SlotState::Running(..)))
    }

    /// Returns true if a call is not yet dispatched.
    pub(super) fn waits(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| matches!(slot.state, SlotState::Waiting(_)))
    }

    /// Ends all calls that have no result yet.
    pub(super) fn cut_short(&mut self, code: ResultCode, now: Duration) {
        for slot in &mut self.slots {
            slot.cut_short(code, now);
        }
    }

    pub(super) fn results(&self) -> Vec<ToolResult> {
        self.slots
            .iter()
            .filter_map(|slot| {
                slot.answered().map(|answered| ToolResult {
                    call: slot.index,
                    content: answered.result.clone(),
                })
            })
            .collect()
    }

    pub(super) fn trace(&self) -> TraceRound {
        let tool_calls = self.slots.iter().filter_map(Slot::trace).collect();
        TraceRound {
            round: self.number,
            tool_calls,
            round_usage: TraceUsage::of(self.reply.usage(), None),
        }
    }

    pub(super) fn intervention(&self) -> Option<String> {
        self.intervention.map(|code| code.to_string())
    }

    /// Returns true if a terminal tool succeeded. It is the last call, or nothing ran.
    pub(super) fn ended_by_success(&self) -> bool {
        self.slots.iter().any(|slot| {
            let terminal = slot.tool.as_ref().is_some_and(terminal);
            terminal && slot.answered().is_some_and(|answered| answered.success)
        })
    }

    pub(super) fn satisfied(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.answered().is_some_and(|answered| answered.made))
    }
}

fn terminal(tool: &Arc<CatalogTool>) -> bool {
    tool.annotations.terminal_on_success
}

/// Detects a terminal call before other calls (the runner's `hidden` ones included): nothing runs.
fn out_of_order(calls: &[Ours], hidden: usize) -> Option<ResultCode> {
    let is_terminal = |ours: &Ours| matches!(&ours.tool, Meant::Tool(tool) if terminal(tool));
    let last = calls.len().checked_sub(1)?;
    calls
        .iter()
        .enumerate()
        .any(|(at, ours)| is_terminal(ours) && (at < last || hidden > 0))
        .then_some(ResultCode::TerminalOnSuccessOrder)
}

fn runner_slot(reply: &Reply, call: &RunnerCall, order: Option<ResultCode>) -> Slot {
    let code = order.unwrap_or(ResultCode::MixedToolOrder);
    Slot {
        index: call.index,
        name: call.name.clone(),
        compiled: false,
        tool: None,
        arguments: as_json(&reply.calls()[call.index].arguments),
        state: SlotState::Answered(Answered::rejected(order_result(code), false)),
    }
}
