//! One round: a reply's managed calls, each answered exactly once.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_dialect::{RawCall, Reply, ToolResult};

use super::Turn;
use super::repetition::{Key, Repetitions};
use crate::access::partition::{OwnedCall, Partition};
use crate::access::presented::{NameOwner, PresentedTools};
use crate::calls::call::{CallId, ManagedCall, RunnerCall};
use crate::calls::call_state::{CallFinish, CallPhase, CallResult, CallState, as_json};
use crate::calls::outcome::Certainty;
use crate::calls::rejection::{duplicate_result, order_result, unknown_result, unready_result};
use crate::calls::trace::{self, TraceRound};
use crate::codes::ResultCode;
use crate::tools::catalog::CatalogTool;
use crate::tools::offer::OfferedTool;

/// Limits the calls of one group: enough to hide latency, too few to flood a service.
const MAX_PARALLEL: usize = 8;

#[derive(Debug)]
pub(super) struct Round {
    number: u32,
    /// The time of the reply, since the request.
    received: Duration,
    pub(super) reply: Reply,
    states: Vec<CallState>,
    /// The budget of rounds is used up: these calls were not run, and no others will be.
    pub(super) exhausted: bool,
    intervention: Option<ResultCode>,
}

/// A call that the mediator answers: its index, and the owner of its name.
#[derive(Debug)]
pub(super) struct MediatorCall {
    index: usize,
    tool: ToolLookup,
}

#[derive(Debug)]
enum ToolLookup {
    Tool(Arc<OfferedTool>),
    /// A tool that the agent does not get, by its canonical name.
    Denied(String, ResultCode),
    Unknown,
}

/// Finds the owner of each call of a reply.
pub(super) fn owners(reply: &Reply, presented: &PresentedTools) -> Vec<OwnedCall<MediatorCall>> {
    let owner = |(index, call): (usize, &RawCall)| {
        let tool = match presented.resolve(&call.name) {
            NameOwner::Runner => {
                return OwnedCall::Runner(RunnerCall {
                    index,
                    name: call.name.clone(),
                });
            }
            NameOwner::Managed(tool) => ToolLookup::Tool(tool.clone()),
            NameOwner::Denied(canonical, code) => ToolLookup::Denied(canonical.to_string(), code),
            NameOwner::Unknown => ToolLookup::Unknown,
        };
        OwnedCall::Managed(MediatorCall { index, tool })
    };
    reply.calls().iter().enumerate().map(owner).collect()
}

impl Turn {
    /// Creates the round of all calls that the mediator answers; rejects those that must not run.
    pub(super) fn begin_round(
        &mut self,
        reply: Reply,
        partition: Partition<MediatorCall>,
    ) -> Round {
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
                let (mut managed, mut runner) = (Vec::new(), Vec::new());
                for call in calls {
                    match call {
                        OwnedCall::Managed(call) => managed.push(call),
                        OwnedCall::Runner(call) => runner.push(call),
                    }
                }
                (managed, runner, Some(ResultCode::MixedToolOrder))
            }
        };
        let order = if exhausted {
            Some(ResultCode::ToolBudgetExhausted)
        } else {
            order.or_else(|| out_of_order(&calls, 0))
        };
        let mut states: Vec<CallState> = calls
            .into_iter()
            .map(|call| self.call_state(&reply, call, order))
            .collect();
        states.extend(
            runner
                .iter()
                .map(|call| runner_call_state(&reply, call, order)),
        );
        states.sort_by_key(|state| state.index);
        Round {
            number,
            received: self.now,
            reply,
            states,
            exhausted,
            intervention: order,
        }
    }

    fn call_state(
        &mut self,
        reply: &Reply,
        mediator_call: MediatorCall,
        order: Option<ResultCode>,
    ) -> CallState {
        let call = &reply.calls()[mediator_call.index];
        let written = as_json(&call.arguments);
        let (name, tool) = match &mediator_call.tool {
            ToolLookup::Tool(tool) => {
                let tool = tool.catalog_tool().clone();
                (tool.name().to_string(), Some(tool))
            }
            ToolLookup::Denied(canonical, _) => (canonical.clone(), None),
            ToolLookup::Unknown => (call.name.clone(), None),
        };
        let mut state = CallState {
            index: mediator_call.index,
            name,
            compiled: !matches!(mediator_call.tool, ToolLookup::Unknown),
            tool,
            arguments: written,
            allowed_by: None,
            first_attempt: None,
            phase: CallPhase::Answered(CallResult::rejected(String::new(), false)),
        };
        let executable = match (order, mediator_call.tool) {
            (Some(code), _) => Err(CallResult::rejected(order_result(code), false)),
            (None, ToolLookup::Denied(_, code)) => Err(CallResult::rejected(
                unknown_result(code, &call.name),
                code == ResultCode::PermissionDenied,
            )),
            (None, ToolLookup::Unknown) => {
                let result = unknown_result(ResultCode::UnsupportedTool, &call.name);
                Err(CallResult::rejected(result, false))
            }
            (None, ToolLookup::Tool(tool)) => self.ready(mediator_call.index, call, &tool),
        };
        match executable {
            Ok(call) => state.wait(call),
            Err(answered) => state.phase = CallPhase::Answered(answered),
        }
        state
    }

    fn ready(
        &mut self,
        index: usize,
        call: &RawCall,
        tool: &OfferedTool,
    ) -> Result<ManagedCall, CallResult> {
        let round = self.rounds;
        let id = CallId { round, index };
        ManagedCall::read(
            id,
            &call.arguments,
            tool,
            &self.claw_id,
            self.presented.at(),
        )
        .map_err(|why| {
            let failures = self.failures.entry(tool.name().to_string()).or_default();
            *failures += u32::from(why.is_in_arguments());
            unready_result(tool, &why, *failures)
        })
    }
}

impl Round {
    /// Returns the calls to run next; empty if every call has its result.
    pub(super) fn next_group(
        &mut self,
        repetitions: &mut Repetitions,
        now: Duration,
    ) -> Vec<ManagedCall> {
        let mut group: Vec<ManagedCall> = Vec::new();
        let mut keys: Vec<Key> = Vec::new();
        for state in &mut self.states {
            let CallPhase::Waiting(call) = &state.phase else {
                // Within a group, an answered call is a barrier unless its tool is parallel_safe
                // too.
                if group.is_empty() || state.parallel_safe() {
                    continue;
                }
                break;
            };
            if !group.is_empty() && (!state.parallel_safe() || group.len() == MAX_PARALLEL) {
                break;
            }
            let key = Key::of(call);
            // A repetition can only be detected after the other call has its outcome.
            if keys.contains(&key) {
                break;
            }
            let tool = state.tool.as_deref();
            if let Some(duplicate) = tool.and_then(|tool| repetitions.duplicate(&key, tool)) {
                let mut answered =
                    CallResult::rejected(duplicate_result(&state.name, duplicate), true);
                answered.duplicate = Some(duplicate);
                state.phase = CallPhase::Answered(answered);
                continue;
            }
            group.extend(state.start(now, repetitions.first_attempt(&key)));
            keys.push(key);
            if !state.parallel_safe() {
                break;
            }
        }
        group
    }

    /// Stores one outcome. Returns `false` if no call waits for it.
    pub(super) fn finished(
        &mut self,
        id: CallId,
        finish: CallFinish<'_>,
        max_bytes: usize,
        repetitions: &mut Repetitions,
    ) -> bool {
        let found = self
            .states
            .iter_mut()
            .find(|state| matches!(&state.phase, CallPhase::Running(call, _) if call.id == id));
        let Some(state) = found else {
            return false;
        };
        let key = match &state.phase {
            CallPhase::Running(call, _) => Key::of(call),
            CallPhase::Waiting(_) | CallPhase::Answered(_) => return false,
        };
        // The next call of this turn with the same arguments has the same key.
        let tool = state.tool.as_ref();
        let repeatable = tool.is_some_and(|it| it.may_be_sent_again());
        let certainty = state.finish(finish, repeatable, max_bytes);
        if certainty != Certainty::NeverRan {
            repetitions.executed(key, id, certainty);
        }
        true
    }

    /// Makes dispatched calls that were not sent wait again.
    pub(super) fn unsent(&mut self, calls: &[CallId]) {
        for state in &mut self.states {
            if calls
                .iter()
                .any(|id| id.index == state.index && id.round == self.number)
            {
                state.unsent();
            }
        }
    }

    pub(super) fn running(&self) -> bool {
        self.states
            .iter()
            .any(|state| matches!(state.phase, CallPhase::Running(..)))
    }

    /// Returns true if a call is not yet dispatched.
    pub(super) fn waits(&self) -> bool {
        self.states
            .iter()
            .any(|state| matches!(state.phase, CallPhase::Waiting(_)))
    }

    /// Ends all calls that have no result yet.
    pub(super) fn cut_short(&mut self, code: ResultCode, now: Duration) {
        for state in &mut self.states {
            state.cut_short(code, now);
        }
    }

    pub(super) fn results(&self) -> Vec<ToolResult> {
        self.states
            .iter()
            .filter_map(|state| {
                state.answered().map(|answered| ToolResult {
                    call: state.index,
                    content: answered.result.clone(),
                })
            })
            .collect()
    }

    pub(super) fn trace(&self) -> TraceRound {
        let tool_calls = self.states.iter().filter_map(CallState::trace).collect();
        TraceRound {
            round: self.number,
            received_ms: u64::try_from(self.received.as_millis()).ok(),
            tool_calls,
            round_usage: trace::usage(self.reply.usage(), None),
        }
    }

    pub(super) fn intervention(&self) -> Option<String> {
        self.intervention.map(|code| code.to_string())
    }

    /// Returns true if a terminal tool succeeded. It is the last call, or nothing ran.
    pub(super) fn ended_by_success(&self) -> bool {
        self.states.iter().any(|state| {
            let terminal = state.tool.as_ref().is_some_and(terminal);
            terminal && state.answered().is_some_and(|answered| answered.success)
        })
    }

    pub(super) fn satisfied(&self) -> bool {
        self.states
            .iter()
            .any(|state| state.answered().is_some_and(|answered| answered.made))
    }
}

fn terminal(tool: &Arc<CatalogTool>) -> bool {
    tool.annotations.terminal_on_success
}

/// Detects a terminal call before other calls (the runner's `hidden` ones included): nothing runs.
fn out_of_order(calls: &[MediatorCall], hidden: usize) -> Option<ResultCode> {
    let is_terminal = |call: &MediatorCall| matches!(&call.tool, ToolLookup::Tool(tool) if terminal(tool.catalog_tool()));
    let last = calls.len().checked_sub(1)?;
    calls
        .iter()
        .enumerate()
        .any(|(at, call)| is_terminal(call) && (at < last || hidden > 0))
        .then_some(ResultCode::TerminalOnSuccessOrder)
}

fn runner_call_state(reply: &Reply, call: &RunnerCall, order: Option<ResultCode>) -> CallState {
    let code = order.unwrap_or(ResultCode::MixedToolOrder);
    CallState {
        index: call.index,
        name: call.name.clone(),
        compiled: false,
        tool: None,
        arguments: as_json(&reply.calls()[call.index].arguments),
        allowed_by: None,
        first_attempt: None,
        phase: CallPhase::Answered(CallResult::rejected(order_result(code), false)),
    }
}
