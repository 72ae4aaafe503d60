//! A schema as a graph: each node has edges to the schemas for the same value and for the value's
//! children, and the cost of its own keywords.
//!
//! A node that is reached on `n` paths is evaluated `n` times, and references make `n` grow
//! exponentially from few bytes. So evaluations are counted on the value before the validator runs:
//! the count walks like the validator, with limited fuel.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::outline::REFERENCES;
use super::{Defect, DefectKind, MAX_CHAIN, MAX_EXPANDED, MAX_SHOWN, too_many_patterns};
use crate::cut;
use crate::json::pointer;
use crate::pattern::{self, MAX_PATTERNS, MAX_STATES};

const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_ONE: [&str; 4] = ["not", "if", "then", "else"];
const SAME_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
const CHILD_ONE: [&str; 7] = [
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const CHILD_LISTS: [&str; 2] = ["items", "prefixItems"];
/// Keywords with values that are compared, or names that are looked up.
const LISTED: [&str; 5] = [
    "enum",
    "const",
    "required",
    "dependentRequired",
    "dependencies",
];
/// Keywords that read each byte of a text.
const OVER_BYTES: [&str; 5] = [
    "minLength",
    "maxLength",
    "format",
    "contentEncoding",
    "contentMediaType",
];
/// Keywords that compare numbers by value.
const NUMERIC: [&str; 7] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "enum",
    "const",
];
/// Both make the validator revisit every schema that applies to the same value.
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// Bytes of a text that cost as much as one evaluation, for each state that is alive.
const BYTES_OF_AN_EVALUATION: u64 = 8;

#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    patterns: Patterns,
    compares_numbers: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patterns {
    pub count: usize,
    pub states: u64,
}

/// Edges are indexes in `Graph::nodes`.
#[derive(Debug, Default)]
struct Node {
    /// Values and names that one evaluation may compare.
    listed: u64,
    /// Cost of each byte of a text; `BYTES_OF_AN_EVALUATION` units are one evaluation.
    text: u64,
    /// Cost of each byte of a member's name, in the same unit.
    names: u64,
    same: Vec<usize>,
    /// Number of times that the validator visits `same`.
    looks: u8,
    /// Schemas for a member, by its name.
    properties: HashMap<String, usize>,
    /// Schemas for every child.
    child: Vec<usize>,
    /// Schemas for the names of members.
    property_names: Vec<usize>,
}

impl Graph {
    pub(super) fn read(root: &Value) -> Result<Self, Defect> {
        let mut reader = Reader {
            root,
            places: HashMap::new(),
            waiting: Vec::new(),
            references: HashMap::new(),
            seen: BTreeSet::new(),
            graph: Graph {
                nodes: Vec::new(),
                patterns: Patterns::default(),
                compares_numbers: false,
            },
        };
        reader.place(root);
        while let Some((place, schema)) = reader.waiting.pop() {
            reader.node(place, schema)?;
        }
        reader.graph.check_chains(&reader.references)?;
        if reader.graph.expanded() > MAX_EXPANDED {
            return Err(Defect::of_schema(
                DefectKind::TooLarge,
                format!(
                    "expands to more than {MAX_EXPANDED} nodes once references are followed: \
                     simplify the schema"
                ),
            ));
        }
        Ok(reader.graph)
    }

    pub(super) fn patterns(&self) -> Patterns {
        self.patterns
    }

    pub(super) fn compares_numbers(&self) -> bool {
        self.compares_numbers
    }

    /// Checks that no node applies itself to the same value again, and that at most `MAX_CHAIN`
    /// nodes apply one after another.
    fn check_chains(&self, references: &HashMap<usize, &str>) -> Result<(), Defect> {
        #[derive(Clone, Copy)]
        enum Mark {
            New,
            Open,
            Done { below: usize },
        }
        let mut marks = vec![Mark::New; self.nodes.len()];
        for start in 0..self.nodes.len() {
            if !matches!(marks[start], Mark::New) {
                continue;
            }
            marks[start] = Mark::Open;
            let mut stack = vec![(start, 0, 0)];
            while let Some((node, next, below)) = stack.pop() {
                let Some(&same) = self.nodes[node].same.get(next) else {
                    if below > MAX_CHAIN {
                        return Err(Defect::of_schema(
                            DefectKind::TooLarge,
                            format!(
                                "applies more than {MAX_CHAIN} schemas to one value one after \
                                 another, by references, allOf or the like: join them"
                            ),
                        ));
                    }
                    marks[node] = Mark::Done { below };
                    if let Some((_, _, above)) = stack.last_mut() {
                        *above = (*above).max(below + 1);
                    }
                    continue;
                };
                match marks[same] {
                    Mark::Open => {
                        // A schema contains itself only through a reference.
                        let above = stack.iter().rev().map(|(node, _, _)| *node);
                        let named = [same, node].into_iter().chain(above);
                        let reference = named.filter_map(|node| references.get(&node)).next();
                        return Err(Defect::of_schema(
                            DefectKind::Invalid,
                            format!(
                                "{:?} refers to itself without an end: break the cycle",
                                cut(reference.unwrap_or(&"#"), MAX_SHOWN)
                            ),
                        ));
                    }
                    Mark::New => {
                        marks[same] = Mark::Open;
                        stack.push((node, next + 1, below));
                        stack.push((same, 0, 0));
                    }
                    Mark::Done { below: known } => {
                        stack.push((node, next + 1, below.max(known + 1)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts nodes with every reference followed, each cycle once.
    fn expanded(&self) -> u64 {
        let mut known: Vec<Option<u64>> = vec![None; self.nodes.len()];
        let mut stack = vec![(0, false)];
        while let Some((node, visited)) = stack.pop() {
            if visited {
                let below = self.nodes[node]
                    .edges()
                    .map(|edge| known[edge].unwrap_or(1))
                    .fold(0, u64::saturating_add);
                known[node] = Some(below.saturating_add(1 + self.nodes[node].listed));
            } else if known[node].is_none() {
                // Counts the node as 1 where the nodes below it lead back to it.
                known[node] = Some(1);
                stack.push((node, true));
                stack.extend(self.nodes[node].edges().map(|edge| (edge, false)));
            }
        }
        known.first().copied().flatten().unwrap_or_default()
    }

    /// Counts the evaluations on a value. `None` if there are more than `fuel`.
    pub(super) fn evaluations(&self, value: &Value, fuel: u64) -> Option<u64> {
        let mut left = fuel;
        self.burn(0, value, &mut left)?;
        Some(fuel - left)
    }

    /// Subtracts the evaluations on a value from `fuel`. `None` if there are more. Recurses at most
    /// `MAX_CHAIN` deep at each level of the value, whose depth its parser bounds.
    fn burn(&self, node: usize, value: &Value, fuel: &mut u64) -> Option<()> {
        let node = &self.nodes[node];
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => over_bytes(text, node.text),
            Value::Array(items) => items.len() as u64,
            Value::Object(members) => {
                let names = members.keys().map(|name| over_bytes(name, node.names));
                names.fold(members.len() as u64, u64::saturating_add)
            }
        };
        *fuel = fuel.checked_sub(node.listed.saturating_add(own).saturating_add(1))?;
        for _ in 0..node.looks {
            for same in &node.same {
                self.burn(*same, value, fuel)?;
            }
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            Value::Array(items) => {
                for item in items {
                    for child in &node.child {
                        self.burn(*child, item, fuel)?;
                    }
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if let Some(property) = node.properties.get(name) {
                        self.burn(*property, member, fuel)?;
                    }
                    for child in &node.child {
                        self.burn(*child, member, fuel)?;
                    }
                    for schema in &node.property_names {
                        self.burn_name(*schema, name, fuel)?;
                    }
                }
            }
        }
        Some(())
    }

    /// Does the same as `burn` for a member's name.
    fn burn_name(&self, node: usize, name: &str, fuel: &mut u64) -> Option<()> {
        let node = &self.nodes[node];
        let own = over_bytes(name, node.text);
        *fuel = fuel.checked_sub(node.listed.saturating_add(own).saturating_add(1))?;
        for _ in 0..node.looks {
            for same in &node.same {
                self.burn_name(*same, name, fuel)?;
            }
        }
        Some(())
    }
}

fn over_bytes(text: &str, parts: u64) -> u64 {
    parts.saturating_mul(text.len() as u64) / BYTES_OF_AN_EVALUATION
}

impl Node {
    fn edges(&self) -> impl Iterator<Item = usize> {
        self.same
            .iter()
            .chain(&self.child)
            .chain(&self.property_names)
            .chain(self.properties.values())
            .copied()
    }
}

struct Reader<'s> {
    root: &'s Value,
    places: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'s Value)>,
    /// References, by the node that they lead to.
    references: HashMap<usize, &'s str>,
    /// Patterns that are counted already.
    seen: BTreeSet<&'s str>,
    graph: Graph,
}

impl<'s> Reader<'s> {
    /// Returns the index of a schema's node; a new node is read later.
    fn place(&mut self, schema: &'s Value) -> usize {
        *self
            .places
            .entry(std::ptr::from_ref(schema))
            .or_insert_with(|| {
                let place = self.graph.nodes.len();
                self.graph.nodes.push(Node {
                    looks: 1,
                    ..Node::default()
                });
                self.waiting.push((place, schema));
                place
            })
    }

    fn places(&mut self, schemas: impl IntoIterator<Item = &'s Value>) -> Vec<usize> {
        schemas
            .into_iter()
            .map(|schema| self.place(schema))
            .collect()
    }

    fn node(&mut self, place: usize, schema: &'s Value) -> Result<(), Defect> {
        let Value::Object(members) = schema else {
            return Ok(());
        };
        for (key, value) in members {
            self.keyword(place, key, value)?;
        }
        Ok(())
    }

    fn keyword(&mut self, place: usize, key: &'s str, value: &'s Value) -> Result<(), Defect> {
        if LISTED.contains(&key) {
            self.graph.nodes[place].listed += size(value);
        }
        if OVER_BYTES.contains(&key) {
            self.graph.nodes[place].text += 1;
        }
        if NUMERIC.contains(&key) || (key == "type" && names_integer(value)) {
            self.graph.compares_numbers = true;
        }
        if UNEVALUATED.contains(&key) {
            self.graph.nodes[place].looks = 2;
        }
        match (key, value) {
            (_, Value::String(reference)) if REFERENCES.contains(&key) => {
                let target = pointer::resolve(self.root, reference).ok_or_else(|| {
                    Defect::of_schema(
                        DefectKind::Invalid,
                        format!("refers to {reference:?}, which was not found: declare it under $defs, or correct the reference"),
                    )
                })?;
                let target = self.place(target);
                self.references.entry(target).or_insert(reference);
                self.graph.nodes[place].same.push(target);
            }
            ("pattern", Value::String(pattern)) => {
                self.graph.nodes[place].text += self.pattern(pattern)?;
            }
            ("patternProperties", Value::Object(schemas)) => {
                for pattern in schemas.keys() {
                    self.graph.nodes[place].names += self.pattern(pattern)?;
                }
                let schemas = self.places(schemas.values());
                self.graph.nodes[place].child.extend(schemas);
            }
            ("properties", Value::Object(schemas)) => self.properties(place, schemas),
            ("propertyNames", schema) => {
                let schema = self.place(schema);
                self.graph.nodes[place].property_names.push(schema);
            }
            (_, Value::Array(schemas)) if SAME_LISTS.contains(&key) => {
                let schemas = self.places(schemas);
                self.graph.nodes[place].same.extend(schemas);
            }
            (_, Value::Object(schemas)) if SAME_MAPS.contains(&key) => {
                let schemas = self.places(schemas.values());
                self.graph.nodes[place].same.extend(schemas);
            }
            (_, Value::Object(_)) if SAME_ONE.contains(&key) => {
                let schema = self.place(value);
                self.graph.nodes[place].same.push(schema);
            }
            (_, Value::Array(schemas)) if CHILD_LISTS.contains(&key) => {
                let schemas = self.places(schemas);
                self.graph.nodes[place].child.extend(schemas);
            }
            (_, Value::Object(_)) if CHILD_ONE.contains(&key) => {
                let schema = self.place(value);
                self.graph.nodes[place].child.push(schema);
            }
            _ => {}
        }
        Ok(())
    }

    fn properties(&mut self, place: usize, schemas: &'s Map<String, Value>) {
        for (name, schema) in schemas {
            let schema = self.place(schema);
            let properties = &mut self.graph.nodes[place].properties;
            properties.insert(name.clone(), schema);
        }
    }

    /// Counts a pattern once, and returns its cost for each byte of a text.
    fn pattern(&mut self, pattern: &'s str) -> Result<u64, Defect> {
        let cost = pattern::cost(pattern).map_err(|error| {
            Defect::of_schema(
                DefectKind::Pattern,
                format!(
                    "has the pattern {:?}, which {error}",
                    cut(pattern, MAX_SHOWN)
                ),
            )
        })?;
        let patterns = &mut self.graph.patterns;
        if self.seen.insert(pattern) {
            patterns.count += 1;
            patterns.states += cost.states;
        }
        if patterns.count > MAX_PATTERNS || patterns.states > MAX_STATES {
            return Err(too_many_patterns());
        }
        Ok(cost.alive)
    }
}

fn names_integer(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => kind == "integer",
        Value::Array(kinds) => kinds.iter().any(names_integer),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Counts a value and all values in it. `MAX_DEPTH` bounds the recursion.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Object(members) => members.values().map(size).fold(1, u64::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
