//! Causes of a failed connection to a service or a provider, in words for the record.

use std::fmt;

use serde::Serialize;

/// A failed connection, for the record and the log. Never shown to the model: it names a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionFailure {
    pub cause: ConnectionCause,
    /// `scheme://host:port`; where the manifest has a proxy, the address behind it.
    pub address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionCause {
    /// Nothing listens at the address.
    Refused,
    NameNotFound,
    /// No name server is configured, or none gives a usable answer.
    NameServer,
    /// The name or the literal address leads to this machine, the link-local range or a metadata
    /// service.
    AddressRefused,
    TimedOut,
    /// The server speaks no TLS, or its certificate is not trusted, has expired or is for another
    /// host.
    Tls,
    /// The connection was established and broke off.
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
