//! Probes and metrics, on loopback. Nothing here changes anything, and nothing here shows
//! a file's content.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use toolcrib_manifest::{Digests, Withheld};

use crate::app::App;

/// `/readyz`: what is served, or why nothing is.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digests>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at: Option<String>,
    /// Why the files that are there are not served, also while the last good ones are.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tools: usize,
    withheld: Vec<Withheld>,
    /// The link's answer that is in force; 0: none yet.
    link_seen: u64,
}

pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(app)
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    let now = app.current.now();
    let version = now.version().ok();
    let unavailable = now.version().err().map(|error| error.to_string());
    let readiness = Readiness {
        ready: version.is_some(),
        digest: version.and_then(|version| version.agent.digest.clone()),
        loaded_at: now.loaded_at.clone(),
        error: now.standing.error().or(unavailable),
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

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.text(app.current.now().version().is_ok());
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, format)], text).into_response()
}
