//! The record: one line per request, call and result, in `history.jsonl` and on stdout.
//!
//! [`line`] defines the lines, [`body`] the bodies in them; [`rules`] says which rules are due,
//! [`recent`] has the latest calls for the operator; [`writer`] handles a full disk and an unread
//! stdout; [`log`] and [`stdout`] are the bounded IO under it; [`rotation`] lets rotation wait for the
//! collector.
//!
//! Invariants: no side effect before its intent line is on disk; no model call before its line is
//! written; a line that cannot be written is an error for the caller.

pub mod body;
pub mod line;
pub mod log;
pub mod recent;
pub mod rotation;
pub mod rules;
pub mod stdout;
pub mod writer;

pub use body::RecordBody;
pub use line::{Bodies, Body};
pub use log::{FILE_NAME, ROTATED_NAME};
pub use rotation::{FilePlace, RotationGate};
pub use rules::RuleSet;
pub use writer::{History, HistoryError, PodIdentity, StdoutBodies, TurnLines};
