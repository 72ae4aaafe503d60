//! Budgets for work on untrusted bytes.
//!
//! Compiler, operator, mediator, wrapper and command line read schemas, patterns, bodies and lists
//! from people whom they do not trust. Each rule that bounds such work is written once, here, so
//! that the mediator never refuses a value that the compiler accepted. Types of the API and of the
//! contract are in `toolcrib-crds` and `toolcrib-manifest`.
//!
//! Invariant: every function is linear in the size of its input, and counts before it allocates.

pub mod arguments;
mod buffer;
pub mod ca;
pub mod digest;
pub mod glob;
pub mod headers;
pub mod json;
pub mod names;
mod path;
pub mod pattern;
pub mod schema;
mod text;
mod weight;

pub use buffer::{Buffer, TooLarge};
pub use path::FieldPath;
pub use text::escaped::escaped;
pub use text::shown::{is_hidden, shown};
pub use text::{chain, count, cut, listed};
pub use weight::{NAMESPACE_WEIGHT, OBJECT_WEIGHT, weight};
