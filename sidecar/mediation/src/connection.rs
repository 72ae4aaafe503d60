//! Why a connection to a service or a provider failed, in words that the record keeps.

use std::fmt;

use serde::Serialize;

/// For the record and the log, never for the model: it names a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionFailure {
    pub cause: ConnectionCause,
    /// `scheme://host:port`; where the manifest has a proxy, the address behind it.
    pub address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionCause {
    /// Nobody listens there.
    Refused,
    NameNotFound,
    /// No name server says what the name leads to: none is set, answers, or answers usefully.
    NameServer,
    /// The name or the literal address leads to this machine, the link-local range or a metadata
    /// service.
    AddressRefused,
    TimedOut,
    /// No TLS, or a certificate that is not trusted, has ended or is another host's.
    Tls,
    /// It was there, and broke off.
    Reset,
    /// The network or the host cannot be reached.
    NoRoute,
    Other,
}

impl fmt::Display for ConnectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionCause::Refused => "connection refused",
            ConnectionCause::NameNotFound => "the name does not resolve",
            ConnectionCause::NameServer => "no name server resolves the name",
            ConnectionCause::AddressRefused => "the host leads to an address that is not dialled",
            ConnectionCause::TimedOut => "timed out",
            ConnectionCause::Tls => "TLS failed",
            ConnectionCause::Reset => "the connection broke off",
            ConnectionCause::NoRoute => "no route to the host",
            ConnectionCause::Other => "the connection failed",
        })
    }
}
