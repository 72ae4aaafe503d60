//! The outcome of writing an agent's objects, for its status.

/// The outcome of all writes. The texts are for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Conflict(String),
    Failed(String),
}
