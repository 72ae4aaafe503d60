//! The nodes of an expression, and what is counted and forbidden over all of them. Not here: reading
//! them (`parse`) and their values (`evaluate`).

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use toolcrib_manifest::names::CLAW_ID;

use super::time::Part;
use super::tokens::invalid;
use super::{COUNTED_ELEMENTS, ExpressionFault};

#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    List(Vec<Node>),
    Args,
    Fact(Fact),
    /// The variable of an enclosing `all`, `exists` or the like, numbered from the outermost.
    Local(usize),
    Select(Box<Node>, String),
    Has(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    If(Box<[Node; 3]>),
    Binary(Operator, Box<Node>, Box<Node>),
    Unary(Function, Box<Node>),
    Search(Search, Box<Node>, Box<Node>),
    /// The text, and the number of the pattern.
    Matches(Box<Node>, usize),
    Part(Part, Box<Node>, TimeZone),
    Walk {
        kind: Walk,
        range: Box<Node>,
        body: Box<Node>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    AgentName,
    AgentNamespace,
    ToolName,
    ToolSurface,
    ToolTier,
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Int,
    Double,
    Timestamp,
    Duration,
    LowerAscii,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    All,
    Exists,
    ExistsOne,
    Filter,
}

impl Node {
    pub(super) fn is_no_condition(&self) -> bool {
        match self {
            Self::Null
            | Self::Int(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::List(_)
            | Self::Args
            | Self::Fact(_)
            | Self::Negative(_)
            | Self::Unary(..)
            | Self::Part(..) => true,
            Self::Walk { kind, .. } => *kind == Walk::Filter,
            Self::Binary(operator, ..) => operator.is_arithmetic(),
            Self::Bool(_)
            | Self::Local(_)
            | Self::Select(..)
            | Self::Has(..)
            | Self::Index(..)
            | Self::Not(_)
            | Self::And(..)
            | Self::Or(..)
            | Self::If(_)
            | Self::Search(..)
            | Self::Matches(..) => false,
        }
    }

    /// Collects the arguments that are read. `args` stands for nothing else.
    pub(super) fn find_arguments(
        &self,
        found: &mut BTreeSet<String>,
    ) -> Result<(), ExpressionFault> {
        if matches!(self, Self::Args) {
            return Err(invalid(
                1,
                "reads args as a whole: name the argument, such as args.amount or \"amount\" in args",
            ));
        }
        if let Some(name) = self.argument() {
            if name == CLAW_ID {
                return Err(invalid(
                    1,
                    "reads args.claw_id, which the mediator writes: compare agent.name",
                ));
            }
            found.insert(name.to_owned());
            return Ok(());
        }
        self.parts()
            .into_iter()
            .try_for_each(|part| part.find_arguments(found))
    }

    pub(super) fn reads_now(&self) -> bool {
        matches!(self, Self::Fact(Fact::Now)) || self.parts().into_iter().any(Self::reads_now)
    }

    /// The argument that this node reads by itself.
    fn argument(&self) -> Option<&str> {
        if let Self::Select(of, name) | Self::Has(of, name) = self {
            return matches!(**of, Self::Args).then_some(name);
        }
        let (Self::Index(of, key) | Self::Binary(Operator::In, key, of)) = self else {
            return None;
        };
        match (&**of, &**key) {
            (Self::Args, Self::Text(name)) => Some(name),
            (_, _) => None,
        }
    }

    fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Args
            | Self::Fact(_)
            | Self::Local(_) => Vec::new(),
            Self::List(parts) => parts.iter().collect(),
            Self::If(parts) => parts.iter().collect(),
            Self::Select(of, _)
            | Self::Has(of, _)
            | Self::Not(of)
            | Self::Negative(of)
            | Self::Unary(_, of)
            | Self::Matches(of, _)
            | Self::Part(_, of, _) => vec![of],
            Self::Index(one, other)
            | Self::And(one, other)
            | Self::Or(one, other)
            | Self::Binary(_, one, other)
            | Self::Search(_, one, other) => vec![one, other],
            Self::Walk { range, body, .. } => vec![range, body],
        }
    }

    /// Counts the steps with [`COUNTED_ELEMENTS`] in every list.
    pub(super) fn steps(&self) -> u64 {
        if let Self::Walk { range, body, .. } = self {
            return 1 + range.steps() + COUNTED_ELEMENTS * (1 + body.steps());
        }
        1 + self.parts().into_iter().map(Self::steps).sum::<u64>()
    }
}

impl Operator {
    fn is_arithmetic(self) -> bool {
        match self {
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder => true,
            Self::Equal
            | Self::Unequal
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual
            | Self::In => false,
        }
    }
}
