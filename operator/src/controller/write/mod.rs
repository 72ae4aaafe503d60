//! Writes objects and Events to the API server.
//!
//! Reading order: [`merge_patch`] (the difference of two values), [`managed_object`] (the kinds
//! that contain compiled data), [`apply`] (creates, patches and deletes them), [`events`] (Kubernetes
//! Events). Not here: the wanted content, and status (`reconcile`).
//!
//! Invariant: an object with the wanted content is not written, and an Event is not written twice.

pub mod digest;

pub mod apply;
pub mod events;
pub mod managed_object;
pub mod merge_patch;
