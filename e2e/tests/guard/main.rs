//! The guard policies of the chart, asked by a real API server with no webhook of ours.
//!
//! `refused/` has a file per way in which a pod's author might come by what only a mediator
//! may hold, `passes/` what must not be in anybody's way: several cases each, as edits of an
//! injected pod. Adding a case means adding a document.
//!
//! They want an API server and controllers, no node: `toolcrib-e2e --name X up
//! --control-plane`, then `TOOLCRIB_E2E_CLUSTER=X cargo test -p toolcrib-e2e --features
//! cluster --test guard`. Not here: what only a running pod shows (`tests/governed`).

mod cases;
mod compiled;
mod connections;
mod forms;
mod jobs;
mod neighbours;
mod pods;
mod policies;
mod tokens;
mod webhooks;
