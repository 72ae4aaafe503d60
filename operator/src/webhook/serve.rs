//! Connections: TLS for admissions, plain HTTP for status, and graceful shutdown.
//!
//! The API server does not repeat an admission: one that arrives on a closing connection is lost,
//! and the guard denies its pod. So answers during shutdown carry `Connection: close`, and by the
//! time this process closes connections none is in use.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::map_response_with_state;
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::sync::watch;
use toolcrib_serve::{Plain, Tls};

use crate::listen::{self, Bounds, STATUS};

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Serving,
    /// Readiness fails; reviews are still answered.
    Leaving,
    /// No new connection is accepted.
    Closing,
}

/// Bounds of the admission listener. An API server opens a connection for each review that it sends
/// while others run, 600 at most by its own bounds, and comes from one address.
const BOUNDS: Bounds = Bounds {
    known: 2_048,
    known_of_one_address: 2_048,
    strangers: 1_024,
    strangers_of_one_address: 256,
    introduction: Duration::from_secs(10),
    // The API server must close idle connections first: an admission on a closing connection is
    // lost.
    idle: Duration::from_secs(120),
    head: 16 * 1024,
    lifetime: None,
};
/// Time that an API server keeps an idle connection: `http.Transport.IdleConnTimeout` as
/// Kubernetes sets it.
const CLIENT_IDLE: Duration = Duration::from_secs(90);
const _: () = assert!(BOUNDS.idle.as_secs() > CLIENT_IDLE.as_secs());

/// Serves until [`Phase::Closing`], then lets running requests end for up to `limit`.
pub async fn tls(
    listener: TcpListener,
    tls: Tls,
    routes: Router,
    mut phase: watch::Receiver<Phase>,
    limit: Duration,
) {
    let routes = routes.layer(map_response_with_state(phase.clone(), close_on_shutdown));
    let closing = async move {
        // The listener also closes if the sender is dropped.
        let _closing = phase.wait_for(|phase| *phase == Phase::Closing).await;
    };
    listen::serve(listener, tls, routes, BOUNDS, closing, limit).await;
}

/// Adds `Connection: close` to an answer during shutdown.
async fn close_on_shutdown(
    State(phase): State<watch::Receiver<Phase>>,
    mut answer: Response,
) -> Response {
    let last = match *phase.borrow() {
        Phase::Serving => false,
        Phase::Leaving | Phase::Closing => true,
    };
    if last {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

/// Serves until the process ends.
pub async fn plain(listener: TcpListener, routes: Router) {
    listen::serve(listener, Plain, routes, STATUS, pending(), Duration::ZERO).await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Arc;

    use axum::routing::get;
    use jiff::Timestamp;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio_rustls::TlsConnector;

    use super::super::certificate::Certificate;
    use super::*;
    use crate::certificates::issue;
    use crate::certificates::plan::{self, StoredCertificates};

    const HOST: &str = "webhook.pond.svc";
    const DEADLINE: Duration = Duration::from_secs(20);

    /// Writes a new certificate; returns the authority that signed it.
    fn write_certificate(folder: &Path) -> String {
        let hosts = vec![HOST.to_owned()];
        let made = plan::plan(
            &StoredCertificates::default(),
            &hosts,
            &hosts,
            Timestamp::now(),
        )
        .add
        .unwrap();
        let ca = issue::authority(&made).unwrap();
        let pair = issue::serving(&made, &ca.key, &hosts, Timestamp::now()).unwrap();
        std::fs::write(folder.join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), pair.key.expose()).unwrap();
        ca.certificate
    }

    /// Sends one request as a client that trusts only `ca`; returns the body of the answer.
    async fn ask(address: SocketAddr, ca: &str) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(HOST).unwrap(), stream)
            .await?;
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer
            .split("\r\n\r\n")
            .nth(1)
            .unwrap_or_default()
            .to_owned())
    }

    async fn until_answered(address: SocketAddr, ca: &str) -> String {
        let trying = async {
            loop {
                if let Ok(answer) = ask(address, ca).await {
                    return answer;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, trying)
            .await
            .expect("the listener answers in time")
    }

    #[tokio::test]
    async fn a_new_certificate_is_served_without_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Arc::new(Certificate::new(folder.path().to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, phase) = watch::channel(Phase::Serving);
        let reloading = Arc::clone(&certificate);
        tokio::spawn(async move { reloading.keep_current(Duration::from_millis(5)).await });
        tokio::spawn(tls(
            listener,
            certificate.transport().unwrap(),
            Router::new().route("/", get(|| async { "otter" })),
            phase,
            DEADLINE,
        ));
        assert!(!certificate.loaded());

        let first = write_certificate(folder.path());
        assert_eq!(until_answered(address, &first).await, "otter");
        let second = write_certificate(folder.path());
        assert_eq!(until_answered(address, &second).await, "otter");
        ask(address, &first).await.unwrap_err();
        // Damaged files do not replace the loaded certificate.
        std::fs::write(folder.path().join("tls.key"), "none").unwrap();
        assert_eq!(until_answered(address, &second).await, "otter");
    }

    /// The API server reuses connections; a request on a closing connection is lost.
    #[tokio::test]
    async fn answers_during_shutdown_close_the_connection() {
        let (stop, phase) = watch::channel(Phase::Serving);
        let routes = Router::new()
            .route("/", get(|| async { "otter" }))
            .layer(map_response_with_state(phase, close_on_shutdown));
        let says_close = async || {
            let request = axum::http::Request::get("/").body(axum::body::Body::empty());
            let answer = tower::ServiceExt::oneshot(routes.clone(), request.unwrap()).await;
            answer.unwrap().headers().contains_key(CONNECTION)
        };
        assert!(!says_close().await);
        for phase in [Phase::Leaving, Phase::Closing] {
            stop.send_replace(phase);
            assert!(says_close().await, "{phase:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_runs_at_shutdown_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let ca = write_certificate(folder.path());
        let certificate = Arc::new(Certificate::new(folder.path().to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, phase) = watch::channel(Phase::Serving);
        let reloading = Arc::clone(&certificate);
        tokio::spawn(async move { reloading.keep_current(Duration::from_millis(5)).await });
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begun_inside, go_on_inside) = (Arc::clone(&begun), Arc::clone(&go_on));
        let slow = move || async move {
            begun_inside.notify_one();
            go_on_inside.notified().await;
            "late"
        };
        let serving = tokio::spawn(tls(
            listener,
            certificate.transport().unwrap(),
            Router::new().route("/", get(slow)),
            phase,
            DEADLINE,
        ));
        let asking = tokio::spawn(async move { until_answered(address, &ca).await });
        tokio::time::timeout(DEADLINE, begun.notified())
            .await
            .unwrap();
        stop.send_replace(Phase::Leaving);
        stop.send_replace(Phase::Closing);
        go_on.notify_one();
        assert_eq!(asking.await.unwrap(), "late");
        tokio::time::timeout(DEADLINE, serving)
            .await
            .unwrap()
            .unwrap();
        TcpStream::connect(address).await.unwrap_err();
    }

    /// The silent connections come from the API server's address, and exceed its bound.
    #[tokio::test]
    async fn silent_connections_do_not_block_the_api_server() {
        let folder = tempfile::tempdir().unwrap();
        let ca = write_certificate(folder.path());
        let certificate = Arc::new(Certificate::new(folder.path().to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, phase) = watch::channel(Phase::Serving);
        let reloading = Arc::clone(&certificate);
        tokio::spawn(async move { reloading.keep_current(Duration::from_millis(5)).await });
        let serving = tokio::spawn(tls(
            listener,
            certificate.transport().unwrap(),
            Router::new().route("/", get(|| async { "otter" })),
            phase,
            DEADLINE,
        ));
        until_answered(address, &ca).await;
        let mut strangers = Vec::new();
        for _ in 0..BOUNDS.strangers_of_one_address + 50 {
            strangers.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(ask(address, &ca).await.unwrap(), "otter");
        // The first silent connections were closed to make room.
        let mut nothing = [0];
        let closed = strangers[0].read(&mut nothing);
        let closed = tokio::time::timeout(DEADLINE, closed).await.unwrap();
        assert!(matches!(closed, Ok(0) | Err(_)));
        stop.send_replace(Phase::Closing);
        drop(strangers);
        tokio::time::timeout(DEADLINE, serving)
            .await
            .unwrap()
            .unwrap();
    }
}
