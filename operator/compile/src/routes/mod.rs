//! Where objects lead, and where a credential may go.
//!
//! Reading order: [`address`] (which urls an object may name), [`leads`] (what an object names),
//! [`route`] (what the owner of a Secret allows).

pub(crate) mod address;
pub(crate) mod leads;
pub(crate) mod route;
