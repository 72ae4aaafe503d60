//! Reads the record: from files, standard input, or the mediators' logs.
//!
//! Lines are read one by one and memory is bounded, whatever a record holds. Not here: what a verb
//! does with the calls, and the requests to a cluster ([`crate::cluster`]).

mod call;
mod calls;
mod connection;
mod files;
mod lines;
mod otlp;
mod questions;
mod source;

pub use call::{Call, Entry, Outcome, Request};
pub use calls::{Joiner, Reach, Statistics};
pub use connection::FailedConnection;
pub use files::{read_files, read_lines};
pub use lines::Splitter;
pub use otlp::RecordLine;
pub use source::{read, remarks};

/// Most bytes of a name, an id or an address; longer ones, which no mediator writes, are cut.
const MAX_NAME: usize = 512;
