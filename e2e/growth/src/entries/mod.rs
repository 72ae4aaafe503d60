//! The entry points that read untrusted bytes, each with its hostile inputs.

mod command;
mod conditions;
mod dialects;
mod mediator;
mod messages;
mod namespace;
mod objects;
mod record;
mod schemas;
mod webhook;
mod wire;

use crate::shapes::Shape;

/// A function that reads untrusted bytes.
pub struct Entry {
    pub name: &'static str,
    /// The bound on the bytes that it reads.
    pub bound: &'static str,
    /// Bytes of the smallest input; the largest has eight times as many.
    pub unit: usize,
    pub shapes: Vec<Shape>,
    /// Prepares the other arguments, and returns the function that reads an input.
    pub prepare: Box<dyn Fn() -> Reader>,
}

pub type Reader = Box<dyn Fn(&str)>;

fn entry(
    name: &'static str,
    bound: &'static str,
    unit: usize,
    shapes: Vec<Shape>,
    run: impl Fn(&str) + Clone + 'static,
) -> Entry {
    prepared(name, bound, unit, shapes, move || Box::new(run.clone()))
}

fn prepared(
    name: &'static str,
    bound: &'static str,
    unit: usize,
    shapes: Vec<Shape>,
    prepare: impl Fn() -> Reader + 'static,
) -> Entry {
    Entry {
        name,
        bound,
        unit,
        shapes,
        prepare: Box::new(prepare),
    }
}

const MAX: usize = 32 * 1024 * 1024;
const KIB: usize = 1024;

pub fn all() -> Vec<Entry> {
    let mut entries = schemas::entries();
    entries.extend(objects::entries());
    entries.extend(mediator::entries());
    entries.extend(dialects::entries());
    entries.extend(messages::entries());
    entries.extend(webhook::entries());
    entries.extend(wire::entries());
    entries.extend(command::entries());
    entries
}

/// Entry points of which only the allocated bytes are counted. They allocate at each comparison of
/// two names, and callgrind would need minutes for their inputs.
pub fn by_bytes() -> Vec<Entry> {
    namespace::entries()
}
