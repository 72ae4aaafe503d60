//! Text of services: secrets removed from it, and the part for a person.

pub(crate) mod display;
pub(crate) mod scrub;
