//! Why a server could not be asked, in plain words, and what the user can do about it.
//!
//! Not here: servers that answered. The causes are the mediator's, found by the types of errors.

use std::error::Error;
use std::fmt;

use anyhow::anyhow;
use toolcrib_mediation::ConnectionCause;

/// How the user of a verb can trust a CA.
#[derive(Clone, Copy)]
pub enum Trust {
    /// The verb has `--ca-file`.
    CaFile,
    /// The verb uses this machine's CAs.
    Machine,
}

/// Converts the error of a request that got no answer.
pub fn no_answer(error: reqwest::Error, server: impl fmt::Display, trust: Trust) -> anyhow::Error {
    match cause(&error) {
        Some(cause) => {
            let advice = advice(cause, trust);
            anyhow!("{server} cannot be asked: {cause}{advice}")
        }
        None => anyhow!(error.without_url()).context(format!("{server} cannot be asked")),
    }
}

fn cause(error: &reqwest::Error) -> Option<ConnectionCause> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(cause) = ConnectionCause::of(error) {
            return Some(cause);
        }
        next = error.source();
    }
    error.is_timeout().then_some(ConnectionCause::TimedOut)
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
