//! Text of services: secrets removed from it, the part for a person, and the search for many strings.

pub(crate) mod display;
pub(crate) mod scrub;
pub(crate) mod search;
