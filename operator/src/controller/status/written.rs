//! How writing an agent's objects ended, as its status says it.

/// The outcome of all writes; texts are for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Conflict(String),
    Failed(String),
}
