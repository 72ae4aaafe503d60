//! The record: what happened, line by line, in `history.jsonl` and on stdout.
//!
//! [`line`] says what a line holds, [`kept`] what it holds of a body; [`writer`] decides what a full disk or an unread
//! stdout do; [`log`] and [`stdout`] are the bounded IO under it. Invariants: nothing has a
//! side effect before its intent line is on disk; no model is asked before a line says so; a line
//! that cannot be written is an error of whoever wanted to act, never silence.

pub mod kept;
pub mod line;
pub mod log;
pub mod stdout;
pub mod writer;

pub use kept::KeptBody;
pub use line::{Bodies, Body, IntentLine, ModelCallLine, TurnLine};
pub use log::FILE_NAME;
pub use writer::{History, HistoryError, OnStdout, TurnLines};
