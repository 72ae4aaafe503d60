//! The guard policies of the chart, on a real API server without our webhook.
//!
//! `refused/` has a file per attack of a pod's author on the mediator's secrets; `passes/` has
//! legitimate edits. Each file has several cases, as edits of an injected pod. To add a case, add
//! a document.
//!
//! The tests need an API server and controllers, but no node: `toolcrib-e2e --name X up
//! --control-plane`, then `TOOLCRIB_E2E_CLUSTER=X cargo test -p toolcrib-e2e
//! --test guard`. Not here: tests that need a running pod (`tests/governed`).

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
