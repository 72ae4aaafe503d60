//! Execution of one call, made by a model in a turn or by the runner itself.
//!
//! Invariants: authority and credential are looked up at dispatch, for an approved call after its
//! approval; the counts of rates and budgets and the intent line are on disk before anything is sent; every
//! call is counted once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use toolcrib_bounds::chain;
use toolcrib_manifest::{BudgetUnit, Transport};
use toolcrib_mediation::{
    AllowedBy, Certainty, Display, ManagedCall, ResultCode, ToolFailure, ToolOutcome,
};

use super::approval::{PermittedCall, permitted};
use super::waits::ApprovalWaits;
use crate::app::App;
use crate::approvals::TakenApproval;
use crate::history::line::{intent, scrubbed};
use crate::metrics::CallKind;
use crate::outbound::tools::client::ToolClient;
use crate::outbound::tools::granted::GrantedTool;
use crate::outbound::tools::{Tool, ToolContext};
use crate::request::caller::Caller;
use crate::telemetry::failure_code;

/// The result of a dispatched call.
#[derive(Debug)]
pub struct DispatchResult {
    pub outcome: ToolOutcome,
    pub display: Option<Display>,
    /// The rule by which the call was permitted, if its tool has rules.
    pub allowed_by: Option<AllowedBy>,
    pub latency: Duration,
    /// The limit of result bytes that was in force.
    pub max_result_bytes: u64,
}

/// Runs one call with the configuration in force now, or after its approval. If this future is dropped
/// early and the call is not among those that wait, call [`cut_off`] so that it is counted.
pub async fn dispatch(
    app: &Arc<App>,
    caller: &Caller,
    call: &ManagedCall,
    timeout: Duration,
    waits: &ApprovalWaits,
) -> DispatchResult {
    let span = caller.trace.tool(call);
    let permitted = permitted(app, caller, call, waits).await;
    // The wait for a person is no latency of the service.
    let began = Instant::now();
    let policy = app.current.now().version().map(|it| it.catalog.policy());
    let allowed_by = permitted
        .as_ref()
        .ok()
        .and_then(|it| it.live.allowed_by().cloned());
    let ran = match permitted {
        Ok(permitted) => run(app, caller, permitted, timeout).await,
        Err(failure) => Err(failure),
    };
    let (outcome, display) = match ran {
        Ok((outcome, display)) => (outcome, Some(display)),
        Err(failure) => (ToolOutcome::Failed(failure), None),
    };
    span.finished(&outcome, display.clone());
    count(app, &outcome);
    DispatchResult {
        outcome,
        display,
        allowed_by,
        latency: began.elapsed(),
        max_result_bytes: policy.map_or(0, |it| it.max_tool_result_bytes),
    }
}

/// Counts a dispatched call that was dropped before it had an outcome.
pub fn cut_off(app: &App) {
    called(app, CallKind::Failed);
}

/// Writes the intent line of a permitted call, and sends it.
async fn run(
    app: &App,
    caller: &Caller,
    permitted: PermittedCall<'_>,
    timeout: Duration,
) -> Result<(ToolOutcome, Display), ToolFailure> {
    let PermittedCall {
        call,
        config,
        live,
        mut approval,
    } = permitted;
    let version = config
        .version()
        .map_err(|_| ToolFailure::canceled(call.name()))?;
    let unrecorded = |what: &str, error: &(dyn std::error::Error + 'static)| {
        tracing::error!(
            tool = call.name(),
            error = chain(error),
            "{what} not written, call refused"
        );
        ToolFailure::new(
            ResultCode::RequestFailed,
            Certainty::NeverRan,
            format!(
                "{} was not called, since the call cannot be recorded",
                call.name()
            ),
        )
    };
    let counted = app
        .rates
        .write(call.name(), live.counted(), Timestamp::now());
    counted.map_err(|error| unrecorded("counts of rates", &error))?;
    let budgets = &version.agent.budgets;
    let counted = app
        .budgets
        .write(BudgetUnit::Calls, budgets, Timestamp::now());
    counted.map_err(|error| unrecorded("counts of budgets", &error))?;
    let scrubber = app.current.scrubber();
    let timestamp = Timestamp::now().to_string();
    let used = approval.as_ref().map(TakenApproval::line);
    let idempotency_key = call.idempotency_key(&caller.request_id);
    let policies = &version.agent.policies;
    let line = intent(
        caller.who(),
        timestamp,
        call,
        live.allowed_by(),
        used,
        policies,
    );
    let intent = app.history.intent(scrubbed(&line, &scrubber));
    intent.map_err(|error| unrecorded("intent", &error))?;
    if let Some(approval) = &mut approval {
        approval.sent();
    }
    let max_result = version.catalog.policy().max_tool_result_bytes;
    let context = ToolContext {
        arguments: call.arguments(),
        claw_id: call.claw_id(),
        idempotency_key: idempotency_key.as_deref(),
        timeout,
        max_result: usize::try_from(max_result).unwrap_or(usize::MAX),
        // The client of the tool's own tier: a ReadOnly tool gets no client that can write.
        client: ToolClient::new(
            app.sender(),
            live.catalog_tool().tier.min(version.agent.max_tier),
        ),
    };
    let called = live.catalog_tool().clone();
    let execution = &called.tool.execution;
    let tool: Box<dyn Tool> = Box::new(GrantedTool::new(live, version.clone())?);
    let sent = Instant::now();
    let result = tool.execute(context).await;
    let took = sent.elapsed();
    app.outages
        .count_call(execution, &result, Instant::now().into());
    let finished = result.map(|result| {
        // With the scrubber of now: the call may have fetched a token.
        let line = Display::new(&result.display, &app.current.scrubber());
        tracing::debug!(
            request_id = caller.request_id,
            result = line.as_str(),
            "tool call finished"
        );
        (ToolOutcome::from(result.output), line)
    });
    if call.transport() == Transport::Mcp {
        let code = match &finished {
            Ok((outcome, _)) => failure_code(outcome),
            Err(failure) => Some(failure.code),
        };
        let code = code.map(|code| code.to_string());
        app.metrics.mcp_call(call.name(), code.as_deref(), took);
    }
    if let Some(approval) = &mut approval {
        approval.finished(finished.as_ref().is_ok_and(|(it, _)| it.is_success()));
    }
    finished
}

/// Counts an outcome, except for denials: [`record::finish`](crate::request::record::finish)
/// counts those, since most calls are denied before their dispatch.
fn count(app: &App, outcome: &ToolOutcome) {
    let kind = match outcome {
        ToolOutcome::Failed(failure)
            if failure.certainty == Certainty::NeverRan
                && ResultCode::DENIALS.contains(&failure.code) =>
        {
            return;
        }
        outcome if outcome.is_success() => CallKind::Succeeded,
        ToolOutcome::Responded { .. }
        | ToolOutcome::Mcp { .. }
        | ToolOutcome::McpError { .. }
        | ToolOutcome::Failed(_) => CallKind::Failed,
    };
    called(app, kind);
}

fn called(app: &App, kind: CallKind) {
    let at = Timestamp::now().to_string();
    app.metrics.usage.call(kind, at);
}
