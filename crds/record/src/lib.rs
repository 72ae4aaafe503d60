//! The record: its lines, and the hash chain that reveals changed lines.
//!
//! The mediator writes these types and the command line reads them. Pure: the caller passes lines
//! and writes them. Not here: bodies of requests and responses, files, and the meaning of a call's
//! outcome.
//!
//! Invariants: readers ignore fields that they do not know and accept lines of earlier releases, so
//! every field that was added later is optional. The chain covers a line without its bodies: the
//! bytes that are the same on disk and on standard output.

mod approval;
mod arguments;
pub mod chain;
mod fields;
mod line;
mod rules;
mod verify;

pub use approval::{
    ApprovalName, DecisionLine, DecisionVerdict, QuestionLine, QuestionRule, UsedApproval,
};
pub use arguments::REMOVED;
pub use chain::{Chain, Digest, Head, Link, LinkKind, short_form};
pub use line::{
    Connection, DuplicateOf, GapLine, IntentLine, Line, ModelCallLine, RecordStatus, StartLine,
    TraceCall, TraceRound, TraceUsage, TurnLine, UnreadLine, VERSION,
};
pub use rules::RulesLine;
pub use verify::{ChainReport, Finding, SourceReport, Verifier, VerifyError};
