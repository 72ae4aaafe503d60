//! Policy tests for the proposed grants, as a ToolTest.
//!
//! The expectations are the answers of the code that `test` runs, for the objects after the change.
//! Recorded arguments are written only on request. Without it, a case has the values that the grant
//! itself holds, and made-up ones for the rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Number, Value, json};
use toolcrib_compile::{Compilation, Inputs};

use super::grant::UsedTool;
use super::limits::{ArgumentLimit, Limit};
use super::offers::OfferedTool;
use crate::policy::{self, Call, Outcome, Verdict};
use crate::print::{self, Note, Notes};

/// Most cases about tools that are not granted.
const MOST_DENIED: usize = 64;
/// Most cases in all: each is decided.
const MOST_CASES: usize = 256;

/// The objects after the change.
pub struct Decider<'a> {
    pub inputs: &'a Inputs,
    pub compilation: &'a Compilation,
    /// The calling pod, for an agent with `identity: Pod`.
    pub pod: Option<&'a str>,
    pub now: Timestamp,
}

impl Decider<'_> {
    fn decide(&self, tool: &str, arguments: &Value) -> anyhow::Result<Outcome> {
        let call = Call {
            previous: 0,
            pod: self.pod,
            tool,
            arguments: &arguments.to_string(),
            now: self.now,
        };
        policy::call(self.inputs, self.compilation, &call)
    }
}

/// Whether the cases have the arguments of recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    Recorded,
    MadeUp,
}

/// The ToolTest, and its comments.
pub struct Cases {
    pub head: Vec<String>,
    pub object: Value,
    pub notes: Notes,
}

/// Writes the cases. `None`: no case can be decided.
pub fn cases(
    decider: &Decider<'_>,
    used: &[UsedTool<'_>],
    offers: &BTreeMap<String, OfferedTool>,
    arguments: Arguments,
) -> anyhow::Result<Option<Cases>> {
    let mut list = List::default();
    for tool in used {
        allowed(decider, tool, arguments, &mut list)?;
        refused(decider, tool, arguments, &mut list)?;
    }
    let unused = offers
        .keys()
        .filter(|name| used.iter().all(|tool| tool.called != name.as_str()));
    for name in unused.take(MOST_DENIED) {
        let outcome = decider.decide(name, &json!({}))?;
        if let (Verdict::Denied, Some(code)) = (outcome.result, outcome.code) {
            let case = json!({
                "name": format!("may not call {name}"),
                "call": name,
                "expect": {"result": "Denied", "code": code},
            });
            list.add(case, None);
        }
    }
    if list.cases.is_empty() {
        return Ok(None);
    }
    let agent = &decider.compilation.agent;
    let mut spec = json!({"agent": agent.name, "cases": list.cases});
    if let Some(pod) = decider.pod {
        spec["pod"] = json!(pod);
    }
    let mut head = vec![match arguments {
        Arguments::Recorded => {
            "Policy tests with arguments of recorded calls: they may hold what should stay in the record."
                .to_owned()
        }
        Arguments::MadeUp => {
            "Policy tests. Arguments that the grant does not hold are made up: replace them, or use --arguments."
                .to_owned()
        }
    }];
    head.extend(list.without);
    Ok(Some(Cases {
        head,
        object: json!({
            "apiVersion": policy::API_VERSION,
            "kind": policy::KIND,
            "metadata": {"name": format!("{}-proposed", agent.name), "namespace": agent.namespace},
            "spec": spec,
        }),
        notes: list.notes,
    }))
}

#[derive(Default)]
struct List {
    cases: Vec<Value>,
    notes: Notes,
    /// The tools for which no allowed call could be made up.
    without: Vec<String>,
}

impl List {
    fn add(&mut self, case: Value, note: Option<String>) {
        if self.cases.len() == MOST_CASES {
            return;
        }
        let index = self.cases.len().to_string();
        let path = ["spec", "cases", &index].map(str::to_owned).to_vec();
        let above = note.into_iter().collect();
        self.notes.insert(
            path,
            Note {
                above,
                beside: None,
            },
        );
        self.cases.push(case);
    }
}

/// The calls that the grant allows.
fn allowed(
    decider: &Decider<'_>,
    tool: &UsedTool<'_>,
    arguments: Arguments,
    list: &mut List,
) -> anyhow::Result<()> {
    let mut is_tested = false;
    for (arguments, note) in examples(tool, arguments) {
        let outcome = decider.decide(tool.called, &arguments)?;
        let result = match outcome.result {
            Verdict::Allowed => "Allowed",
            Verdict::NeedsApproval => "NeedsApproval",
            Verdict::Denied => continue,
        };
        is_tested = true;
        let mut case = json!({
            "name": format!("may call {}", tool.called),
            "call": tool.called,
            "arguments": arguments,
            "expect": {"result": result},
        });
        if let Some(by) = outcome.by {
            case["expect"]["by"] = json!(by);
        }
        list.add(case, note);
    }
    if !is_tested {
        let name = print::plain(tool.called);
        list.without.push(format!(
            "{name}: no case of an allowed call: write one with arguments that the tool accepts"
        ));
    }
    Ok(())
}

/// A call that differs from an allowed one in the first limited argument.
fn refused(
    decider: &Decider<'_>,
    tool: &UsedTool<'_>,
    arguments: Arguments,
    list: &mut List,
) -> anyhow::Result<()> {
    let Some((Value::Object(base), _)) = examples(tool, arguments).into_iter().next() else {
        return Ok(());
    };
    for argument in &tool.limits {
        let Some(other) = outside(&argument.limit) else {
            continue;
        };
        let mut arguments = base.clone();
        arguments.insert(argument.name.clone(), other);
        let arguments = Value::Object(arguments);
        let outcome = decider.decide(tool.called, &arguments)?;
        if let (Verdict::Denied, Some(code)) = (outcome.result, outcome.code) {
            let case = json!({
                "name": format!("may not call {} with another {}", tool.called, argument.name),
                "call": tool.called,
                "arguments": arguments,
                "expect": {"result": "Denied", "code": code},
            });
            list.add(case, None);
        }
    }
    Ok(())
}

/// Arguments of calls that the grant should allow, each with a comment.
fn examples(tool: &UsedTool<'_>, arguments: Arguments) -> Vec<(Value, Option<String>)> {
    match arguments {
        Arguments::Recorded => {
            let samples = tool.evidence.samples.iter();
            let read = samples.filter_map(|(_, text)| serde_json::from_str(text).ok());
            read.map(|value| (value, None)).collect()
        }
        Arguments::MadeUp => {
            let mut members = Map::new();
            let mut made_up = Vec::new();
            for argument in &tool.limits {
                match known(&argument.limit) {
                    Some(value) => {
                        members.insert(argument.name.clone(), value);
                    }
                    None if is_needed(tool, argument) => {
                        let schema = &tool.offer.arguments[&argument.name];
                        members.insert(argument.name.clone(), example(schema));
                        made_up.push(print::plain(&argument.name).into_owned());
                    }
                    None => {}
                }
            }
            let note = (!made_up.is_empty()).then(|| format!("Made up: {}.", made_up.join(", ")));
            vec![(Value::Object(members), note)]
        }
    }
}

/// Whether a call needs an argument that the grant does not hold.
fn is_needed(tool: &UsedTool<'_>, argument: &ArgumentLimit) -> bool {
    let required = tool.offer.schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten();
    required.any(|name| name.as_str() == Some(&argument.name))
}

/// A value that the grant itself holds.
fn known(limit: &Limit) -> Option<Value> {
    match limit {
        Limit::Pin(value) => Some(value.clone()),
        Limit::OneOf(values) => values.first().map(|(value, _)| value.clone()),
        Limit::Range(low, _) => Some(Value::Number(low.clone())),
        Limit::Open(_) => None,
    }
}

/// A value that the limit refuses.
fn outside(limit: &Limit) -> Option<Value> {
    let other = |value: &Value| match value {
        Value::Bool(value) => json!(!value),
        Value::Number(number) => above(number),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            json!("not-in-the-record")
        }
    };
    match limit {
        Limit::Pin(value) => Some(other(value)),
        Limit::OneOf(values) => values.first().map(|(value, _)| other(value)),
        Limit::Range(_, high) => Some(above(high)),
        Limit::Open(_) => None,
    }
}

/// A greater number.
fn above(number: &Number) -> Value {
    match number.as_i64().and_then(|number| number.checked_add(1)) {
        Some(next) => json!(next),
        None => json!(number.as_f64().unwrap_or_default() + 1.0),
    }
}

/// A value that an argument's schema probably accepts.
fn example(schema: &Value) -> Value {
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    let listed = schema.get("enum").and_then(Value::as_array);
    if let Some(first) = listed.and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        Some("null") => Value::Null,
        Some(_) | None => json!("example"),
    }
}
