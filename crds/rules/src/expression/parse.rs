//! Reads an expression into nodes, with names resolved and every bound checked.
//!
//! Recursion is bounded twice: by [`MAX_DEPTH`] while reading, and by [`MAX_NODES`] for chains such
//! as `a.b.c` or `a + b + c`, which nest in the result.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use toolcrib_bounds::pattern;

use super::node::{Fact, Function, Node, Operator, Search, Walk};
use super::time::{self, Part};
use super::tokens::{Token, invalid, tokens};
use super::{
    COUNTED_ELEMENTS, Expression, ExpressionFault, ExpressionFaultKind, MAX_BYTES, MAX_DEPTH,
    MAX_NESTED, MAX_NODES, MAX_PATTERNS, MAX_STEPS,
};

const FUNCTIONS: &str = "all, contains, double, duration, endsWith, exists, exists_one, filter, getDate, \
    getDayOfWeek, getFullYear, getHours, getMinutes, getMonth, has, int, lowerAscii, matches, size, \
    startsWith and timestamp";
const VARIABLES: &str =
    "args, agent.name, agent.namespace, tool.name, tool.surface, tool.tier and now";

pub(super) fn read(text: &str) -> Result<Expression, ExpressionFault> {
    if text.len() > MAX_BYTES {
        return Err(invalid(
            1,
            format!(
                "has {} bytes, and an expression has at most {MAX_BYTES}: shorten it",
                text.len()
            ),
        ));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
        nodes: 0,
        locals: Vec::new(),
        patterns: Vec::new(),
        states: 0,
    };
    let root = parser.expression()?;
    let (at, token) = parser.peek();
    if *token != Token::End {
        return Err(invalid(
            at,
            "the expression ends before this: remove the rest, or write an operator",
        ));
    }
    if root.is_no_condition() {
        return Err(invalid(1, "is never true or false: compare its value"));
    }
    let mut arguments = BTreeSet::new();
    root.find_arguments(&mut arguments)?;
    if root.steps() > MAX_STEPS {
        return Err(ExpressionFault {
            kind: ExpressionFaultKind::TooExpensive,
            at: 1,
            message: format!(
                "takes more than {MAX_STEPS} steps for lists of {COUNTED_ELEMENTS} elements: walk fewer lists in each other, or write several conditions"
            ),
        });
    }
    Ok(Expression {
        reads_now: root.reads_now(),
        root,
        arguments: arguments.into_iter().collect(),
        patterns: parser.patterns,
    })
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    nodes: usize,
    locals: Vec<String>,
    patterns: Vec<String>,
    states: u64,
}

type ParseResult = Result<Node, ExpressionFault>;

impl Parser {
    fn peek(&self) -> (usize, &Token) {
        let (at, token) = &self.tokens[self.next];
        (*at, token)
    }

    /// Takes the next token; the last one stays.
    fn advance(&mut self) -> (usize, Token) {
        let taken = self.tokens[self.next].clone();
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        taken
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek().1, Token::Sign(next) if *next == sign);
        if is_next {
            self.advance();
        }
        is_next
    }

    /// Takes one of these signs.
    fn take_one<T: Copy>(&mut self, signs: &[(&str, T)]) -> Option<T> {
        let found = signs.iter().find(|(sign, _)| self.take(sign));
        found.map(|(_, meaning)| *meaning)
    }

    fn expect(&mut self, sign: &str) -> Result<(), ExpressionFault> {
        let (at, _) = self.peek();
        match self.take(sign) {
            true => Ok(()),
            false => Err(invalid(at, format!("{sign:?} is missing: write it here"))),
        }
    }

    fn count(&mut self, at: usize) -> Result<(), ExpressionFault> {
        self.nodes += 1;
        match self.nodes > MAX_NODES {
            true => Err(invalid(
                at,
                format!("the expression has more than {MAX_NODES} parts: write several conditions"),
            )),
            false => Ok(()),
        }
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> ParseResult) -> ParseResult {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let (at, _) = self.peek();
            return Err(invalid(
                at,
                format!(
                    "more than {MAX_DEPTH} brackets or operators stand in each other: write several conditions"
                ),
            ));
        }
        let node = read(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn expression(&mut self) -> ParseResult {
        self.deeper(|this| {
            let condition = this.either()?;
            let (at, _) = this.peek();
            if !this.take("?") {
                return Ok(condition);
            }
            this.count(at)?;
            let then = this.either()?;
            this.expect(":")?;
            let otherwise = this.expression()?;
            Ok(Node::If(Box::new([condition, then, otherwise])))
        })
    }

    fn either(&mut self) -> ParseResult {
        let mut left = self.both()?;
        loop {
            let (at, _) = self.peek();
            if !self.take("||") {
                return Ok(left);
            }
            self.count(at)?;
            left = Node::Or(Box::new(left), Box::new(self.both()?));
        }
    }

    fn both(&mut self) -> ParseResult {
        let mut left = self.relation()?;
        loop {
            let (at, _) = self.peek();
            if !self.take("&&") {
                return Ok(left);
            }
            self.count(at)?;
            left = Node::And(Box::new(left), Box::new(self.relation()?));
        }
    }

    fn relation(&mut self) -> ParseResult {
        const SIGNS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
        ];
        let mut left = self.sum()?;
        loop {
            let (at, token) = self.peek();
            let is_in = matches!(token, Token::Name(name) if name == "in");
            let operator = match is_in {
                true => {
                    self.advance();
                    Some(Operator::In)
                }
                false => self.take_one(&SIGNS),
            };
            let Some(operator) = operator else {
                return Ok(left);
            };
            self.count(at)?;
            left = Node::Binary(operator, Box::new(left), Box::new(self.sum()?));
        }
    }

    fn sum(&mut self) -> ParseResult {
        let mut left = self.product()?;
        loop {
            let (at, _) = self.peek();
            let signs = [("+", Operator::Add), ("-", Operator::Subtract)];
            let Some(operator) = self.take_one(&signs) else {
                return Ok(left);
            };
            self.count(at)?;
            let right = self.product()?;
            if [&left, &right]
                .into_iter()
                .any(|it| matches!(it, Node::Text(_) | Node::List(_)))
            {
                return Err(invalid(
                    at,
                    "texts and lists cannot be joined: compare their parts one by one",
                ));
            }
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn product(&mut self) -> ParseResult {
        let mut left = self.unary()?;
        loop {
            let (at, _) = self.peek();
            let signs = [
                ("*", Operator::Multiply),
                ("/", Operator::Divide),
                ("%", Operator::Remainder),
            ];
            let Some(operator) = self.take_one(&signs) else {
                return Ok(left);
            };
            self.count(at)?;
            left = Node::Binary(operator, Box::new(left), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> ParseResult {
        let (at, _) = self.peek();
        if self.take("!") {
            self.count(at)?;
            return Ok(Node::Not(Box::new(self.deeper(Self::unary)?)));
        }
        if self.take("-") {
            self.count(at)?;
            match self.peek().1 {
                Token::Int(value) => {
                    let value = -value;
                    self.advance();
                    return self.members(Node::Int(value));
                }
                Token::Lowest => {
                    self.advance();
                    return self.members(Node::Int(i64::MIN));
                }
                Token::Double(_)
                | Token::Text(_)
                | Token::Name(_)
                | Token::Sign(_)
                | Token::End => {}
            }
            return Ok(Node::Negative(Box::new(self.deeper(Self::unary)?)));
        }
        let node = self.primary()?;
        self.members(node)
    }

    fn primary(&mut self) -> ParseResult {
        let (at, token) = self.advance();
        self.count(at)?;
        match token {
            Token::Int(value) => Ok(Node::Int(value)),
            Token::Double(value) => Ok(Node::Double(value)),
            Token::Text(text) => Ok(Node::Text(text)),
            Token::Lowest => Err(invalid(
                at,
                "this number does not fit into 64 bits: write a smaller one",
            )),
            Token::Name(name) => self.named(at, &name),
            Token::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.arguments("]").map(Node::List),
            Token::Sign("{") => Err(invalid(
                at,
                "maps cannot be written: compare their fields one by one",
            )),
            Token::Sign(_) => Err(invalid(at, "a value is missing before this: write it")),
            Token::End => Err(invalid(
                at,
                "the expression ends where a value is missing: write it",
            )),
        }
    }

    fn named(&mut self, at: usize, name: &str) -> ParseResult {
        if matches!(self.peek().1, Token::Sign("(")) {
            return self.global(at, name);
        }
        match name {
            "true" => return Ok(Node::Bool(true)),
            "false" => return Ok(Node::Bool(false)),
            "null" => return Ok(Node::Null),
            "args" => return Ok(Node::Args),
            "now" => return Ok(Node::Fact(Fact::Now)),
            _ => {}
        }
        if let Some(number) = self.locals.iter().position(|local| local == name) {
            return Ok(Node::Local(number));
        }
        let field = match (self.peek().1, self.tokens.get(self.next + 1)) {
            (Token::Sign("."), Some((_, Token::Name(field)))) => field.as_str(),
            (_, _) => "",
        };
        let fact = match (name, field) {
            ("agent", "name") => Fact::AgentName,
            ("agent", "namespace") => Fact::AgentNamespace,
            ("tool", "name") => Fact::ToolName,
            ("tool", "surface") => Fact::ToolSurface,
            ("tool", "tier") => Fact::ToolTier,
            (_, _) => {
                return Err(invalid(
                    at,
                    format!("{name:?} is not a variable: write one of {VARIABLES}"),
                ));
            }
        };
        self.advance();
        self.advance();
        Ok(Node::Fact(fact))
    }

    /// Reads the arguments of a function that is called by its name alone.
    fn global(&mut self, at: usize, name: &str) -> ParseResult {
        self.expect("(")?;
        let mut arguments = self.arguments(")")?;
        let (Some(argument), 0) = (arguments.pop(), arguments.len()) else {
            return Err(unknown(at, name));
        };
        let function = match (name, &argument) {
            ("has", _) => {
                let Node::Select(of, field) = argument else {
                    return Err(invalid(at, "has takes a field, such as has(args.note)"));
                };
                return Ok(Node::Has(of, field));
            }
            ("timestamp", Node::Text(text)) if time::timestamp(text).is_none() => {
                return Err(invalid(
                    at,
                    "this is not a valid time: write it as 2026-12-31T23:59:59Z",
                ));
            }
            ("duration", Node::Text(text)) if time::duration(text).is_none() => {
                return Err(invalid(at, "this is not a span of time: write it as 1h30m"));
            }
            ("size", _) => Function::Size,
            ("int", _) => Function::Int,
            ("double", _) => Function::Double,
            ("timestamp", _) => Function::Timestamp,
            ("duration", _) => Function::Duration,
            (_, _) => return Err(unknown(at, name)),
        };
        Ok(Node::Unary(function, Box::new(argument)))
    }

    /// Reads expressions up to a closing sign.
    fn arguments(&mut self, close: &str) -> Result<Vec<Node>, ExpressionFault> {
        let mut arguments = Vec::new();
        if self.take(close) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if !self.take(",") {
                self.expect(close)?;
                return Ok(arguments);
            }
        }
    }

    /// Reads what follows a value: fields, indexes and calls.
    fn members(&mut self, mut node: Node) -> ParseResult {
        loop {
            let (at, _) = self.peek();
            if self.take("[") {
                self.count(at)?;
                let key = self.expression()?;
                self.expect("]")?;
                node = Node::Index(Box::new(node), Box::new(key));
            } else if self.take(".") {
                self.count(at)?;
                let (at, token) = self.advance();
                let Token::Name(name) = token else {
                    return Err(invalid(at, "a name is missing after the dot: write it"));
                };
                node = match self.take("(") {
                    true => self.method(at, node, &name)?,
                    false => Node::Select(Box::new(node), name),
                };
            } else {
                return Ok(node);
            }
        }
    }

    /// Reads the rest of a call of a value, after the bracket.
    fn method(&mut self, at: usize, target: Node, name: &str) -> ParseResult {
        let walk = match name {
            "all" => Some(Walk::All),
            "exists" => Some(Walk::Exists),
            "exists_one" | "existsOne" => Some(Walk::ExistsOne),
            "filter" => Some(Walk::Filter),
            _ => None,
        };
        if let Some(kind) = walk {
            return self.walk(kind, target);
        }
        let mut arguments = self.arguments(")")?;
        let target = Box::new(target);
        let argument = arguments.pop();
        if !arguments.is_empty() {
            return Err(unknown(at, name));
        }
        if let Some(part) = Part::named(name) {
            let zone = match argument {
                None => Some(TimeZone::UTC),
                Some(Node::Text(zone)) => time::zone(&zone),
                Some(_) => None,
            };
            let zone = zone.ok_or_else(|| {
                invalid(
                    at,
                    "this zone is not known: write \"UTC\", or an offset such as \"+01:00\"",
                )
            })?;
            return Ok(Node::Part(part, target, zone));
        }
        match (name, argument) {
            ("size", None) => Ok(Node::Unary(Function::Size, target)),
            ("lowerAscii", None) => Ok(Node::Unary(Function::LowerAscii, target)),
            ("matches", Some(Node::Text(pattern))) => self.pattern(at, target, pattern),
            ("matches", Some(_)) => Err(invalid(
                at,
                "the pattern of matches is not a text: write it in quotes",
            )),
            ("startsWith", Some(part)) => {
                Ok(Node::Search(Search::StartsWith, target, Box::new(part)))
            }
            ("endsWith", Some(part)) => Ok(Node::Search(Search::EndsWith, target, Box::new(part))),
            ("contains", Some(part)) => Ok(Node::Search(Search::Contains, target, Box::new(part))),
            (_, _) => Err(unknown(at, name)),
        }
    }

    fn pattern(&mut self, at: usize, text: Box<Node>, pattern: String) -> ParseResult {
        let cost =
            pattern::cost(&pattern).map_err(|error| invalid(at, format!("the pattern {error}")))?;
        self.states += cost.states;
        if self.states > pattern::MAX_STATES || self.patterns.len() >= MAX_PATTERNS {
            return Err(invalid(
                at,
                format!(
                    "the patterns are too many or too large, and an expression has at most {MAX_PATTERNS}: repeat less"
                ),
            ));
        }
        self.patterns.push(pattern);
        Ok(Node::Matches(text, self.patterns.len() - 1))
    }

    fn walk(&mut self, kind: Walk, range: Node) -> ParseResult {
        let (at, token) = self.advance();
        let Token::Name(name) = token else {
            return Err(invalid(
                at,
                "a name for the element is missing: write it, such as all(x, x > 0)",
            ));
        };
        let reserved = [
            "args", "agent", "tool", "now", "true", "false", "null", "in",
        ];
        if reserved.contains(&name.as_str()) || self.locals.contains(&name) {
            return Err(invalid(
                at,
                format!("{name:?} has a meaning already: write another name"),
            ));
        }
        if self.locals.len() >= MAX_NESTED {
            return Err(invalid(
                at,
                format!(
                    "lists are walked in each other more than {MAX_NESTED} times: write several conditions"
                ),
            ));
        }
        self.expect(",")?;
        self.locals.push(name);
        let body = self.expression()?;
        self.locals.pop();
        self.expect(")")?;
        Ok(Node::Walk {
            kind,
            range: Box::new(range),
            body: Box::new(body),
        })
    }
}

fn unknown(at: usize, name: &str) -> ExpressionFault {
    let name = toolcrib_bounds::cut(name, 64);
    invalid(
        at,
        format!("{name:?} is not a function with these arguments: write one of {FUNCTIONS}"),
    )
}
