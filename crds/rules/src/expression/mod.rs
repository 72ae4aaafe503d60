//! Expressions of `when`: a part of CEL, with bounds on everything that a call could make it do.
//!
//! Here: reading an expression ([`Expression::read`]), and evaluating it on a call
//! ([`Expression::holds`]). Not here: the engines of patterns, which the caller keeps, and whether a
//! tool declares the arguments that an expression reads.
//!
//! The language is a part of CEL: what it accepts means the same there, with the exceptions that
//! `docs/guide.md` lists. It has its own reader and evaluator, since the crate `cel` decides in
//! favour of a call where it should fail (`!args.note.contains("x")` holds of a number), builds
//! patterns at each call, and counts no steps
//! ([decision](../../../../docs/decisions/2026-11-24-own-expressions.md)).
//!
//! Invariants: an expression does not hold if a part that decides is an error. Values are
//! borrowed from the arguments; no operator builds a text or list that is longer than its operands
//! in the expression. Every step is counted, and evaluation ends at [`MAX_STEPS`].

mod evaluate;
mod node;
mod parse;
mod time;
mod tokens;

use jiff::Timestamp;
use serde_json::Value;

use node::Node;

/// Limits the bytes of one expression.
pub const MAX_BYTES: usize = 4096;
/// Limits the operators, calls, names and literals of one expression.
pub const MAX_NODES: usize = 256;
/// Limits the nesting of parentheses, brackets and prefix operators.
pub const MAX_DEPTH: usize = 32;
/// Limits the nesting of `all`, `exists` and the like, each of which walks a list.
pub const MAX_NESTED: usize = 2;
/// Limits the patterns of one expression.
pub const MAX_PATTERNS: usize = 8;
/// Limits the steps of one evaluation: each node of the expression, each value that is compared, and
/// each 64 bytes of a text. One takes some tens of nanoseconds.
pub const MAX_STEPS: u64 = 50_000;
/// The length of every list for which an expression must stay within [`MAX_STEPS`] to be accepted.
pub const COUNTED_ELEMENTS: u64 = 50;

/// An expression that was read.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
    reads_now: bool,
    arguments: Vec<String>,
    patterns: Vec<String>,
}

/// The reason for which an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}, at character {at}")]
pub struct ExpressionFault {
    pub kind: ExpressionFaultKind,
    /// Counts from 1.
    pub at: usize,
    /// The fault and its cure.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionFaultKind {
    /// Not an expression of the language.
    Invalid,
    /// It could take more steps than one evaluation has.
    TooExpensive,
}

/// The variables of an expression other than `args`.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub agent_name: &'a str,
    pub agent_namespace: &'a str,
    /// The name in the descriptor, without the surface.
    pub tool_name: &'a str,
    /// The agent's alias of the surface.
    pub tool_surface: &'a str,
    pub tool_tier: &'a str,
    pub now: Timestamp,
}

impl Expression {
    /// Reads an expression within all bounds.
    pub fn read(text: &str) -> Result<Self, ExpressionFault> {
        parse::read(text)
    }

    /// The top-level arguments that it reads, sorted.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns whether it reads the time. Otherwise it is true or not of the same call for ever.
    pub fn reads_now(&self) -> bool {
        self.reads_now
    }

    /// The patterns of `matches`, in the order of their numbers.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Returns whether the expression is true of a call. `matches` says whether a text matches the
    /// pattern with this number; `None` if that would take too long.
    pub fn holds(
        &self,
        facts: &Facts<'_>,
        arguments: &Value,
        matches: impl FnMut(usize, &str) -> Option<bool>,
    ) -> bool {
        evaluate::holds(&self.root, facts, arguments, matches)
    }
}

#[cfg(test)]
mod tests;
