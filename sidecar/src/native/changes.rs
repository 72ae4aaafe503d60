//! A stream that announces changes of the list of tools: the answer to GET in a session, or to
//! `subscriptions/listen` without one.
//!
//! Invariants: each change of the list that this client would get is announced once; the stream
//! ends when the agent's access does.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use toolcrib_dialect::{frame, keepalive};
use toolcrib_mcp::revision::{META, SUBSCRIPTION_KEY};
use toolcrib_mcp::{Raw, ReplyBody, raw, reply};

use super::is_offered;
use super::listing::Listing;
use crate::app::App;
use crate::app::sessions::client::{KnownList, Session};
use crate::config::identity::Runner;

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// The request that opened a stream.
pub enum StreamOwner<'a> {
    Session(&'a Session),
    Subscription(Subscription),
}

/// A subscription without a session.
pub struct Subscription {
    /// The id of the request.
    pub id: Raw,
    /// True if it asks for changes of the list of tools; nothing else is announced.
    pub of_tools: bool,
}

struct Changes {
    app: Arc<App>,
    runner: Runner,
    told: Arc<KnownList>,
    wakes: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    /// Resolves when the session ends or another stream of it begins.
    taken: Option<oneshot::Receiver<()>>,
    subscription: Option<Raw>,
    of_tools: bool,
    first: Option<Bytes>,
    over: bool,
    _permit: OwnedSemaphorePermit,
}

/// Opens a stream. `None`: too many are open.
pub fn stream(app: &Arc<App>, runner: &Runner, of: StreamOwner<'_>) -> Option<Response> {
    let permit = app.native.streams.clone().try_acquire_owned().ok()?;
    let (told, taken, subscription, of_tools) = match of {
        StreamOwner::Session(session) => (session.told.clone(), Some(session.stream()), None, true),
        StreamOwner::Subscription(it) => (Arc::default(), None, Some(it.id), it.of_tools),
    };
    let mut changes = Changes {
        wakes: app.current.subscribe(),
        closing: app.native.closing.subscribe(),
        app: app.clone(),
        runner: runner.clone(),
        told,
        taken,
        first: None,
        over: false,
        subscription,
        of_tools,
        _permit: permit,
    };
    if changes.subscription.is_some() {
        // Changes from here on are announced.
        changes.is_news();
        let agreed = match of_tools {
            true => json!({"toolsListChanged": true}),
            false => json!({}),
        };
        let notification = "notifications/subscriptions/acknowledged";
        changes.first = Some(changes.event(notification, Some(("notifications", raw(&agreed)))));
    }
    let bytes = stream::unfold(changes, |mut changes| async {
        let next = changes.next().await?;
        Some((Ok::<_, Infallible>(next), changes))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
    ];
    Some((headers, Body::from_stream(bytes)).into_response())
}

impl Changes {
    /// Returns the next bytes to send; `None`: the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.over {
            return None;
        }
        loop {
            let now = self.app.current.now();
            if !now.admits(&self.runner) || !is_offered(&now) {
                return self.last();
            }
            // Before the list is compared: a window that opens meanwhile is noticed at once.
            let change = now.authority.until_change(Timestamp::now());
            let silence = self.app.settings.keepalive;
            if self.of_tools && self.is_news() {
                return Some(self.event(LIST_CHANGED, None));
            }
            tokio::select! {
                biased;
                () = ended(&mut self.closing, &mut self.taken) => {}
                // Err: the writer is gone and no change can follow.
                Ok(()) = self.wakes.changed() => continue,
                () = tokio::time::sleep(change.unwrap_or(silence)), if change.is_some() => continue,
                () = tokio::time::sleep(silence) => {
                    return Some(Bytes::from_static(keepalive()));
                }
            }
            return self.last();
        }
    }

    /// True if the current list differs from the one that the client knows.
    fn is_news(&self) -> bool {
        let authority = &self.app.current.now().authority;
        self.told
            .renew(Listing::of(authority, Timestamp::now()).digest)
    }

    fn event(&self, method: &str, more: Option<(&str, Raw)>) -> Bytes {
        let mut params = serde_json::Map::new();
        if let Some(id) = &self.subscription {
            params.insert(META.to_owned(), json!({SUBSCRIPTION_KEY: id}));
        }
        params.extend(more.map(|(name, value)| (name.to_owned(), json!(value))));
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        frame(None, &message.to_string()).into()
    }

    /// The last bytes of a stream: a subscription is a request, so it ends with an answer.
    fn last(&mut self) -> Option<Bytes> {
        self.over = true;
        let id = self.subscription.as_ref()?;
        let result = raw(&json!({"resultType": "complete", META: {SUBSCRIPTION_KEY: id}}));
        let answer = reply(Some(id), ReplyBody::Result(&result));
        Some(frame(None, &String::from_utf8_lossy(&answer)).into())
    }
}

/// Resolves when the process ends, or the session, or another stream of it begins.
async fn ended(closing: &mut watch::Receiver<bool>, taken: &mut Option<oneshot::Receiver<()>>) {
    let taken = async {
        match taken {
            // Err: the session is gone.
            Some(taken) => {
                taken.await.ok();
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = closing.wait_for(|closing| *closing) => {}
        () = taken => {}
    }
}
