//! Evaluates an expression. `None` stands for an error: a value that does not exist, has another
//! type, or takes too many steps.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::node::{Fact, Function, Node, Operator, Search, Walk};
use super::time::{self, Nanos};
use super::{Facts, MAX_STEPS};

pub(super) fn holds(
    root: &Node,
    facts: &Facts<'_>,
    arguments: &Value,
    matches: impl FnMut(usize, &str) -> Option<bool>,
) -> bool {
    let mut evaluation = Evaluation {
        facts,
        arguments,
        matches,
        locals: Vec::new(),
        left: MAX_STEPS,
    };
    matches!(evaluation.value(root), Some(Val::Bool(true)))
}

#[derive(Clone, Debug)]
enum Val<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Double(f64),
    Text(Cow<'a, str>),
    Time(Timestamp),
    Span(Nanos),
    /// An array or object of the arguments.
    Json(&'a Value),
    List(Rc<Vec<Val<'a>>>),
}

impl<'a> From<&'a Value> for Val<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::Number(number) => number_of(number),
            Value::String(text) => Val::Text(Cow::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => Val::Json(value),
        }
    }
}

fn number_of<'a>(number: &Number) -> Val<'a> {
    let whole = number.as_i64().map(i128::from);
    match whole.or_else(|| number.as_u64().map(i128::from)) {
        Some(whole) => Val::Int(whole),
        // Arguments with other numbers are refused before.
        None => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

struct Evaluation<'a, M> {
    facts: &'a Facts<'a>,
    arguments: &'a Value,
    matches: M,
    locals: Vec<Val<'a>>,
    left: u64,
}

impl<'a, M: FnMut(usize, &str) -> Option<bool>> Evaluation<'a, M> {
    fn spend(&mut self, steps: u64) -> Option<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Some(())
            }
            None => {
                self.left = 0;
                None
            }
        }
    }

    fn spend_on(&mut self, text: &str) -> Option<()> {
        self.spend(u64::try_from(text.len() / 64).ok()?)
    }

    fn value(&mut self, node: &'a Node) -> Option<Val<'a>> {
        self.spend(1)?;
        match node {
            Node::Null => Some(Val::Null),
            Node::Bool(value) => Some(Val::Bool(*value)),
            Node::Int(value) => Some(Val::Int(i128::from(*value))),
            Node::Double(value) => Some(Val::Double(*value)),
            Node::Text(text) => Some(Val::Text(Cow::Borrowed(text))),
            Node::List(parts) => {
                let values: Option<Vec<Val<'a>>> = parts.iter().map(|it| self.value(it)).collect();
                Some(Val::List(Rc::new(values?)))
            }
            Node::Args => Some(Val::from(self.arguments)),
            Node::Fact(fact) => Some(self.fact(*fact)),
            Node::Local(number) => {
                let value = self.locals.get(*number)?.clone();
                if let Val::Text(Cow::Owned(text)) = &value {
                    self.spend_on(text)?;
                }
                Some(value)
            }
            Node::Select(of, name) => {
                let Val::Json(Value::Object(members)) = self.value(of)? else {
                    return None;
                };
                members.get(name).map(Val::from)
            }
            Node::Has(of, name) => {
                let Val::Json(Value::Object(members)) = self.value(of)? else {
                    return None;
                };
                Some(Val::Bool(members.contains_key(name)))
            }
            Node::Index(of, key) => {
                let of = self.value(of)?;
                let key = self.value(key)?;
                element(&of, &key)
            }
            Node::Not(of) => Some(Val::Bool(!self.boolean(of)?)),
            Node::Negative(of) => negative(&self.value(of)?),
            Node::And(one, other) => self.logic(one, other, false),
            Node::Or(one, other) => self.logic(one, other, true),
            Node::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                match self.boolean(condition)? {
                    true => self.value(then),
                    false => self.value(otherwise),
                }
            }
            Node::Binary(operator, one, other) => {
                let one = self.value(one)?;
                let other = self.value(other)?;
                self.binary(*operator, &one, &other)
            }
            Node::Unary(function, of) => {
                let of = self.value(of)?;
                self.unary(*function, &of)
            }
            Node::Search(search, text, part) => {
                let (Val::Text(text), Val::Text(part)) = (self.value(text)?, self.value(part)?)
                else {
                    return None;
                };
                self.spend_on(&text)?;
                Some(Val::Bool(match search {
                    Search::StartsWith => text.starts_with(&*part),
                    Search::EndsWith => text.ends_with(&*part),
                    Search::Contains => text.contains(&*part),
                }))
            }
            Node::Matches(text, pattern) => {
                let Val::Text(text) = self.value(text)? else {
                    return None;
                };
                // At each byte, more than one state of a pattern is followed.
                self.spend(u64::try_from(text.len()).ok()?)?;
                (self.matches)(*pattern, &text).map(Val::Bool)
            }
            Node::Part(part, of, zone) => {
                let Val::Time(at) = self.value(of)? else {
                    return None;
                };
                Some(Val::Int(part.of(at, zone).into()))
            }
            Node::Walk { kind, range, body } => {
                let range = self.value(range)?;
                self.walk(*kind, &range, body)
            }
        }
    }

    fn boolean(&mut self, node: &'a Node) -> Option<bool> {
        match self.value(node)? {
            Val::Bool(value) => Some(value),
            Val::Null
            | Val::Int(_)
            | Val::Double(_)
            | Val::Text(_)
            | Val::Time(_)
            | Val::Span(_)
            | Val::Json(_)
            | Val::List(_) => None,
        }
    }

    fn fact(&self, fact: Fact) -> Val<'a> {
        let facts = self.facts;
        Val::Text(Cow::Borrowed(match fact {
            Fact::AgentName => facts.agent_name,
            Fact::AgentNamespace => facts.agent_namespace,
            Fact::ToolName => facts.tool_name,
            Fact::ToolSurface => facts.tool_surface,
            Fact::ToolTier => facts.tool_tier,
            Fact::Now => return Val::Time(facts.now),
        }))
    }

    /// Returns `decisive` if one side has this value, even if the other is an error.
    fn logic(&mut self, one: &'a Node, other: &'a Node, decisive: bool) -> Option<Val<'a>> {
        let one = self.value(one);
        if matches!(one, Some(Val::Bool(value)) if value == decisive) {
            return Some(Val::Bool(decisive));
        }
        match (one, self.value(other)?) {
            (_, Val::Bool(value)) if value == decisive => Some(Val::Bool(decisive)),
            (Some(Val::Bool(_)), Val::Bool(_)) => Some(Val::Bool(!decisive)),
            (_, _) => None,
        }
    }

    fn walk(&mut self, kind: Walk, range: &Val<'a>, body: &'a Node) -> Option<Val<'a>> {
        let elements = elements(range)?;
        let mut has_error = false;
        let mut found = 0_u64;
        let mut kept = Vec::new();
        for element in elements {
            self.spend(1)?;
            self.locals.push(element.clone());
            let holds = self.boolean(body);
            self.locals.pop();
            match (kind, holds) {
                (Walk::All, Some(false)) => return Some(Val::Bool(false)),
                (Walk::Exists, Some(true)) => return Some(Val::Bool(true)),
                (_, None) => has_error = true,
                (Walk::ExistsOne, Some(true)) => found += 1,
                (Walk::Filter, Some(true)) => kept.push(element),
                (_, Some(_)) => {}
            }
        }
        if has_error {
            return None;
        }
        Some(match kind {
            Walk::All => Val::Bool(true),
            Walk::Exists => Val::Bool(false),
            Walk::ExistsOne => Val::Bool(found == 1),
            Walk::Filter => Val::List(Rc::new(kept)),
        })
    }

    fn unary(&mut self, function: Function, of: &Val<'a>) -> Option<Val<'a>> {
        if let Val::Text(text) = of {
            self.spend_on(text)?;
        }
        match (function, of) {
            (Function::Size, Val::Text(text)) => length(text.chars().count()),
            (Function::Size, Val::List(items)) => length(items.len()),
            (Function::Size, Val::Json(Value::Array(items))) => length(items.len()),
            (Function::Size, Val::Json(Value::Object(members))) => length(members.len()),
            (Function::Int, Val::Int(value)) => whole(Some(*value)),
            (Function::Int, Val::Double(value)) => {
                // The nearest doubles to the ends of 64 bits are within them.
                let is_in = *value > -9.3e18 && *value < 9.3e18;
                whole(is_in.then_some(*value as i128))
            }
            (Function::Int, Val::Text(text)) => Some(Val::Int(text.parse::<i64>().ok()?.into())),
            (Function::Double, Val::Int(value)) => Some(Val::Double(*value as f64)),
            (Function::Double, Val::Double(value)) => Some(Val::Double(*value)),
            (Function::Double, Val::Text(text)) => text
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite())
                .map(Val::Double),
            (Function::Timestamp, Val::Text(text)) => time::timestamp(text).map(Val::Time),
            (Function::Timestamp, Val::Time(at)) => Some(Val::Time(*at)),
            (Function::Duration, Val::Text(text)) => time::duration(text).map(Val::Span),
            (Function::Duration, Val::Span(span)) => Some(Val::Span(*span)),
            (Function::LowerAscii, Val::Text(text)) => {
                Some(Val::Text(Cow::Owned(text.to_ascii_lowercase())))
            }
            (_, _) => None,
        }
    }

    fn binary(&mut self, operator: Operator, one: &Val<'a>, other: &Val<'a>) -> Option<Val<'a>> {
        let ordered = |wanted: fn(Ordering) -> bool| Some(Val::Bool(wanted(compare(one, other)?)));
        match operator {
            Operator::Equal => Some(Val::Bool(self.equal(one, other)?)),
            Operator::Unequal => Some(Val::Bool(!self.equal(one, other)?)),
            Operator::Less => ordered(Ordering::is_lt),
            Operator::LessOrEqual => ordered(Ordering::is_le),
            Operator::Greater => ordered(Ordering::is_gt),
            Operator::GreaterOrEqual => ordered(Ordering::is_ge),
            Operator::In => self.is_in(one, other).map(Val::Bool),
            Operator::Add
            | Operator::Subtract
            | Operator::Multiply
            | Operator::Divide
            | Operator::Remainder => arithmetic(operator, one, other),
        }
    }

    fn is_in(&mut self, one: &Val<'a>, list: &Val<'a>) -> Option<bool> {
        match (one, list) {
            (Val::Text(name), Val::Json(Value::Object(members))) => {
                Some(members.contains_key(&**name))
            }
            (_, Val::Json(Value::Array(items))) => {
                for item in items {
                    if self.equal(one, &Val::from(item))? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            (_, Val::List(items)) => {
                for item in items.iter() {
                    if self.equal(one, item)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            (_, _) => None,
        }
    }

    /// Compares values of any types; values of different types are unequal.
    fn equal(&mut self, one: &Val<'a>, other: &Val<'a>) -> Option<bool> {
        self.spend(1)?;
        match (one, other) {
            (Val::Text(one), Val::Text(other)) => {
                self.spend_on(one)?;
                Some(one == other)
            }
            (Val::Null, Val::Null) => Some(true),
            (Val::Bool(one), Val::Bool(other)) => Some(one == other),
            (Val::Time(one), Val::Time(other)) => Some(one == other),
            (Val::Span(one), Val::Span(other)) => Some(one == other),
            (Val::Int(_) | Val::Double(_), Val::Int(_) | Val::Double(_)) => {
                Some(compare(one, other) == Some(Ordering::Equal))
            }
            (Val::Json(Value::Object(one)), Val::Json(Value::Object(other))) => {
                if one.len() != other.len() {
                    return Some(false);
                }
                for (name, value) in one {
                    self.spend_on(name)?;
                    let Some(found) = other.get(name) else {
                        return Some(false);
                    };
                    if !self.equal(&Val::from(value), &Val::from(found))? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            (one, other) => {
                let (Some(many), Some(others)) = (items(one), items(other)) else {
                    return Some(false);
                };
                if many != others {
                    return Some(false);
                }
                for at in 0..many {
                    if !self.equal(&item(one, at)?, &item(other, at)?)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
        }
    }
}

type Elements<'v, 'a> = Box<dyn Iterator<Item = Val<'a>> + 'v>;

/// The elements of a list, or the names of an object.
fn elements<'v, 'a>(range: &'v Val<'a>) -> Option<Elements<'v, 'a>> {
    if let Val::Json(Value::Object(members)) = range {
        return Some(Box::new(
            members.keys().map(|name| Val::Text(Cow::Borrowed(name))),
        ));
    }
    let count = items(range)?;
    Some(Box::new((0..count).filter_map(|at| item(range, at))))
}

/// The number of items, if the value is a list.
fn items(value: &Val<'_>) -> Option<usize> {
    if let Val::Json(Value::Array(items)) = value {
        return Some(items.len());
    }
    let Val::List(items) = value else {
        return None;
    };
    Some(items.len())
}

fn item<'a>(list: &Val<'a>, at: usize) -> Option<Val<'a>> {
    if let Val::Json(Value::Array(items)) = list {
        return items.get(at).map(Val::from);
    }
    let Val::List(items) = list else {
        return None;
    };
    items.get(at).cloned()
}

fn negative<'a>(of: &Val<'a>) -> Option<Val<'a>> {
    if let Val::Double(value) = of {
        return Some(Val::Double(-value));
    }
    if let Val::Span(value) = of {
        return Some(Val::Span(-value));
    }
    let Val::Int(value) = of else {
        return None;
    };
    whole(value.checked_neg())
}

fn element<'a>(of: &Val<'a>, key: &Val<'a>) -> Option<Val<'a>> {
    match (of, key) {
        (Val::Json(Value::Object(members)), Val::Text(name)) => members.get(&**name).map(Val::from),
        (list, Val::Int(at)) => item(list, usize::try_from(*at).ok()?),
        (_, _) => None,
    }
}

fn length<'a>(count: usize) -> Option<Val<'a>> {
    i128::try_from(count).ok().map(Val::Int)
}

/// An integer of 64 bits.
fn whole<'a>(value: Option<i128>) -> Option<Val<'a>> {
    value
        .filter(|value| i64::try_from(*value).is_ok())
        .map(Val::Int)
}

/// Compares two values of one type, or two numbers.
fn compare(one: &Val<'_>, other: &Val<'_>) -> Option<Ordering> {
    match (one, other) {
        (Val::Int(one), Val::Int(other)) => Some(one.cmp(other)),
        (Val::Double(one), Val::Double(other)) => one.partial_cmp(other),
        (Val::Int(one), Val::Double(other)) => whole_to_double(*one, *other),
        (Val::Double(one), Val::Int(other)) => whole_to_double(*other, *one).map(Ordering::reverse),
        (Val::Text(one), Val::Text(other)) => Some(one.cmp(other)),
        (Val::Bool(one), Val::Bool(other)) => Some(one.cmp(other)),
        (Val::Time(one), Val::Time(other)) => Some(one.cmp(other)),
        (Val::Span(one), Val::Span(other)) => Some(one.cmp(other)),
        (_, _) => None,
    }
}

/// Compares without rounding the integer, which has at most 64 bits.
fn whole_to_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() > 1e30 {
        return 0.0.partial_cmp(&double);
    }
    // Exact within this range, but for the part behind the point.
    let cut = double.trunc() as i128;
    let behind = 0.0.partial_cmp(&double.fract())?;
    Some(whole.cmp(&cut).then(behind))
}

fn arithmetic<'a>(operator: Operator, one: &Val<'a>, other: &Val<'a>) -> Option<Val<'a>> {
    match (one, other) {
        (Val::Int(one), Val::Int(other)) => whole(match operator {
            Operator::Add => one.checked_add(*other),
            Operator::Subtract => one.checked_sub(*other),
            Operator::Multiply => one.checked_mul(*other),
            Operator::Divide => one.checked_div(*other),
            Operator::Remainder => one.checked_rem(*other),
            Operator::Equal
            | Operator::Unequal
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual
            | Operator::In => None,
        }),
        (Val::Double(one), Val::Double(other)) => doubles(operator, *one, *other),
        // JSON has one type of number, so a model writes 3 where another value is 3.5.
        (Val::Int(one), Val::Double(other)) => doubles(operator, *one as f64, *other),
        (Val::Double(one), Val::Int(other)) => doubles(operator, *one, *other as f64),
        (Val::Time(at), Val::Span(span)) if operator == Operator::Add => later(*at, Some(*span)),
        (Val::Time(at), Val::Span(span)) if operator == Operator::Subtract => {
            later(*at, span.checked_neg())
        }
        (Val::Span(span), Val::Time(at)) if operator == Operator::Add => later(*at, Some(*span)),
        (Val::Time(one), Val::Time(other)) if operator == Operator::Subtract => {
            span(one.as_nanosecond().checked_sub(other.as_nanosecond()))
        }
        (Val::Span(one), Val::Span(other)) if operator == Operator::Add => {
            span(one.checked_add(*other))
        }
        (Val::Span(one), Val::Span(other)) if operator == Operator::Subtract => {
            span(one.checked_sub(*other))
        }
        (_, _) => None,
    }
}

fn later<'a>(at: Timestamp, span: Option<Nanos>) -> Option<Val<'a>> {
    time::later(at, span?).map(Val::Time)
}

fn span<'a>(nanos: Option<Nanos>) -> Option<Val<'a>> {
    time::span(nanos).map(Val::Span)
}

/// An infinite result, or one that is not a number, is an error.
fn doubles<'a>(operator: Operator, one: f64, other: f64) -> Option<Val<'a>> {
    let result = match operator {
        Operator::Add => one + other,
        Operator::Subtract => one - other,
        Operator::Multiply => one * other,
        Operator::Divide => one / other,
        Operator::Remainder
        | Operator::Equal
        | Operator::Unequal
        | Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::In => return None,
    };
    result.is_finite().then_some(Val::Double(result))
}
