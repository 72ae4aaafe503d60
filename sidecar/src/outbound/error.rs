//! Finds the cause of a failed connection: by the types in the error's chain, never by texts.
//! Here: errors of the resolver and of the HTTP client; the others are [`ConnectionCause::of`].

use std::error::Error;
use std::io;

use toolcrib_mediation::{ConnectionCause, ConnectionFailure};
use url::Url;

use crate::outbound::resolver::ResolveError;
use crate::outbound::transport::{BrokenBody, SendError};

/// Returns the cause and the address of a failed connection. Names no path, user or query.
pub fn failure(error: &reqwest::Error) -> ConnectionFailure {
    let address = error.url().map(origin);
    ConnectionFailure {
        cause: cause(error),
        address: address.unwrap_or_default(),
    }
}

/// The same for a request to `url`.
pub fn send_failure(error: &SendError, url: &Url) -> ConnectionFailure {
    ConnectionFailure {
        cause: cause(error.cause()),
        address: origin(url),
    }
}

/// The same for the body of an answer from `url`.
pub fn body_failure(error: &BrokenBody, url: &Url) -> ConnectionFailure {
    ConnectionFailure {
        cause: cause(error.cause()),
        address: origin(url),
    }
}

/// The failure of a server that did not answer in time, at a URL of the manifest.
pub fn timed_out(url: &str) -> ConnectionFailure {
    ConnectionFailure {
        cause: ConnectionCause::TimedOut,
        address: address(url),
    }
}

/// `scheme://host:port` of a URL of the manifest.
pub fn address(url: &str) -> String {
    Url::parse(url).as_ref().map(origin).unwrap_or_default()
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn cause(error: &(dyn Error + 'static)) -> ConnectionCause {
    let mut next = Some(error);
    let mut timed_out = false;
    while let Some(error) = next {
        if let Some(cause) = known(error) {
            return cause;
        }
        let client = error.downcast_ref::<reqwest::Error>();
        timed_out |= client.is_some_and(reqwest::Error::is_timeout);
        next = error.source();
    }
    match timed_out {
        true => ConnectionCause::TimedOut,
        false => ConnectionCause::Other,
    }
}

/// Returns the cause that one error of a chain shows by its type.
fn known(error: &(dyn Error + 'static)) -> Option<ConnectionCause> {
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        return Some(unresolved(error));
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return ConnectionCause::of_http(error.is_incomplete_message(), error.is_parse());
    }
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    inner
        .and_then(|inner| known(inner))
        .or_else(|| ConnectionCause::of(error))
}

fn unresolved(error: &ResolveError) -> ConnectionCause {
    match error {
        ResolveError::NotFound
        | ResolveError::NoAddress
        | ResolveError::NotAName
        | ResolveError::Machine(_) => ConnectionCause::NameNotFound,
        ResolveError::RefusedAddress => ConnectionCause::AddressRefused,
        ResolveError::Timeout
        | ResolveError::Refused
        | ResolveError::ServerFailed(_)
        | ResolveError::Unreachable(_)
        | ResolveError::BadAnswer
        | ResolveError::NoNameServers
        | ResolveError::NoFiles => ConnectionCause::NameServer,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::outbound::resolver::Resolver;
    use crate::outbound::{LocalNames, Outbound};

    async fn check(local: LocalNames, url: &str, cause: ConnectionCause) {
        let outbound = Outbound::new(local, Resolver::of_machine());
        let client = outbound.client(None, None).unwrap();
        let path = format!("{url}/path?token=x");
        let request = client.get(&path);
        let error = request.timeout(Duration::from_secs(10)).send().await;
        let found = failure(&error.unwrap_err());
        assert_eq!((found.cause, found.address.as_str()), (cause, url));
        let to = outbound.url(&path).unwrap();
        let transport = outbound.transport(&to.url, None, None).unwrap();
        let error = transport.send(to.clone(), to.get()).await;
        let found = send_failure(&error.unwrap_err(), &to.url);
        assert_eq!((found.cause, found.address.as_str()), (cause, url));
    }

    #[tokio::test]
    async fn each_cause_is_known_by_its_type() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // Answers with bytes that are no TLS.
                let mut head = [0; 1024];
                let length = stream.read(&mut head).await.unwrap();
                if !head[..length].starts_with(b"GET") {
                    tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400\r\n\r\n")
                        .await
                        .unwrap();
                }
            }
        });
        let allowed = LocalNames::Allowed;
        check(
            allowed,
            &format!("http://{address}"),
            ConnectionCause::Reset,
        )
        .await;
        check(
            allowed,
            &format!("https://{address}"),
            ConnectionCause::TlsNotSpoken,
        )
        .await;
        check(allowed, "http://127.0.0.1:9", ConnectionCause::Refused).await;
        check(
            allowed,
            "http://nothing.invalid",
            ConnectionCause::NameNotFound,
        )
        .await;
        let refused = LocalNames::Refused;
        check(
            refused,
            "http://localhost:9",
            ConnectionCause::AddressRefused,
        )
        .await;
    }

    #[tokio::test]
    async fn silence_is_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Outbound::new(LocalNames::Allowed, Resolver::of_machine())
            .client(None, None)
            .unwrap();
        let asked = client
            .get(&url)
            .timeout(Duration::from_millis(20))
            .send()
            .await;
        let error = asked.unwrap_err();
        assert_eq!(failure(&error).cause, ConnectionCause::TimedOut);
        // The same error on a route over a proxy.
        let url = Url::parse(&url).unwrap();
        let found = send_failure(&SendError::from(error), &url);
        assert_eq!(found.cause, ConnectionCause::TimedOut);
    }
}
