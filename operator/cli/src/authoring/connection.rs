//! Messages for a server that did not answer: the cause, and what the user can do.
//!
//! Not here: servers that answered. The list of causes is the mediator's; they are recognized by
//! the types of errors. The system's resolver has no type for its errors, so [`MachineNames`] marks
//! them.

use std::error::Error;
use std::net::SocketAddr;
use std::{fmt, io};

use anyhow::anyhow;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolcrib_mediation::ConnectionCause;
use url::Url;

/// The verb that asks a server. Its flags decide what the user can do.
#[derive(Clone, Copy)]
pub enum Verb {
    /// `surface discover`, which has `--ca-file` and `--in-cluster`.
    Discover,
    /// `surface from-image`, which uses this machine's CAs and names.
    FromImage,
}

/// Resolves names as this machine does.
pub struct MachineNames;

/// A name that this machine cannot resolve.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot resolve {name}")]
struct UnknownName {
    name: String,
    #[source]
    source: io::Error,
}

impl Resolve for MachineNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found = look_up(name).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

async fn look_up(name: String) -> Result<Vec<SocketAddr>, UnknownName> {
    let found: io::Result<Vec<SocketAddr>> = tokio::net::lookup_host((&*name, 0))
        .await
        .map(Iterator::collect);
    found.map_err(|source| UnknownName { name, source })
}

/// Converts the error of a request that a library made and that got no answer. The library's client
/// does not mark unknown names, so the name is looked up again.
pub async fn no_answer_to_library(
    error: reqwest::Error,
    server: impl fmt::Display,
    verb: Verb,
) -> anyhow::Error {
    let is_unknown = error.is_connect() && cause(&error).is_none();
    let name = error.url().and_then(Url::domain).map(str::to_owned);
    if is_unknown
        && let Some(name) = name
        && let Err(unknown) = look_up(name).await
    {
        return unresolved(&unknown, server, verb);
    }
    no_answer(error, server, verb)
}

/// Converts the error of a request that got no answer.
pub fn no_answer(error: reqwest::Error, server: impl fmt::Display, verb: Verb) -> anyhow::Error {
    if let Some(unknown) = chain(&error).find_map(|it| it.downcast_ref()) {
        return unresolved(unknown, server, verb);
    }
    match cause(&error) {
        Some(cause) => {
            let advice = advice(cause, verb);
            anyhow!("{server} cannot be asked: {cause}: {advice}")
        }
        None => anyhow!(error.without_url()).context(format!(
            "{server} cannot be asked: check its address, and the network of this machine"
        )),
    }
}

fn unresolved(unknown: &UnknownName, server: impl fmt::Display, verb: Verb) -> anyhow::Error {
    let UnknownName { name, source } = unknown;
    let cause = ConnectionCause::NameNotFound;
    let advice = advice(cause, verb);
    anyhow!("{server} cannot be asked: {cause}: this machine looked up {name} ({source}): {advice}")
}

fn cause(error: &reqwest::Error) -> Option<ConnectionCause> {
    let known = chain(error).find_map(|error| http(error).or_else(|| ConnectionCause::of(error)));
    known.or_else(|| error.is_timeout().then_some(ConnectionCause::TimedOut))
}

/// The cause that an error of the HTTP library shows.
fn http(error: &(dyn Error + 'static)) -> Option<ConnectionCause> {
    let error = error.downcast_ref::<hyper::Error>()?;
    ConnectionCause::of_http(error.is_incomplete_message(), error.is_parse())
}

/// The error and its sources.
fn chain<'e>(error: &'e reqwest::Error) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let first: &'e (dyn Error + 'static) = error;
    std::iter::successors(Some(first), |error| (*error).source())
}

fn advice(cause: ConnectionCause, verb: Verb) -> &'static str {
    match (cause, verb) {
        (ConnectionCause::NameNotFound, Verb::Discover) => {
            "check its spelling; a name that only the cluster knows, such as NAME.NAMESPACE.svc, \
             needs --in-cluster instead of --url"
        }
        (ConnectionCause::NameNotFound, Verb::FromImage) => {
            "check its spelling, and the name servers of this machine"
        }
        (ConnectionCause::TimedOut, _) => {
            "check the port, and whether a firewall stops connections of this machine"
        }
        (ConnectionCause::TlsNotSpoken, Verb::FromImage) => {
            "--plain-http is for a registry on this machine without TLS"
        }
        (ConnectionCause::TlsUnknownCa | ConnectionCause::TlsCaAsServer, Verb::Discover) => {
            "name a file with the certificate of its CA with --ca-file"
        }
        (ConnectionCause::TlsUnknownCa | ConnectionCause::TlsCaAsServer, Verb::FromImage) => {
            "add its CA to this machine's, or name a file with it in the variable SSL_CERT_FILE"
        }
        (
            cause @ (ConnectionCause::Refused
            | ConnectionCause::TlsNotSpoken
            | ConnectionCause::NameServer
            | ConnectionCause::AddressRefused
            | ConnectionCause::TlsExpired
            | ConnectionCause::TlsNotYetValid
            | ConnectionCause::TlsOtherHost
            | ConnectionCause::Tls
            | ConnectionCause::Reset
            | ConnectionCause::NotHttp
            | ConnectionCause::NoRoute
            | ConnectionCause::Other),
            _,
        ) => cause.advice(),
    }
}
