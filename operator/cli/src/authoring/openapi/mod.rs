//! Converts OpenAPI documents to Surfaces for review: the pure part of `surface from-openapi`.
//!
//! Reading order: [`document`] (OpenAPI 3.0, 3.1 and Swagger 2.0 in one shape), [`operation`] (an
//! operation as a tool), [`schema`] (its schemas as JSON Schema), [`credential`] (the service's
//! credential), [`surface`] (the address, and the result), [`marks`] (texts that need a review).
//!
//! Invariant: an operation that cannot be called as documented is left out with a remark; the
//! compiler accepts every tool of the result.

mod credential;
mod document;
mod marks;
mod names;
mod operation;
mod options;
mod schema;
mod surface;

use std::collections::HashSet;
use std::fmt;

use indexmap::IndexMap;

pub use document::parse;
pub use options::{Address, Choice, SurfaceOptions};
pub(crate) use schema::{cleaned, named, takes_anything};
pub use surface::{GeneratedSurface, describe};

/// A remark for the reviewer on one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark {
    pub kind: RemarkKind,
    /// `GET /fish/{id}`, or empty for the whole document.
    pub place: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// The part is not in the result.
    LeftOut,
    /// The part is in the result, in another form than documented.
    Changed,
    /// The part is in the result, and a reviewer should look at it.
    Look,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RemarkKind::LeftOut => "left out",
            RemarkKind::Changed => "changed",
            RemarkKind::Look => "look",
        };
        match self.place.as_str() {
            "" => write!(f, "{kind}: {}", self.message),
            place => write!(f, "{kind}: {place}: {}", self.message),
        }
    }
}

/// Returns the remarks as lines. Remarks that differ in their place alone share one, but not with the
/// remark on the whole document.
pub(crate) fn lines<'r>(remarks: impl IntoIterator<Item = &'r Remark>) -> Vec<String> {
    let mut places: IndexMap<(RemarkKind, &str, bool), Vec<&str>> = IndexMap::new();
    for remark in remarks {
        let key = (remark.kind, &*remark.message, remark.place.is_empty());
        places.entry(key).or_default().push(&remark.place);
    }
    let line = |((kind, message, _), places): ((RemarkKind, &str, bool), Vec<&str>)| {
        let line = Remark {
            kind,
            place: places.join(", "),
            message: message.to_owned(),
        };
        line.to_string()
    };
    places.into_iter().map(line).collect()
}

/// Longest place in a remark, in bytes: one place of a foreign document may have many remarks.
const MAX_PLACE: usize = 256;

/// Remarks in their order, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Remarks(pub(crate) Vec<Remark>, HashSet<Remark>);

impl Remarks {
    fn add(&mut self, kind: RemarkKind, place: &str, message: impl Into<String>) {
        self.insert(Remark {
            kind,
            place: toolcrib_bounds::cut(place, MAX_PLACE).into_owned(),
            message: message.into(),
        });
    }

    fn insert(&mut self, remark: Remark) {
        if self.1.insert(remark.clone()) {
            self.0.push(remark);
        }
    }

    fn append(&mut self, others: Self) {
        others.0.into_iter().for_each(|remark| self.insert(remark));
    }

    pub(crate) fn left_out(&mut self, place: &str, message: impl Into<String>) {
        self.add(RemarkKind::LeftOut, place, message);
    }

    fn changed(&mut self, place: &str, message: impl Into<String>) {
        self.add(RemarkKind::Changed, place, message);
    }

    pub(crate) fn look(&mut self, place: &str, message: impl Into<String>) {
        self.add(RemarkKind::Look, place, message);
    }
}
