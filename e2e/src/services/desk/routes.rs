//! The desk's HTTP surface.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Method, Response, StatusCode, Uri, header},
    routing::any,
};
use serde_json::{Value, json};

use super::ledger::{Ledger, LedgerEntry, market_context};
use crate::services::serving::credential;

const MAX_BODY: usize = 1 << 20;
/// Longest `?delay=`, so that a mistyped number does not block a test for hours.
const MAX_DELAY: Duration = Duration::from_secs(120);

pub struct DeskState {
    tokens_dir: PathBuf,
    ledger: Ledger,
}

impl DeskState {
    /// `tokens_dir` has one file per principal with its token. It is read on each request, so a
    /// rotated token is valid at once.
    pub fn new(tokens_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            tokens_dir,
            ledger: Ledger::default(),
        })
    }

    /// The requests so far, for tests in the same process.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

pub fn router(state: Arc<DeskState>) -> Router {
    Router::new()
        .route("/healthz", any(async || "ok"))
        .fallback(serve)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

/// Handles every request, so the log includes requests to unknown paths.
async fn serve(
    State(desk): State<Arc<DeskState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let principal = match principal(&desk.tokens_dir, &headers).await {
        Ok(principal) => principal,
        Err(error) => {
            tracing::error!(%error, "token files cannot be read");
            None
        }
    };
    let since = query(&uri, "since")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    if let (Some(_), &Method::GET, "/log") = (&principal, &method, uri.path()) {
        return respond(StatusCode::OK, &desk.ledger.log_since(since));
    }
    let (status, answer) = match &principal {
        Some(principal) => answer(&desk.ledger, principal, &method, uri.path(), &body),
        None => (
            StatusCode::UNAUTHORIZED,
            json!({"error": "a token of this desk is needed"}),
        ),
    };
    let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
    names.sort_unstable();
    tracing::info!(
        principal = principal.as_deref().unwrap_or("-"),
        %method, path = uri.path(), status = status.as_u16(), "request"
    );
    desk.ledger.ask(LedgerEntry {
        seq: 0,
        principal,
        method: method.to_string(),
        target: uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        claw_id: market_of(uri.path()).map(ToString::to_string),
        claimed_id: headers
            .get("x-claw-id")
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        headers: names,
        body: String::from_utf8_lossy(&body).into_owned(),
        status: status.as_u16(),
    });
    if let Some(Ok(milliseconds)) = query(&uri, "delay").map(str::parse) {
        tokio::time::sleep(Duration::from_millis(milliseconds).min(MAX_DELAY)).await;
    }
    respond(status, &answer)
}

fn answer(
    ledger: &Ledger,
    principal: &str,
    method: &Method,
    path: &str,
    body: &[u8],
) -> (StatusCode, Value) {
    match (method.as_str(), path) {
        ("GET", path) if let Some(claw_id) = market_of(path) => {
            (StatusCode::OK, market_context(claw_id, principal))
        }
        ("GET", "/api/v1/positions") => (
            StatusCode::OK,
            json!({"principal": principal, "trades": ledger.trades()}),
        ),
        ("POST", "/api/v1/trades") => trade(ledger, principal, body),
        _ => (StatusCode::NOT_FOUND, json!({"error": "no such endpoint"})),
    }
}

fn trade(ledger: &Ledger, principal: &str, body: &[u8]) -> (StatusCode, Value) {
    let order: Value = serde_json::from_slice(body).unwrap_or_default();
    match (&order["symbol"], &order["side"], &order["quantity"]) {
        (Value::String(symbol), Value::String(side), quantity @ Value::Number(_)) => {
            let trade = ledger.trade(principal, symbol, side, quantity.clone());
            (
                StatusCode::CREATED,
                json!({"status": "filled", "trade": trade}),
            )
        }
        _ => (
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"error": "symbol, side and quantity are required"}),
        ),
    }
}

/// The claw id in a market context's path, unchanged.
fn market_of(path: &str) -> Option<&str> {
    let claw_id = path.strip_prefix("/api/v1/market_context/")?;
    (!claw_id.is_empty() && !claw_id.contains('/')).then_some(claw_id)
}

/// Returns the principal whose token the request carries.
async fn principal(dir: &Path, headers: &HeaderMap) -> std::io::Result<Option<String>> {
    let Some(credential) = credential(headers) else {
        return Ok(None);
    };
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A mounted Secret has `..data` and similar entries beside its keys.
        if name.starts_with('.') {
            continue;
        }
        let token = tokio::fs::read_to_string(entry.path()).await?;
        if !token.trim().is_empty() && token.trim() == credential {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    let pairs = uri
        .query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .into_iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

fn respond(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
