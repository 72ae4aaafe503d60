//! Serves `/healthz`, `/readyz` and `/metrics` on a plain port, for the kubelet and scrapers.
//!
//! Invariant: no answer names an object or an agent.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::context::Context;

pub fn router(context: Arc<Context>) -> Router {
    Router::new()
        // Alive while the runtime answers: a controller that cannot reach the API server waits.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(context)
}

/// Ready once every watched kind is listed. Standbys are ready too.
async fn ready(State(context): State<Arc<Context>>) -> impl IntoResponse {
    match context.stores.missing() {
        missing if missing.is_empty() => (StatusCode::OK, "ok".to_owned()),
        missing => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not listed yet: {}", missing.join(", ")),
        ),
    }
}

async fn metrics(State(context): State<Arc<Context>>) -> impl IntoResponse {
    let count = |objects: usize| i64::try_from(objects).unwrap_or(i64::MAX);
    let metrics = &context.metrics;
    metrics.queue_depth.set(count(context.queue.depth()));
    metrics.unsettled.set(count(context.queue.unsettled()));
    let usage = context.stores.budget.usage();
    metrics.objects_bytes.set(count(usage.bytes));
    metrics.objects_budget_bytes.set(count(usage.budget_bytes));
    metrics.objects_left_out.set(count(usage.left_out));
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0",
        )],
        context.metrics.text(),
    )
}
