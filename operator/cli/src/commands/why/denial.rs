//! What would have allowed a call that was denied, by the objects of now.

use jiff::Timestamp;
use toolcrib_compile::{Compilation, Inputs};

use crate::failure::Failure;
use crate::policy::{self, Verdict};
use crate::record::Call;

/// Sentences on what has to change; the mediator's own code decides about the call again.
pub(super) fn to_allow(
    inputs: &Inputs,
    compilation: &Compilation,
    call: &Call,
) -> Result<Vec<String>, Failure> {
    let now = call.when.parse().unwrap_or_else(|_| Timestamp::now());
    let mut outcome = policy::call(
        inputs,
        compilation,
        &policy::Call {
            pod: Some(&call.pod),
            tool: &call.tool,
            arguments: call.arguments.get(),
            previous: 0,
            now,
        },
    )?;
    Ok(match outcome.result {
        Verdict::Allowed => {
            let by = outcome.by.unwrap_or_default();
            vec![match is_bounded(call) {
                true => format!("{by} allows it while a call is left"),
                false => format!("{by} allows it now: the objects have changed since"),
            }]
        }
        // The first sentence is the one that the model read, if the objects say more.
        Verdict::Denied if outcome.because.len() > 1 => outcome.because.split_off(1),
        Verdict::NeedsApproval | Verdict::Denied => outcome.because,
    })
}

/// Whether the call was over a number of calls, which the objects do not show.
fn is_bounded(call: &Call) -> bool {
    let code = call.code.as_deref();
    code.is_some_and(|code| ["rate_limited", "quota_exhausted"].contains(&code))
}
