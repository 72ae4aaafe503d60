//! A proxy to the API server that can delay a response: it simulates a slow network, a slow cache
//! or bad luck.
//!
//! Plain HTTP on loopback; it adds the account's token. Other messages pass unchanged.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::{Body as Answer, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, Response, StatusCode, Uri};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Largest request body; the API server has the same limit.
const MOST: usize = 3 << 20;

/// Selects the responses to delay.
pub type ResponseFilter = fn(&Method, &Uri) -> bool;

pub struct Proxy {
    pub address: SocketAddr,
    inner: Arc<Inner>,
    serving: JoinHandle<()>,
}

struct Inner {
    client: Client,
    which: Mutex<Option<ResponseFilter>>,
    /// Number of responses that are held.
    held: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Proxy {
    pub async fn start(client: Client) -> Result<Self> {
        let inner = Arc::new(Inner {
            client,
            which: Mutex::default(),
            held: watch::channel(0).0,
            open: watch::channel(true).0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().fallback(pass).with_state(Arc::clone(&inner));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::debug!(%error, "the proxy ended");
            }
        });
        Ok(Self {
            address,
            inner,
            serving,
        })
    }

    /// Holds these responses from now on, until [`Proxy::release`].
    pub fn hold(&self, which: ResponseFilter) {
        self.inner.open.send_replace(false);
        self.inner.held.send_replace(0);
        *self.inner.which() = Some(which);
    }

    pub fn held_responses(&self) -> usize {
        *self.inner.held.borrow()
    }

    pub fn release(&self) {
        *self.inner.which() = None;
        self.inner.open.send_replace(true);
    }
}

impl Inner {
    fn which(&self) -> parking_lot::MutexGuard<'_, Option<ResponseFilter>> {
        self.which.lock()
    }
}

async fn pass(State(inner): State<Arc<Inner>>, request: Request<Answer>) -> Response<Answer> {
    let hold = inner
        .which()
        .is_some_and(|which| which(request.method(), request.uri()));
    let (parts, body) = request.into_parts();
    // The controller's request is read whole; responses, which may be watches, are streamed.
    let Ok(body) = to_bytes(body, MOST).await else {
        return refused("the request's body is incomplete");
    };
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    let answer = inner.client.send(request).await;
    if hold {
        inner.held.send_modify(|held| *held += 1);
        // The sender is a field of this value, so it is not dropped.
        let opened = inner.open.subscribe().wait_for(|open| *open).await.is_ok();
        tracing::debug!(opened, "an answer goes on");
    }
    match answer {
        Ok(answer) => answer.map(Answer::new),
        Err(error) => refused(&error.to_string()),
    }
}

fn refused(why: &str) -> Response<Answer> {
    let mut answer = Response::new(Answer::from(why.to_owned()));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
