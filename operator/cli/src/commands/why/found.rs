//! Finds one call of a record by its id.

use std::collections::BTreeMap;

use crate::args::WhyArgs;
use crate::failure::Failure;
use crate::record::{self, Call, Entry, Statistics};

/// Most calls that a message about another id names.
const MOST_CALLS: usize = 8;

/// Most rules whose words are kept until the call is found.
const MOST_RULES: usize = 20_000;

/// A call of the record.
pub(super) struct FoundCall {
    pub call: Call,
    /// Words for the conditions of the rule that allowed it, as the record has them.
    pub limits: Option<String>,
    /// Counts of the lines that were read.
    pub statistics: Statistics,
}

pub(super) fn find(args: &WhyArgs) -> Result<FoundCall, Failure> {
    let wanted = &args.call;
    // A rule's words follow from its digest.
    let mut rules: BTreeMap<String, String> = BTreeMap::new();
    let mut found: Option<Call> = None;
    let (mut of_request, mut calls) = (Vec::new(), 0_usize);
    let statistics = record::read(&args.record, None, |entry| {
        let call = match entry {
            Entry::Call(call) => call,
            Entry::Rules(recorded) => {
                if rules.len() < MOST_RULES {
                    rules.extend(recorded.rules);
                }
                return Ok(());
            }
            Entry::Question(_) | Entry::Request(_) => return Ok(()),
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
        Some(call) => Ok(FoundCall {
            limits: call.rule.as_ref().and_then(|digest| rules.remove(digest)),
            call,
            statistics,
        }),
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
