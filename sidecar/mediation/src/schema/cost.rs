//! How long a check can take, counted instead of timed.
//!
//! A schema node that is reached on `n` ways is evaluated `n` times, and `$ref`s make
//! `n` grow exponentially from few bytes. So the ways are counted, per depth of the
//! arguments, before anything runs. What one evaluation costs is counted too: an `enum`
//! compares with each of its values, `required` looks for each of its names.

use std::collections::HashMap;

use serde_json::Value;

/// Nodes of a schema, and values and names that they list, all in all.
const MAX_NODES: u64 = 20_000;

/// A schema's nodes with what each applies to the same value and to a child of it.
#[derive(Debug)]
pub(crate) struct Cost {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Values and names that one evaluation may look at.
    listed: u64,
    same: Vec<usize>,
    child: Vec<usize>,
}

const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_ONE: [&str; 4] = ["not", "if", "then", "else"];
const SAME_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
const CHILD_ONE: [&str; 8] = [
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const CHILD_LISTS: [&str; 2] = ["items", "prefixItems"];
const CHILD_MAPS: [&str; 2] = ["properties", "patternProperties"];
/// Values that are compared with, and names that are looked for.
const LISTED: [&str; 5] = [
    "enum",
    "const",
    "required",
    "dependentRequired",
    "dependencies",
];
const REFS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl Cost {
    /// `None`: too many nodes, or values that they list, a `$ref` that is not local, or one that leads back to
    /// itself without going down into the value; or a part with an id, from which its references
    /// would count.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        // Draft 4's word is a usual name of other things since.
        let ids: &[&str] = if schema.to_string().contains("draft-04") {
            &["$id", "id"]
        } else {
            &["$id"]
        };
        if children(schema).any(|part| has_document(part, ids)) {
            return None;
        }
        let mut reader = Reader {
            root: schema,
            ids: HashMap::new(),
            nodes: Vec::new(),
            listed: 0,
        };
        reader.node(schema)?;
        let cost = Self {
            nodes: reader.nodes,
        };
        cost.without_loops().then_some(cost)
    }

    /// An upper bound; saturates.
    pub(crate) fn evaluations(&self, value: &Value) -> u64 {
        let (depth, size) = measure(value);
        let mut below = vec![0u64; self.nodes.len()];
        for _ in 0..=depth {
            let mut here: Vec<Option<u64>> = vec![None; self.nodes.len()];
            for node in 0..self.nodes.len() {
                self.ways(node, &below, &mut here);
            }
            below = here.into_iter().map(Option::unwrap_or_default).collect();
        }
        below
            .first()
            .copied()
            .unwrap_or_default()
            .saturating_mul(size)
    }

    fn ways(&self, node: usize, below: &[u64], here: &mut Vec<Option<u64>>) -> u64 {
        if let Some(known) = here[node] {
            return known;
        }
        let mut sum = self.nodes[node].listed.saturating_add(1);
        for child in &self.nodes[node].child {
            sum = sum.saturating_add(below[*child]);
        }
        for same in &self.nodes[node].same {
            sum = sum.saturating_add(self.ways(*same, below, here));
        }
        here[node] = Some(sum);
        sum
    }

    /// No node applies itself to the same value again.
    fn without_loops(&self) -> bool {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.nodes.len()];
        for start in 0..self.nodes.len() {
            if marks[start] != Mark::New {
                continue;
            }
            let mut stack = vec![(start, 0)];
            marks[start] = Mark::Open;
            while let Some((node, next)) = stack.pop() {
                let Some(&same) = self.nodes[node].same.get(next) else {
                    marks[node] = Mark::Done;
                    continue;
                };
                stack.push((node, next + 1));
                match marks[same] {
                    Mark::Open => return false,
                    Mark::New => {
                        marks[same] = Mark::Open;
                        stack.push((same, 0));
                    }
                    Mark::Done => {}
                }
            }
        }
        true
    }
}

/// Whether a part of it has an id of its own.
fn has_document(value: &Value, ids: &[&str]) -> bool {
    ids.iter()
        .any(|id| value.get(id).is_some_and(Value::is_string))
        || children(value).any(|part| has_document(part, ids))
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(std::iter::empty())
        }
    }
}

/// Depth and number of values. `serde_json` bounds the depth.
fn measure(value: &Value) -> (u64, u64) {
    children(value)
        .map(measure)
        .fold((0, 1), |(depth, size), child| {
            (depth.max(child.0 + 1), size + child.1)
        })
}

struct Reader<'s> {
    root: &'s Value,
    ids: HashMap<*const Value, usize>,
    nodes: Vec<Node>,
    /// By all nodes.
    listed: u64,
}

impl<'s> Reader<'s> {
    fn node(&mut self, schema: &'s Value) -> Option<usize> {
        if let Some(known) = self.ids.get(&std::ptr::from_ref(schema)) {
            return Some(*known);
        }
        let id = self.nodes.len();
        if id as u64 + self.listed >= MAX_NODES {
            return None;
        }
        self.ids.insert(std::ptr::from_ref(schema), id);
        self.nodes.push(Node::default());
        let Value::Object(members) = schema else {
            return Some(id);
        };
        for (key, value) in members {
            let key = key.as_str();
            if LISTED.contains(&key) {
                let (_, size) = measure(value);
                self.nodes[id].listed = self.nodes[id].listed.saturating_add(size);
                self.listed = self.listed.saturating_add(size);
                if self.nodes.len() as u64 + self.listed > MAX_NODES {
                    return None;
                }
            }
            let (mut same, mut child) = (Vec::new(), Vec::new());
            if REFS.contains(&key) {
                same.extend(self.target(value)?);
            }
            match value {
                Value::Array(items) if SAME_LISTS.contains(&key) => same.extend(items),
                Value::Array(items) if CHILD_LISTS.contains(&key) => child.extend(items),
                Value::Object(map) if SAME_MAPS.contains(&key) => same.extend(map.values()),
                Value::Object(map) if CHILD_MAPS.contains(&key) => child.extend(map.values()),
                Value::Object(_) if SAME_ONE.contains(&key) => same.push(value),
                Value::Object(_) if CHILD_ONE.contains(&key) => child.push(value),
                _ => {}
            }
            for schema in same {
                let to = self.node(schema)?;
                self.nodes[id].same.push(to);
            }
            for schema in child {
                let to = self.node(schema)?;
                self.nodes[id].child.push(to);
            }
        }
        Some(id)
    }

    /// What a local `$ref` points to; only JSON pointers are followed. One into nowhere
    /// fails when the schema is compiled.
    fn target(&self, reference: &Value) -> Option<Option<&'s Value>> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        if pointer.is_empty() {
            return Some(Some(self.root));
        }
        if !pointer.starts_with('/') {
            return None;
        }
        let decoded = percent_decoded(pointer)?;
        Some(self.root.pointer(&decoded))
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(out).ok()
}
