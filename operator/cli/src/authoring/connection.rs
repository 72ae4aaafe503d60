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

/// The CAs that a verb trusts, for advice to its user.
#[derive(Clone, Copy)]
pub enum Trust {
    /// The verb has `--ca-file`.
    CaFile,
    /// The verb uses this machine's CAs.
    Machine,
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
            let found: io::Result<Vec<SocketAddr>> = tokio::net::lookup_host((&*name, 0))
                .await
                .map(Iterator::collect);
            match found {
                Ok(found) => Ok(Box::new(found.into_iter()) as Addrs),
                Err(source) => Err(UnknownName { name, source }.into()),
            }
        })
    }
}

/// Converts the error of a request that got no answer.
pub fn no_answer(error: reqwest::Error, server: impl fmt::Display, trust: Trust) -> anyhow::Error {
    if let Some(UnknownName { name, source }) = chain(&error).find_map(|it| it.downcast_ref()) {
        let cause = ConnectionCause::NameNotFound;
        return anyhow!(
            "{server} cannot be asked: {cause}: this machine looked up {name} ({source}): check its \
             spelling; a name that only the cluster knows, such as NAME.NAMESPACE.svc, needs \
             --in-cluster instead of --url"
        );
    }
    match cause(&error) {
        Some(cause) => {
            let advice = advice(cause, trust);
            anyhow!("{server} cannot be asked: {cause}{advice}")
        }
        None => anyhow!(error.without_url()).context(format!("{server} cannot be asked")),
    }
}

fn cause(error: &reqwest::Error) -> Option<ConnectionCause> {
    let known = chain(error).find_map(ConnectionCause::of);
    known.or_else(|| error.is_timeout().then_some(ConnectionCause::TimedOut))
}

/// The error and its sources.
fn chain<'e>(error: &'e reqwest::Error) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let first: &'e (dyn Error + 'static) = error;
    std::iter::successors(Some(first), |error| (*error).source())
}

fn advice(cause: ConnectionCause, trust: Trust) -> &'static str {
    match (cause, trust) {
        (ConnectionCause::Refused, _) => ": does a server listen at that port?",
        (ConnectionCause::TlsNotSpoken, Trust::CaFile) => ": is its URL http://…?",
        (ConnectionCause::TlsNotSpoken, Trust::Machine) => {
            ": --plain-http is for a registry on this machine without TLS"
        }
        (ConnectionCause::TlsUnknownCa | ConnectionCause::TlsCaAsServer, Trust::CaFile) => {
            ": name a file with the certificate of its CA with --ca-file"
        }
        (ConnectionCause::TlsUnknownCa | ConnectionCause::TlsCaAsServer, Trust::Machine) => {
            ": add its CA to this machine's, or name a file with it in the variable SSL_CERT_FILE"
        }
        (
            ConnectionCause::NameNotFound
            | ConnectionCause::NameServer
            | ConnectionCause::AddressRefused
            | ConnectionCause::TimedOut
            | ConnectionCause::TlsExpired
            | ConnectionCause::TlsNotYetValid
            | ConnectionCause::TlsOtherHost
            | ConnectionCause::Tls
            | ConnectionCause::Reset
            | ConnectionCause::NoRoute
            | ConnectionCause::Other,
            _,
        ) => "",
    }
}
