//! The record: what happened, line by line, in `history.jsonl` and on stdout.
//!
//! [`line`] says what a line holds; [`writer`] is the bounded IO. Invariant: nothing has
//! a side effect before its intent line is on disk, and a line that cannot be written is
//! an error of whoever wanted to act, never silence.

pub mod line;
pub mod writer;

pub use line::{Bodies, IntentLine, TurnLine};
pub use writer::{History, HistoryError};
