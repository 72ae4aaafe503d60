//! The state of one call: it waits, runs, and gets exactly one result. Calls inside a turn and
//! direct MCP calls share it.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_bounds::json::{nests_within, numbers};
use toolcrib_dialect::json;
use toolcrib_manifest::RawJson;

use crate::calls::call::{CallId, ManagedCall};
use crate::calls::connection::ConnectionFailure;
use crate::calls::outcome::{Certainty, ToolOutcome, error_result};
use crate::calls::trace::{DuplicateOf, TraceCall};
use crate::codes::ResultCode;
use crate::text::display::Display;
use crate::tools::catalog::CatalogTool;
use crate::tools::rules::{AllowedBy, WouldDeny};

/// A call that gets its result from the mediator.
#[derive(Debug)]
pub(crate) struct CallState {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// True if `name` is the canonical name of a tool that the files have or had.
    pub(crate) compiled: bool,
    pub(crate) tool: Option<Arc<CatalogTool>>,
    pub(crate) arguments: RawJson,
    /// The rule that allowed the call: at its dispatch, or before, when it was read.
    pub(crate) allowed_by: Option<AllowedBy>,
    /// The attempt whose id the service got as the idempotency key, as far as is known.
    pub(crate) first_attempt: Option<CallId>,
    pub(crate) phase: CallPhase,
}

#[derive(Debug)]
pub(crate) enum CallPhase {
    Waiting(ManagedCall),
    /// The call, and the time of its dispatch.
    Running(ManagedCall, Duration),
    Answered(CallResult),
}

/// The end of a dispatch.
#[derive(Debug)]
pub(crate) struct CallFinish<'o> {
    pub(crate) outcome: &'o ToolOutcome,
    pub(crate) display: Option<Display>,
    pub(crate) allowed_by: Option<AllowedBy>,
    pub(crate) latency: Duration,
}

#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) result: String,
    pub(crate) latency: Duration,
    /// The call was sent to its service, as far as is known.
    pub(crate) executed: bool,
    /// The call satisfies a `tool_choice` that forces a call.
    pub(crate) made: bool,
    pub(crate) success: bool,
    pub(crate) duplicate: Option<DuplicateOf>,
    pub(crate) connection: Option<ConnectionFailure>,
    pub(crate) display: Option<Display>,
}

impl CallResult {
    pub(crate) fn rejected(result: String, made: bool) -> Self {
        Self {
            result,
            latency: Duration::ZERO,
            executed: false,
            made,
            success: false,
            duplicate: None,
            connection: None,
            display: None,
        }
    }
}

impl CallState {
    /// Makes a read call wait for its dispatch.
    pub(crate) fn wait(&mut self, call: ManagedCall) {
        self.arguments = call.arguments.clone();
        self.allowed_by = call.allowed_by.clone();
        self.phase = CallPhase::Waiting(call);
    }

    /// Returns the call to dispatch, if it still waits. `repeats`: the attempt that it repeats, as far as
    /// its service recognizes repetitions.
    pub(crate) fn start(&mut self, now: Duration, repeats: Option<CallId>) -> Option<ManagedCall> {
        let CallPhase::Waiting(call) = &self.phase else {
            return None;
        };
        let mut call = call.clone();
        call.first_attempt = call.first_attempt.map(|own| repeats.unwrap_or(own));
        self.phase = CallPhase::Running(call.clone(), now);
        Some(call)
    }

    /// Makes a dispatched call that was not sent wait again.
    pub(crate) fn unsent(&mut self) {
        if let CallPhase::Running(call, _) = &self.phase {
            self.phase = CallPhase::Waiting(call.clone());
        }
    }

    /// The attempt whose id the service gets as the idempotency key.
    fn keyed_by(&self) -> Option<CallId> {
        match &self.phase {
            CallPhase::Running(call, _) => call.first_attempt,
            CallPhase::Waiting(_) | CallPhase::Answered(_) => None,
        }
    }

    /// Stores the outcome of a running call. `repeatable`: the same call, made again, has no further
    /// effect.
    pub(crate) fn finish(
        &mut self,
        finish: CallFinish<'_>,
        repeatable: bool,
        max_bytes: usize,
    ) -> Certainty {
        let CallFinish {
            outcome,
            display,
            allowed_by,
            latency,
        } = finish;
        let certainty = outcome.certainty();
        self.allowed_by = allowed_by;
        let keyed_by = self.keyed_by();
        self.first_attempt = keyed_by.filter(|_| certainty != Certainty::NeverRan);
        self.phase = CallPhase::Answered(CallResult {
            result: outcome.result(&self.name, repeatable, max_bytes),
            latency,
            executed: certainty.is_sent(),
            made: true,
            success: outcome.is_success(),
            duplicate: None,
            connection: outcome.connection().cloned(),
            display,
        });
        certainty
    }

    /// Ends the call if it has no result yet.
    pub(crate) fn cut_short(&mut self, code: ResultCode, now: Duration) {
        let keyed_by = self.keyed_by();
        let (began, message) = match &self.phase {
            CallPhase::Answered(_) => return,
            CallPhase::Running(_, since) => {
                (Some(since), "the turn ended while it ran; it may have run")
            }
            CallPhase::Waiting(_) => (None, "the turn ended before it ran"),
        };
        self.phase = CallPhase::Answered(CallResult {
            latency: began.map_or(Duration::ZERO, |since| now.saturating_sub(*since)),
            executed: began.is_some(),
            ..CallResult::rejected(error_result(code, message, None, None), false)
        });
        self.first_attempt = keyed_by;
    }

    pub(crate) fn parallel_safe(&self) -> bool {
        self.tool
            .as_ref()
            .is_some_and(|tool| tool.annotations.parallel_safe)
    }

    pub(crate) fn answered(&self) -> Option<&CallResult> {
        match &self.phase {
            CallPhase::Answered(answered) => Some(answered),
            CallPhase::Waiting(_) | CallPhase::Running(..) => None,
        }
    }

    pub(crate) fn trace(&self) -> Option<TraceCall> {
        let answered = self.answered()?;
        let tool = self.tool.as_ref();
        // A call that did not run has an error of its own.
        let policy = tool.filter(|_| answered.executed);
        let policy = policy.and_then(|tool| tool.denying_policy());
        Some(TraceCall {
            index: self.index,
            call_id: String::new(),
            first_attempt: self.first_attempt.map(|id| (id.round, id.index)),
            idempotency_key: None,
            name: self.name.clone(),
            compiled: self.compiled,
            arguments: self.arguments.clone(),
            result: as_json(&answered.result),
            latency_ms: u64::try_from(answered.latency.as_millis()).unwrap_or(u64::MAX),
            service: tool.map(|tool| tool.tool.execution.service.clone()),
            transport: tool
                .map(|tool| tool.tool.execution.transport)
                .filter(|transport| !transport.is_http())
                .map(|transport| transport.name().into()),
            tier: tool.map(|tool| tool.tier.name().into()),
            read_only: tool.map(|tool| tool.is_read_only()),
            grant: match &self.allowed_by {
                Some(allowed_by) => Some(allowed_by.grant.clone()),
                None => tool.and_then(|tool| tool.tool.extension.grant.clone()),
            },
            rule: self.allowed_by.as_ref().map(|it| it.rule.clone()),
            would_deny: WouldDeny::of(&self.name, policy, self.allowed_by.as_ref())
                .map(|it| it.to_string()),
            executed: answered.executed,
            duplicate: answered.duplicate,
            connection: answered.connection.as_ref().map(Into::into),
            display: answered.display.as_ref().map(|it| it.as_str().to_owned()),
        })
    }
}

/// Limits the nesting of a record's line: common readers accept this depth and the line around it.
const MAX_NESTING: usize = 64;

/// Keeps text that is JSON. Other text, and JSON that readers of the record would reject, becomes a
/// JSON string.
pub(crate) fn as_json(text: &str) -> RawJson {
    let text = if text.trim_ascii().is_empty() {
        "{}"
    } else {
        text
    };
    RawJson::from_text(text)
        .ok()
        .filter(|json| is_readable(json.get()))
        .or_else(|| RawJson::from_text(json::quote(text)).ok())
        .expect("a quoted text is JSON")
}

/// Returns true if valid JSON nests within the limit and has no number beyond a double's range: log
/// collectors drop a line that violates either.
fn is_readable(json: &str) -> bool {
    let is_finite = |number: &str| number.parse::<f64>().is_ok_and(f64::is_finite);
    nests_within(json, MAX_NESTING) && numbers(json).all(is_finite)
}
