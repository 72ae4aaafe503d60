//! Reads the record: from files, standard input, or the mediators' logs.
//!
//! Lines are read one by one and memory is bounded, whatever a record holds. Not here: what a verb
//! does with the calls, and the requests to a cluster ([`crate::cluster`]).

mod calls;
mod files;
mod lines;
mod source;

pub use calls::{Call, Entry, Joiner, Outcome, Reach, Request, Statistics};
pub use files::read_files;
pub use lines::Splitter;
pub use source::{read, remarks};
