//! Partitions the calls of a reply by owner: total over any sequence of owners.

use crate::calls::call::RunnerCall;

/// One call of a reply, by owner. `M` represents a call that is not the runner's: a managed call,
/// or one that is rejected at once (an unknown name counts as managed for the order).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedCall<M> {
    Managed(M),
    Runner(RunnerCall),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partition<M> {
    NoCalls,
    /// Execute the calls and continue.
    Managed(Vec<M>),
    /// Hand the reply to the runner.
    RunnerOwned(Vec<RunnerCall>),
    /// Execute the prefix, hide the suffix, continue.
    ManagedThenRunner {
        managed: Vec<M>,
        hidden: Vec<RunnerCall>,
    },
    /// A runner's call precedes a managed one: execute nothing, reject all calls.
    Interleaved(Vec<OwnedCall<M>>),
}

/// Partitions a reply's calls, in the model's order.
pub fn partition<M>(calls: Vec<OwnedCall<M>>) -> Partition<M> {
    let is_runner = |call: &OwnedCall<M>| matches!(call, OwnedCall::Runner(_));
    let Some(first_runner) = calls.iter().position(is_runner) else {
        return if calls.is_empty() {
            Partition::NoCalls
        } else {
            Partition::Managed(split(calls).0)
        };
    };
    if !calls[first_runner..].iter().all(is_runner) {
        return Partition::Interleaved(calls);
    }
    let (managed, runner) = split(calls);
    if managed.is_empty() {
        Partition::RunnerOwned(runner)
    } else {
        Partition::ManagedThenRunner {
            managed,
            hidden: runner,
        }
    }
}

fn split<M>(calls: Vec<OwnedCall<M>>) -> (Vec<M>, Vec<RunnerCall>) {
    let (mut managed, mut runner) = (Vec::new(), Vec::new());
    for call in calls {
        match call {
            OwnedCall::Managed(call) => managed.push(call),
            OwnedCall::Runner(call) => runner.push(call),
        }
    }
    (managed, runner)
}
