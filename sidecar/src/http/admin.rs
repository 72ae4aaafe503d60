//! Probes and metrics, on loopback. Invariants: nothing here changes state or shows the content of
//! a file.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use toolcrib_manifest::{Digests, WithheldItem};
use toolcrib_mediation::feed_name;

use crate::app::App;
use crate::metrics;

/// The answer of `/readyz`: the version in force, or the reason why none is.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digests>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at: Option<String>,
    /// The reason why the current files are not served, also while the last good version is.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tools: usize,
    withheld: Vec<WithheldItem>,
    /// The `seq` of the link's answer in force; 0: none yet.
    link_seen: u64,
}

pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(app)
}

/// The metrics for every client that reaches the pod: counters, no state of the manifest.
pub fn metrics_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_text))
        .with_state(app)
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    let now = app.current.now();
    let version = now.version().ok();
    let unavailable = now.version().err().map(|error| error.to_string());
    let readiness = Readiness {
        // A suspended agent's pods stay ready, so that no rollout or Service takes the suspension
        // for a fault.
        ready: now.is_ready(),
        digest: now
            .is_ready()
            .then(|| now.load_state.version()?.agent.digest.clone())
            .flatten(),
        loaded_at: now.loaded_at.clone(),
        error: now.load_state.error().or(unavailable),
        tools: version.map_or(0, |version| version.catalog.tools().len()),
        withheld: version
            .map(|version| version.withheld())
            .unwrap_or_default(),
        link_seen: now.seen,
    };
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, axum::Json(readiness)).into_response()
}

async fn metrics_text(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.text(&state(&app));
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, format)], text).into_response()
}

fn state(app: &App) -> metrics::State {
    let now = app.current.now();
    let version = now.version().ok();
    let limit = app.settings.limits.requests;
    metrics::State {
        in_force: version.is_some(),
        manifest_error: now.load_state.error().is_some(),
        tools: version.map_or_else(Vec::new, |it| {
            let tools = it.catalog.tools().iter();
            tools
                .map(|tool| (tool.name().to_string(), tool.tool.execution.service.clone()))
                .collect()
        }),
        feeds: version.map_or_else(Vec::new, |it| it.feeds.iter().map(feed_name).collect()),
        tools_withheld: version.map_or(0, |it| it.withheld().len()),
        requests_running: limit.saturating_sub(app.requests.available_permits()),
        record_waiting: app.history.waiting(),
        approvals_open: app.approvals.open_count(),
        // 0 without /proc.
        descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        tasks: tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        link: app.link.now(),
        keys: version.map_or_else(Vec::new, |it| app.models.keys(&it.providers)),
    }
}
