//! The addresses that objects lead to, and the routes that a credential may take.
//!
//! Reading order: [`address`] (the urls that an object may name), [`leads`] (the Services that an
//! object names), [`route`] (the routes that the owner of a Secret allows).

pub(crate) mod address;
pub(crate) mod leads;
pub(crate) mod route;
