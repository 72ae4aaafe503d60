//! The operator's own certificates: an authority, and one serving certificate each for the
//! webhook and the link, in one Secret of the operator's namespace.
//!
//! [`plan`] decides (pure), [`issue`] makes keys and certificates, [`path`] makes the webhook's
//! secret paths, [`keep`] reads and writes, [`leader`] is what the leader's listeners show.
//! Invariants: a certificate is never used before the authority that signed it has been published for [`plan::OVERLAP`]; an authority is dropped only after nothing has been
//! signed by it for as long; webhook and link have different keys, so that the webhook,
//! which has no rights, cannot pass for the link.

pub mod issue;
pub mod keep;
pub mod leader;
pub mod path;
pub mod plan;
