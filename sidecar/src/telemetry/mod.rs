//! OpenTelemetry: one `invoke_agent` span for each request, and under it one `chat` span
//! for each call of a model and one `execute_tool` span for each dispatched call, with the
//! attributes of the GenAI semantic conventions.
//!
//! [`spans`] is pure; [`export`] has the bounded queue and the sending; [`otlp`] is what the export of
//! the record ([`crate::export`]) shares with it. Without an endpoint none of them is used.
//! [`operation`] measures a model call for the metrics, with or without an endpoint.
//!
//! Invariants: no span contains a prompt, an argument or a result, which only the record has; a
//! tool's display line is scrubbed and bounded before it gets here. The runner's `traceparent` is
//! the parent, and its sampling flag is respected. Providers and services are third parties: they
//! get no trace header, and the runner's own is removed ([`crate::outbound::model::headers`]).

pub mod context;
pub mod export;
pub mod operation;
pub mod otlp;
pub mod spans;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use toolcrib_dialect::Usage;
use toolcrib_manifest::Transport;
use toolcrib_mediation::{Display, ManagedCall, ResultCode, ToolOutcome};

use crate::metrics::otel::OTHER;
use crate::outbound::model::{Candidate, ModelError};
use context::TraceContext;
use export::Exporter;

/// Most steps of one request. The bounds on rounds and calls are usually lower.
const MAX_STEPS: usize = 128;

/// The exporter of spans, if one is configured.
#[derive(Debug, Default)]
pub struct Telemetry {
    pub exporter: Option<Exporter>,
}

impl Telemetry {
    /// The trace of a request with these headers.
    pub fn trace(&self, headers: &HeaderMap) -> Trace {
        if self.exporter.is_none() {
            return Trace::default();
        }
        let recorder = TraceContext::of(headers).map(|context| {
            Arc::new(Recorder {
                context,
                began: SystemTime::now(),
                steps: Mutex::default(),
            })
        });
        Trace(recorder)
    }

    /// Queues the spans of a request that has ended.
    pub fn export(&self, trace: &Trace, root: impl FnOnce(Duration) -> spans::Root) {
        let (Some(exporter), Some(recorder)) = (&self.exporter, &trace.0) else {
            return;
        };
        let took = recorder.began.elapsed().unwrap_or_default();
        let steps = std::mem::take(&mut *recorder.steps());
        let spans = spans::spans(&recorder.context, recorder.began, &root(took), &steps);
        exporter.offer(spans);
    }
}

/// The steps of a running request; empty if no exporter is configured.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Arc<Recorder>>);

#[derive(Debug)]
struct Recorder {
    context: TraceContext,
    began: SystemTime,
    steps: Mutex<Vec<Step>>,
}

impl Recorder {
    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        // A panic under the lock leaves at worst a step unwritten.
        self.steps.lock()
    }
}

/// A call of a model or of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub what: StepKind,
    pub began: SystemTime,
    pub took: Duration,
    /// `error.type`: a status, or a word of a closed list.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    Chat {
        provider: String,
        model: String,
        usage: Option<Usage>,
    },
    Tool {
        name: String,
        service: String,
        transport: Transport,
        round: u32,
        /// The tool's display line: one line about the result, for people.
        display: Option<Display>,
    },
}

impl Trace {
    /// Begins a call of a model. `candidate` is asked first.
    pub fn chat(&self, candidate: Option<&Candidate>) -> StepGuard {
        self.open(|| StepKind::Chat {
            provider: candidate.map_or_else(String::new, |it| it.provider.clone()),
            model: candidate.map_or_else(String::new, |it| it.model.clone()),
            usage: None,
        })
    }

    pub fn tool(&self, call: &ManagedCall) -> StepGuard {
        self.open(|| StepKind::Tool {
            name: call.name().to_string(),
            service: call.service().to_string(),
            transport: call.transport(),
            round: call.id().round,
            display: None,
        })
    }

    fn open(&self, what: impl FnOnce() -> StepKind) -> StepGuard {
        StepGuard(self.0.clone().map(|recorder| OpenStep {
            step: Step {
                what: what(),
                began: SystemTime::now(),
                took: Duration::ZERO,
                // A step that is dropped before its end was cancelled.
                error: Some("canceled".to_string()),
            },
            recorder,
        }))
    }

    /// Adds the usage of the last model call that has ended.
    pub fn used(&self, used: Usage) {
        let Some(recorder) = &self.0 else {
            return;
        };
        let chats = |step: &&mut Step| matches!(step.what, StepKind::Chat { .. });
        if let Some(step) = recorder.steps().iter_mut().rev().find(chats)
            && let StepKind::Chat { usage, .. } = &mut step.what
        {
            *usage = Some(used);
        }
    }
}

/// A step that has begun. It is noted when it is dropped.
#[derive(Debug)]
pub struct StepGuard(Option<OpenStep>);

#[derive(Debug)]
struct OpenStep {
    step: Step,
    recorder: Arc<Recorder>,
}

impl StepGuard {
    /// Notes a model's answer and the candidate that gave it.
    pub fn replied(mut self, result: Result<&Candidate, &ModelError>) {
        let Some(opened) = &mut self.0 else {
            return;
        };
        if let (
            Ok(by),
            StepKind::Chat {
                provider, model, ..
            },
        ) = (result, &mut opened.step.what)
        {
            provider.clone_from(&by.provider);
            model.clone_from(&by.model);
        }
        opened.step.error = result.err().map(error_type);
    }

    /// Notes a tool's outcome and its display line.
    pub fn finished(mut self, outcome: &ToolOutcome, said: Option<Display>) {
        if let Some(opened) = &mut self.0 {
            if let StepKind::Tool { display, .. } = &mut opened.step.what {
                *display = said;
            }
            opened.step.error = failure_code(outcome).map(|code| {
                if let ResultCode::Http(status) = code {
                    status.to_string()
                } else {
                    code.to_string()
                }
            });
        }
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        let Some(OpenStep { mut step, recorder }) = self.0.take() else {
            return;
        };
        step.took = step.began.elapsed().unwrap_or_default();
        let mut steps = recorder.steps();
        if steps.len() < MAX_STEPS {
            steps.push(step);
        }
    }
}

/// The code of a call that has not succeeded.
pub fn failure_code(outcome: &ToolOutcome) -> Option<ResultCode> {
    match outcome {
        outcome if outcome.is_success() => None,
        ToolOutcome::Responded { status, .. } => Some(ResultCode::Http(*status)),
        ToolOutcome::Mcp { .. } => Some(ResultCode::ToolError),
        ToolOutcome::McpError { .. } => Some(ResultCode::McpError),
        ToolOutcome::Failed(failure) => Some(failure.code),
    }
}

fn error_type(error: &ModelError) -> String {
    if let ModelError::Http(failure) = error {
        failure.status.to_string()
    } else {
        error_word(error).to_string()
    }
}

/// The error as a word of a closed list, with a status by its class.
fn error_word(error: &ModelError) -> &'static str {
    match error {
        ModelError::Http(failure) => match failure.status {
            300..400 => "http_3xx",
            400..500 => "http_4xx",
            500..600 => "http_5xx",
            _ => OTHER,
        },
        ModelError::NoUsableKey(_) => "no_usable_key",
        ModelError::Unreachable { .. } => "unreachable",
        ModelError::Timeout { .. } => "timeout",
        ModelError::TooLarge => "too_large",
    }
}
