//! JSON Schemas of tools: which ones are taken, and what a check of a value may cost.
//!
//! Three steps, each bounded by the one before it. [`Schema::read`] counts bytes, nodes, paths,
//! references and patterns. [`Validator::read`] builds the validator, whose memory those counts
//! bound. [`Validator::check`] counts the evaluations on a value before they are made.
//!
//! The bounds follow what the validator's library does. It keeps the path of each node as a text
//! of its own; builds what a reference names once; builds an engine for each pattern; recurses
//! along references, which can lead back into the schema at each level of a value; and collects
//! an error for each branch of an `anyOf` before it words one of them.

use jsonschema::PatternOptions;
use parking_lot::Mutex;
use serde_json::Value;

use crate::cut;
use crate::pattern::{ENGINE_BYTES, ENGINE_CACHE_BYTES, MAX_PATTERNS, MAX_STATES};
use crate::pointer::Path;
use graph::Graph;

mod graph;
mod outline;

/// Limits the bytes of a schema. More is not a tool's arguments but a document, and every request
/// carries it to the model.
pub const MAX_BYTES: usize = 64 * 1024;
/// Limits the JSON values in a schema.
pub const MAX_NODES: usize = 8192;
/// Limits how deep a schema's JSON nests.
pub const MAX_DEPTH: usize = 48;
/// Limits the bytes of all nodes' paths together: few bytes of long names above many nodes are
/// many bytes of paths.
pub const MAX_PATH_BYTES: usize = 4 * 1024 * 1024;
/// Limits the schemas that apply to one value one after another, by references, `allOf` and the
/// like. The validator recurses once for each, at each level of the value.
pub const MAX_CHAIN: usize = 32;
/// Limits the nodes after every reference is followed.
pub const MAX_EXPANDED: u64 = 100_000;

/// Limits the evaluations of one check, of some tens of nanoseconds each.
pub const MAX_EVALUATIONS: u64 = 5_000_000;
/// Limits the evaluations of a check that words its error; beyond it the error says less.
const MAX_WORDED: u64 = 20_000;
/// Limits a text that `format: regex` takes for a regular expression; its check is not linear.
const MAX_REGEX_FORMAT: usize = 4096;

/// Bytes that an engine keeps at most, whatever its pattern: itself, what it remembers of both
/// directions, and 256 KiB of places that it visited.
const PATTERN_BYTES: usize = 8 * 1024 + 2 * ENGINE_CACHE_BYTES + 256 * 1024;
/// Bytes that an engine keeps at most for each state, with the threads of a match.
const STATE_BYTES: usize = 1024;

/// Limits the bytes of a schema that a message repeats.
const MAX_SHOWN: usize = 200;

/// Held while a schema is read and built: some megabytes, which many threads must not need at
/// once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Checks a schema by all rules: the ones counted here, and the library's, which knows whether
/// each keyword has a value that it may have. The validator is built for that and dropped.
pub fn check(text: &str) -> Result<Value, Defect> {
    let _turn = ONE_AT_A_TIME.lock();
    let schema = Schema::read(text)?;
    schema.build()?;
    Ok(schema.value)
}

/// Why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Defect {
    pub kind: DefectKind,
    /// Where in the schema, as a JSON pointer; empty for all of it.
    pub pointer: String,
    /// The fault and its cure, to be printed after the name of the place.
    pub message: String,
}

/// The classes of defects; each is told to users under a code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// It is no valid JSON Schema of a tool.
    Invalid,
    /// It is over a bound on size, depth or cost.
    TooLarge,
    /// It refers to another document.
    RemoteReference,
    /// A pattern needs backtracking, or is over a bound.
    Pattern,
}

impl Defect {
    fn new(kind: DefectKind, at: &Path, message: impl Into<String>) -> Self {
        Self {
            kind,
            pointer: at.pointer(),
            message: message.into(),
        }
    }

    fn of_schema(kind: DefectKind, message: impl Into<String>) -> Self {
        Self::new(kind, &Path::Root, message)
    }
}

/// A schema within all bounds, of which no validator is built yet.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    graph: Graph,
    weight: usize,
}

impl Schema {
    /// Reads the schema of a tool's arguments or structured results, and counts what it costs.
    pub fn read(text: &str) -> Result<Self, Defect> {
        if text.len() > MAX_BYTES {
            return Err(Defect::of_schema(
                DefectKind::TooLarge,
                format!(
                    "has {} bytes, {MAX_BYTES} are allowed: simplify the schema",
                    text.len()
                ),
            ));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| {
            Defect::of_schema(
                DefectKind::Invalid,
                format!("is nested too deep, or has a number that no program reads ({error}): simplify the schema"),
            )
        })?;
        let outline = outline::check(&value, text)?;
        let graph = Graph::read(&value)?;
        let patterns = graph.patterns();
        // Measured by `tests/memory.rs`, and rounded up.
        let weight = text.len() * 4
            + outline.nodes * 1024
            + outline.path_bytes * 6
            + patterns.count * PATTERN_BYTES
            + usize::try_from(patterns.states).unwrap_or(usize::MAX) * STATE_BYTES;
        Ok(Self {
            value,
            graph,
            weight,
        })
    }

    /// Bytes that the built validator keeps at most.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Builds the validator, whose library checks what is left: that each keyword has a value that
    /// it may have.
    fn build(&self) -> Result<jsonschema::Validator, Defect> {
        jsonschema::options()
            .offline()
            .with_pattern_options(
                PatternOptions::regex()
                    .size_limit(ENGINE_BYTES)
                    .dfa_size_limit(ENGINE_CACHE_BYTES),
            )
            .with_format("regex", |text: &str| {
                text.len() <= MAX_REGEX_FORMAT && jsonschema_regex::is_valid_ecma_regex(text)
            })
            .build(&self.value)
            .map_err(|error| Defect {
                kind: DefectKind::Invalid,
                pointer: error.instance_path().to_string(),
                message: format!(
                    "is not valid JSON Schema: {}",
                    cut(&error.to_string(), MAX_SHOWN)
                ),
            })
    }
}

/// Checks values against one schema.
#[derive(Debug)]
pub struct Validator {
    library: jsonschema::Validator,
    graph: Graph,
    weight: usize,
}

/// Why a value was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The check would take too long.
    TooLarge,
    /// The value breaks a rule of the schema.
    Invalid {
        /// The fault; never repeats a value.
        message: String,
        /// Where in the value, and which rule of the schema, as JSON pointers.
        path: String,
        rule: String,
    },
}

impl Validator {
    /// Reads, counts and builds.
    pub fn read(text: &str) -> Result<Self, Defect> {
        let _turn = ONE_AT_A_TIME.lock();
        let schema = Schema::read(text)?;
        let library = schema.build()?;
        Ok(Self {
            library,
            graph: schema.graph,
            weight: schema.weight,
        })
    }

    /// Bytes that it keeps at most.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Whether the schema compares numbers, so that rounding one could change the verdict.
    pub fn compares_numbers(&self) -> bool {
        self.graph.compares_numbers()
    }

    /// The evaluations that a check of this value takes at most; counting ends at `MAX_EVALUATIONS`.
    pub fn evaluations(&self, value: &Value) -> Option<u64> {
        self.graph.evaluations(value, MAX_EVALUATIONS)
    }

    /// Whether a value fits; not if the check would take too long.
    pub fn accepts(&self, value: &Value) -> bool {
        self.evaluations(value).is_some() && self.library.is_valid(value)
    }

    /// Checks a value. The library's first answer allocates nothing; it words an error only where
    /// few evaluations lead to it, since it collects the errors of all branches first.
    pub fn check(&self, value: &Value) -> Result<(), Rejection> {
        let evaluations = self.evaluations(value).ok_or(Rejection::TooLarge)?;
        if evaluations > MAX_WORDED {
            return if self.library.is_valid(value) {
                Ok(())
            } else {
                Err(Rejection::Invalid {
                    message: "does not fit the schema; it is too large to say where".to_owned(),
                    path: String::new(),
                    rule: String::new(),
                })
            };
        }
        self.library
            .validate(value)
            .map_err(|error| Rejection::Invalid {
                message: error.masked().to_string(),
                path: error.instance_path().to_string(),
                rule: error.schema_path().to_string(),
            })
    }
}

/// The message for more patterns than a schema may have.
fn too_many_patterns() -> Defect {
    Defect::of_schema(
        DefectKind::Pattern,
        format!(
            "has more than {MAX_PATTERNS} different patterns, or they have more than {MAX_STATES} \
             states together once repetitions are written out: use fewer or shorter patterns, and \
             bound lengths by `maxLength`"
        ),
    )
}
