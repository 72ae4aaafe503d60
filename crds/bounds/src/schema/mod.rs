//! JSON Schemas of tools: the accepted schemas, and the cost of checking a value.
//!
//! Three steps, each bounded by the one before it. [`Schema::read`] counts bytes, nodes, paths,
//! references and patterns. [`Validator::read`] builds the validator, whose memory those counts
//! bound. [`Validator::check`] counts the evaluations on a value before they are made.
//!
//! The bounds follow the costs of the library, `jsonschema`. It stores the path of each node as a
//! separate string, builds the target of a reference once, and builds an engine for each pattern.
//! It recurses along references, which can lead back into the schema at each level of a value. It
//! collects all errors, also those of each branch of an `anyOf`, before it formats one of them.

use jsonschema::PatternOptions;
use parking_lot::Mutex;
use serde_json::Value;

use crate::cut;
use crate::json::pointer::Path;
use crate::pattern::{ENGINE_BYTES, ENGINE_CACHE_BYTES, MAX_PATTERNS, MAX_STATES};
use graph::Graph;

mod graph;
pub mod keywords;
mod outline;
mod violations;

pub use violations::{Violation, Violations};

/// Limits the bytes of a schema. A larger one is a document rather than a tool's arguments, and
/// every request carries it to the model.
pub const MAX_BYTES: usize = 64 * 1024;
/// Limits the JSON values in a schema.
pub const MAX_NODES: usize = 8192;
/// Limits how deep a schema's JSON nests.
pub const MAX_DEPTH: usize = 48;
/// Limits the bytes of all nodes' paths together: a few long names above many nodes add up.
pub const MAX_PATH_BYTES: usize = 4 * 1024 * 1024;
/// Limits the chain of schemas that apply to one value through references, `allOf` and similar
/// keywords. The validator recurses once for each link of the chain, at each level of the value.
pub const MAX_CHAIN: usize = 32;
/// Limits the nodes of a schema with all references expanded.
pub const MAX_EXPANDED: u64 = 100_000;

/// Limits the evaluations of one check; each takes some tens of nanoseconds.
pub const MAX_EVALUATIONS: u64 = 5_000_000;
/// Limits the evaluations of a check whose error names the violations. Beyond it, the error is
/// generic.
const MAX_WORDED: u64 = 20_000;
/// Limits the bytes of a text that `format: regex` parses as a regular expression. That parser is
/// not linear.
const MAX_REGEX_FORMAT: usize = 4096;

/// Upper bound of the memory of a pattern's engine without its states, in bytes: the engine itself,
/// its caches in both directions, and 256 KiB of visited positions.
const PATTERN_BYTES: usize = 8 * 1024 + 2 * ENGINE_CACHE_BYTES + 256 * 1024;
/// Upper bound of the memory of one state of an engine, in bytes, with its threads during a match.
const STATE_BYTES: usize = 1024;

/// Limits the bytes of a schema that a message quotes.
const MAX_SHOWN: usize = 200;

/// Locked while a schema is read and its validator is built. That takes some megabytes, which many
/// threads must not allocate at the same time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Checks a schema by all rules: the bounds of this module, and the library's check that each
/// keyword has a valid value. The library checks while it builds a validator, which is then
/// dropped.
pub fn check(text: &str) -> Result<Value, Defect> {
    let _turn = ONE_AT_A_TIME.lock();
    let schema = Schema::read(text)?;
    schema.build()?;
    Ok(schema.value)
}

/// The reason for which a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Defect {
    pub kind: DefectKind,
    /// JSON pointer into the schema; empty for the whole schema.
    pub pointer: String,
    /// The fault and its cure. It continues a sentence that begins with the name of the place.
    pub message: String,
}

/// The classes of defects; each has a diagnostic code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// Not a valid JSON Schema of a tool.
    Invalid,
    /// Exceeds a bound on size, depth or cost.
    TooLarge,
    /// Refers to another document.
    RemoteReference,
    /// A pattern needs backtracking, or exceeds a bound.
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

/// A schema within all bounds, whose validator is not built yet.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    graph: Graph,
    weight: usize,
}

impl Schema {
    /// Reads the schema of a tool's arguments or structured results, and counts its cost.
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

    /// Returns an upper bound of the validator's memory, in bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Builds the validator. The library checks the rest: that each keyword has a valid value.
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
                    "is not valid JSON Schema: {}; correct it",
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

/// The reason for which a value was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The check would take too long.
    TooLarge,
    /// The value breaks rules of the schema.
    Invalid(Violations),
}

impl Validator {
    /// Reads a schema, counts its cost and builds the validator.
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

    /// Returns an upper bound of the validator's memory, in bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns true if the schema compares numbers, so that rounding one could change the verdict.
    pub fn compares_numbers(&self) -> bool {
        self.graph.compares_numbers()
    }

    /// Returns an upper bound of the evaluations on this value, or `None` if it exceeds
    /// `MAX_EVALUATIONS`.
    pub fn evaluations(&self, value: &Value) -> Option<u64> {
        self.graph.evaluations(value, MAX_EVALUATIONS)
    }

    /// Returns true if the value fits the schema. Returns false also if the check would take too
    /// long.
    pub fn accepts(&self, value: &Value) -> bool {
        self.evaluations(value).is_some() && self.library.is_valid(value)
    }

    /// Checks a value, and returns its violations. The library collects all errors, each with its
    /// path, before it returns one. So they are requested only if they fit into the bounds on
    /// evaluations and memory.
    pub fn check(&self, value: &Value) -> Result<(), Rejection> {
        self.counted(value)?.run()
    }

    /// Counts the evaluations of a check before it runs.
    pub fn counted<'v>(&'v self, value: &'v Value) -> Result<CountedCheck<'v>, Rejection> {
        let evaluations = self.evaluations(value).ok_or(Rejection::TooLarge)?;
        Ok(CountedCheck {
            validator: self,
            value,
            evaluations,
        })
    }
}

/// A check whose evaluations are within the bound.
#[derive(Clone, Copy, Debug)]
pub struct CountedCheck<'v> {
    validator: &'v Validator,
    value: &'v Value,
    evaluations: u64,
}

impl CountedCheck<'_> {
    /// As [`Validator::check`].
    pub fn run(self) -> Result<(), Rejection> {
        let Self {
            validator,
            value,
            evaluations,
        } = self;
        if validator.library.is_valid(value) {
            return Ok(());
        }
        let collected = (evaluations <= MAX_WORDED
            && violations::can_be_collected(evaluations, value))
        .then(|| Violations::read(validator.library.iter_errors(value).collect()))
        .flatten();
        Err(Rejection::Invalid(collected.unwrap_or_else(|| {
            Violation::unlocated("does not fit the schema; it is too large to say where").into()
        })))
    }
}

/// Returns the defect of a schema with too many patterns, or with too many states in them.
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
