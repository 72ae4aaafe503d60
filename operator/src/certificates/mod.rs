//! The operator's own certificates: an authority, and one serving certificate each for the
//! webhook and the link, in one Secret of the operator's namespace.
//!
//! [`plan`] decides (pure), [`issue`] makes keys and certificates, [`path`] makes the webhook's
//! secret paths, [`rotate`] reads and writes the objects, [`leader`] gives the certificates to the
//! leader's listeners.
//!
//! Invariants: a certificate is used only after its authority has been published for
//! [`plan::OVERLAP`]. An authority is dropped only after it has signed nothing for that time. The
//! webhook and the link have different keys, so the webhook, which has no rights, cannot
//! impersonate the link.

pub mod issue;
pub mod leader;
pub mod path;
pub mod plan;
pub mod rotate;
