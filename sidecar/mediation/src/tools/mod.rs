//! The tools of one loaded version of the files: their schemas, and their names for a model.

pub(crate) mod catalog;
pub(crate) mod names;
pub(crate) mod offer;
pub(crate) mod rules;
pub(crate) mod schema;
