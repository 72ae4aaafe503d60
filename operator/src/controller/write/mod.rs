//! Writes to the API server, beside status.
//!
//! Reading order: [`merge_patch`] (what differs between two values), [`managed_object`] (the kinds
//! that carry compiled data), [`apply`] (creates, patches and removes them), [`events`] (Kubernetes
//! Events). Not here: the decision what to write, and status (`reconcile`).
//!
//! Invariant: an object that is as it should be is not written, and an Event that exists is not
//! written twice.

pub mod apply;
pub mod events;
pub mod managed_object;
pub mod merge_patch;
