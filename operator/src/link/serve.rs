//! The link's HTTPS server.
//!
//! First stage: a message is answered at once. The held answer comes in its place later:
//! [`answer`] is the one function that says what goes down, and a change of it is what a
//! held request waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use kube::Resource;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_manifest::{AgentPresence, LinkDown, LinkUp, Want};

use super::reports::{News, Sender};
use super::review::{ReviewError, Reviewer};
use crate::controller::work::WorkKind;
use crate::controller::world::World;
use crate::metrics::Outcome;

/// A report is a few KiB; 64 withheld tools with long names stay far below.
const BODY: usize = 256 * 1024;
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(10);
const REVIEW: Duration = Duration::from_secs(10);
/// Twice the pods that are promised for; a mediator needs one connection.
const CONNECTIONS: usize = 20_000;

pub struct Link {
    world: Arc<World>,
    reviewer: Reviewer,
    seq: AtomicU64,
    started: jiff::Timestamp,
}

impl Link {
    pub fn new(world: Arc<World>, started: jiff::Timestamp) -> Self {
        // Later leaders begin higher, so that an older answer never looks newer.
        let seq = u64::try_from(started.as_millisecond()).unwrap_or(0);
        Self {
            reviewer: Reviewer::new(world.client.clone()),
            world,
            seq: AtomicU64::new(seq),
            started,
        }
    }
}

pub fn router(link: Arc<Link>) -> Router {
    Router::new()
        .route(names::LINK_PATH, post(report))
        .with_state(link)
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NotLeading,
    NotSynced,
    NoToken,
    TokenRefused,
    Unavailable,
    /// No such pod, or it is no agent's.
    NoAgentPod,
    Malformed,
    TooLarge,
    TooSlow,
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Refusal::NotLeading | Refusal::NotSynced | Refusal::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Refusal::NoToken | Refusal::TokenRefused => StatusCode::UNAUTHORIZED,
            Refusal::NoAgentPod => StatusCode::FORBIDDEN,
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Refusal::NotLeading => "not_leading",
            Refusal::NotSynced => "not_synced",
            Refusal::NoToken => "no_token",
            Refusal::TokenRefused => "token_refused",
            Refusal::Unavailable => "unavailable",
            Refusal::NoAgentPod => "no_agent_pod",
            Refusal::Malformed => "malformed",
            Refusal::TooLarge => "too_large",
            Refusal::TooSlow => "too_slow",
        }
    }
}

async fn report(State(link): State<Arc<Link>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let result = match tokio::time::timeout(READ, axum::body::to_bytes(body, BODY)).await {
        Ok(Ok(body)) => take(&link, &parts.headers, &body).await,
        Ok(Err(_)) => Err(Refusal::TooLarge),
        Err(_) => Err(Refusal::TooSlow),
    };
    let outcome = match &result {
        Ok(_) => "taken",
        Err(refusal) => refusal.name(),
    };
    link.world
        .metrics
        .link_reports
        .get_or_create(&Outcome { outcome })
        .inc();
    match result {
        Ok(down) => Json(down).into_response(),
        Err(refusal) => (refusal.status(), refusal.name()).into_response(),
    }
}

async fn take(link: &Link, headers: &HeaderMap, body: &[u8]) -> Result<LinkDown, Refusal> {
    let world = &link.world;
    if !world.leading() {
        return Err(Refusal::NotLeading);
    }
    if world.tables.synced().is_none() {
        return Err(Refusal::NotSynced);
    }
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or(Refusal::NoToken)?;
    let review = tokio::time::timeout(REVIEW, link.reviewer.review(token));
    let bearer = match review.await {
        Ok(Ok(bearer)) => bearer,
        Ok(Err(ReviewError::Refused)) => return Err(Refusal::TokenRefused),
        Ok(Err(ReviewError::Unavailable(error))) => {
            tracing::warn!(%error, "token not reviewed");
            return Err(Refusal::Unavailable);
        }
        Err(_) => return Err(Refusal::Unavailable),
    };
    let pod = world
        .tables
        .pods
        .get(&bearer.namespace, &bearer.pod)
        .filter(|pod| pod.meta().uid.as_ref() == Some(&bearer.uid))
        .ok_or(Refusal::NoAgentPod)?;
    let agent = pod
        .meta()
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::AGENT_LABEL))
        .ok_or(Refusal::NoAgentPod)?;
    let agent = ObjectRef::new(bearer.namespace.clone(), agent.clone());
    // The body is read after the sender is known: strangers parse nothing here.
    let up: LinkUp = serde_json::from_slice(body).map_err(|_| Refusal::Malformed)?;
    let sender = Sender {
        uid: bearer.uid,
        pod: bearer.pod,
        agent: agent.clone(),
        older_than_leader: pod
            .meta()
            .creation_timestamp
            .as_ref()
            // Creation times are cut to the second.
            .is_none_or(|created| created.0.as_second() < link.started.as_second()),
    };
    let (news, pods) = {
        let mut reports = world.reports();
        let news = reports.report(&sender, &up);
        (news, reports.pods())
    };
    world
        .metrics
        .link_pods
        .set(i64::try_from(pods).unwrap_or(i64::MAX));
    wake(world, &agent, news);
    Ok(answer(link, &agent))
}

/// Status follows a changed state at once, counters at their interval.
fn wake(world: &World, agent: &ObjectRef, news: News) {
    let work = WorkKind::Agent.work(agent.clone());
    if news.state {
        world.queue.add_all([work]);
    } else if news.usage {
        let wait = world
            .memory()
            .agents
            .get(agent)
            .and_then(|memory| memory.usage_written)
            .map_or(Duration::ZERO, |written| {
                world
                    .settings
                    .usage_interval
                    .saturating_sub(written.elapsed())
            });
        // A moment, so that one turn's counters arrive in one write.
        world
            .queue
            .add_after(work, wait.max(Duration::from_secs(2)));
    }
}

/// What an agent's mediators hear now.
fn answer(link: &Link, agent: &ObjectRef) -> LinkDown {
    let present = link
        .world
        .tables
        .agents
        .get(&agent.namespace, &agent.name)
        .is_some();
    let want = link.world.memory().agents.get(agent).map(|memory| Want {
        manifest: memory.want.manifest.clone(),
        credentials: memory.want.credentials.clone(),
    });
    LinkDown {
        seq: link.seq.fetch_add(1, Ordering::Relaxed),
        want,
        floor: None,
        agent: if present {
            AgentPresence::Present
        } else {
            AgentPresence::Deleted
        },
    }
}

/// The certificate as it is kept at the moment of the handshake.
struct Current(Arc<World>);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.link_certificate.load_full()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("TLS is not configurable")]
pub struct TlsError(#[from] rustls::Error);

/// Serves until it is dropped.
pub async fn serve(
    listener: TcpListener,
    link: Arc<Link>,
) -> Result<std::convert::Infallible, TlsError> {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_cert_resolver(Arc::new(Current(Arc::clone(&link.world))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let router = router(link);
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(64 * 1024);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropped with this future, the set ends every connection.
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&room)
            .acquire_owned()
            .await
            .expect("never closed");
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, or the peer is gone already: neither ends the link.
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let (acceptor, router, server) = (acceptor.clone(), router.clone(), server.clone());
        connections.spawn(async move {
            let _permit = permit;
            let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    return;
                }
                Err(_) => return,
            };
            let service = TowerToHyperService::new(router);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}
