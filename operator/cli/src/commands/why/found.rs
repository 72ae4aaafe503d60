//! Finds one call of a record by its id.

use crate::args::WhyArgs;
use crate::failure::Failure;
use crate::record::{self, Call, Entry, Statistics};

/// Most calls that a message about another id names.
const MOST_CALLS: usize = 8;

/// Returns the call, and the counts of the lines that were read.
pub(super) fn find(args: &WhyArgs) -> Result<(Call, Statistics), Failure> {
    let wanted = &args.call;
    let mut found: Option<Call> = None;
    let (mut of_request, mut calls) = (Vec::new(), 0_usize);
    let statistics = record::read(&args.record, None, |entry| {
        let Entry::Call(call) = entry else {
            return Ok(());
        };
        calls += 1;
        if call.call_id == *wanted {
            found = Some(*call);
        } else if call.request_id == *wanted && of_request.len() < MOST_CALLS {
            of_request.push(call.call_id);
        }
        Ok(())
    })?;
    match found {
        Some(call) => Ok((call, statistics)),
        None if !of_request.is_empty() => Err(Failure::usage(format_args!(
            "{wanted} is the id of a request: name one of its calls: {}",
            of_request.join(", ")
        ))),
        None => {
            record::remarks(&args.record, &statistics, true);
            Err(Failure::Failed(anyhow::anyhow!(
                "none of the {calls} calls that were read has the id {wanted}: `kubectl toolcrib audit` lists them; for earlier ones, or those of another namespace, read their files with -f, or use -n or -A"
            )))
        }
    }
}
