//! The evidence of a record: the calls of one agent, counted per tool and argument.
//!
//! Only calls that succeeded are evidence for a grant. A failed call may be one that the agent
//! should not make, and a denied call did not run.
//!
//! Invariants: memory is bounded by the tools that the agent's surfaces offer, whatever the record
//! holds; the result does not depend on the order of the calls, which differs from one reading of a
//! cluster's logs to the next.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use toolcrib_bounds::json::number;
use toolcrib_manifest::names::CLAW_ID;

use super::offers::OfferedTool;
use super::values::{Values, Wording};
use crate::record::{Call, Outcome};

/// Most names from the record that are kept for a message.
const MOST_NAMES: usize = 32;
/// Most calls of a tool whose arguments are kept for policy tests.
const MOST_SAMPLES: usize = 5;
/// Most bytes of the arguments of such a call.
const LONGEST_SAMPLE: usize = 2 * 1024;

/// Numbers of calls by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    pub succeeded: u64,
    pub failed: u64,
    /// Denied, or run only because a grant tries out its limits.
    pub denied: u64,
    pub unknown: u64,
}

impl Calls {
    pub fn all(&self) -> u64 {
        self.succeeded + self.failed + self.denied + self.unknown
    }

    fn add(&mut self, call: &Call) {
        let number = match call.outcome {
            _ if call.would_deny.is_some() => &mut self.denied,
            // A result without a call, such as that of a repeated one.
            Outcome::Ok if call.executed != Some(true) => return,
            Outcome::Ok => &mut self.succeeded,
            // Nothing is known of it yet.
            Outcome::Waiting => return,
            Outcome::Failed => &mut self.failed,
            Outcome::Denied => &mut self.denied,
            Outcome::Unknown => &mut self.unknown,
        };
        *number += 1;
    }
}

/// The calls of one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolEvidence {
    pub calls: Calls,
    /// Successful calls whose arguments the record does not have.
    pub without_arguments: u64,
    /// Whether a call has a number with more digits than a limit can compare.
    pub has_long_number: bool,
    /// The values of declared arguments, in successful calls.
    pub arguments: BTreeMap<String, Values>,
    /// The arguments of some successful calls, without the identity: the shortest ones.
    pub samples: BTreeSet<(usize, String)>,
}

/// A bounded set of names: the first ones in order.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    fn add(&mut self, name: &str) {
        if self.0.contains(name) {
            return;
        }
        self.0.insert(name.to_owned());
        if self.0.len() > MOST_NAMES {
            self.0.pop_last();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// The calls of one agent.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// By `SURFACE.TOOL`; only tools that are offered, and were called.
    pub tools: BTreeMap<String, ToolEvidence>,
    /// Tools that were called with success and are not offered.
    pub unoffered: Names,
    pub calls: Calls,
    /// The times of the first and the last call.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The first name of a pod, for an agent with `identity: Pod`.
    pub pod: Option<String>,
}

impl Evidence {
    pub fn add(&mut self, call: &Call, offers: &BTreeMap<String, OfferedTool>) {
        self.calls.add(call);
        if let Ok(when) = call.when.parse::<Timestamp>() {
            let (first, last) = self.span.get_or_insert((when, when));
            *first = when.min(*first);
            *last = when.max(*last);
        }
        if self.pod.as_ref().is_none_or(|pod| call.pod < *pod) {
            self.pod = Some(call.pod.clone());
        }
        let is_success =
            call.outcome == Outcome::Ok && call.executed == Some(true) && call.would_deny.is_none();
        let Some(offer) = offers.get(&call.tool) else {
            if is_success {
                self.unoffered.add(&call.tool);
            }
            return;
        };
        let tool = self.tools.entry(call.tool.clone()).or_default();
        tool.calls.add(call);
        if is_success {
            tool.add(call.arguments.get(), offer);
        }
    }
}

impl ToolEvidence {
    fn add(&mut self, arguments: &str, offer: &OfferedTool) {
        let Ok(Value::Object(mut members)) = serde_json::from_str(arguments) else {
            self.without_arguments += 1;
            return;
        };
        self.has_long_number |= number::first_rounded(arguments).is_some();
        for (name, schema) in &offer.arguments {
            if let Some(value) = members.get(name) {
                let values = self.arguments.entry(name.clone()).or_default();
                values.add(value, Wording::of(schema));
            }
        }
        members.remove(CLAW_ID);
        let sample = Value::Object(members).to_string();
        if sample.len() <= LONGEST_SAMPLE {
            self.samples.insert((sample.len(), sample));
            if self.samples.len() > MOST_SAMPLES {
                self.samples.pop_last();
            }
        }
    }
}
